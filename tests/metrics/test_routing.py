# SPDX-License-Identifier: Apache-2.0
"""The report on routes, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.metrics import routing_report


def test_shares_by_layer_and_category():
    # two clients, three rows (the last of client 1 is padding), two layers
    shares = np.array([[[0.9, 0.5], [0.1, 0.6], [0.8, 0.7]], [[0.2, 0.4], [0.4, 0.9], [0.0, 0.0]]])
    mask = np.array([[1, 1, 1], [1, 1, 0]], bool)
    shared = np.array([[1, 0, 1], [0, 0, 1]], bool)
    personal = np.array([[1, 1, 0], [0, 1, 1]], bool)
    report = routing_report(("a", "b"), shares, shared, personal, mask)
    np.testing.assert_allclose(report.shared_share, [2.4 / 5, 3.1 / 5])
    np.testing.assert_allclose(report.taken, [2 / 5, 4 / 5])  # a tie is the shared version
    # layer a: client 0 goes both ways, client 1 local; layer b: client 0 shared, client 1 both ways
    np.testing.assert_allclose(report.one_way, [1 / 2, 1 / 2])
    assert report.rows == {"both": 1, "shared_only": 1, "personal_only": 2, "neither": 1}
    np.testing.assert_allclose(report.by_category["personal_only"], [0.25, 0.75])
    np.testing.assert_allclose(report.taken_by_category["shared_only"], [1, 1])
    np.testing.assert_allclose(report.by_category["neither"], [0.2, 0.4])


def test_every_position_of_a_sequence_counts():
    shares = np.array([[[[0.9], [0.9], [0.3]], [[0.2], [0.2], [0.2]]]])  # one client, two rows, three steps
    shared = np.array([[[1, 0, 0], [1, 0, 0]]], bool)
    personal = np.array([[[1, 1, 0], [0, 0, 0]]], bool)
    mask = np.array([[[1, 1, 1], [1, 1, 0]]], bool)  # the last position has no target
    report = routing_report(("lstm",), shares, shared, personal, mask)
    np.testing.assert_allclose(report.shared_share, [2.5 / 5])
    np.testing.assert_allclose(report.taken, [2 / 5])
    assert report.one_way == [0]
    assert report.rows == {"both": 1, "shared_only": 1, "personal_only": 1, "neither": 2}
    np.testing.assert_allclose(report.by_category["personal_only"], [0.9])
    np.testing.assert_allclose(report.taken_by_category["neither"], [0])
    np.testing.assert_allclose(report.by_category["neither"], [0.25])


def test_shares_that_do_not_fit_are_refused():
    with pytest.raises(RequestError, match=r"name, 1, got shape \(1, 2, 3\)"):
        routing_report(("a",), np.zeros((1, 2, 3)), np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)))
