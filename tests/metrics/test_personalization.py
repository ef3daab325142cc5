# SPDX-License-Identifier: Apache-2.0
"""Generalized and personalized accuracy, counted by hand."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.metrics import personalization_metrics
from idiolect.metrics.personalization import personalization_of
from idiolect.metrics.scores import accuracy
from idiolect.record.codec import to_json


def answers(labels, classes=3):
    """Logits whose largest entry is the label's."""
    return np.eye(classes)[np.asarray(labels)]


MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]], bool)
TARGETS = np.zeros((4, 4), int)
# class 0 is right; client 0: both, shared only, personal only, personal only; client 1: neither, shared only, both;
# client 2: shared only, personal only; client 3 has no row. Padding says what would count if it did.
SHARED = answers([[0, 0, 1, 2], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
PERSONAL = answers([[0, 1, 0, 0], [2, 1, 0, 0], [1, 0, 1, 1], [1, 1, 1, 1]])


def test_by_hand():
    found = personalization_metrics(SHARED, PERSONAL, TARGETS, MASK)
    assert found.acc_g == pytest.approx((2 / 4 + 2 / 3 + 1 / 2) / 3)
    assert found.acc_p == pytest.approx((3 / 4 + 1 / 3 + 1 / 2) / 3)
    assert (found.helped, found.hurt, found.same) == pytest.approx((100 / 3, 100 / 3, 100 / 3))
    both, neither = (1 / 4 + 1 / 3 + 0) / 3, (0 + 1 / 3 + 0) / 3
    shared_only, personal_only = (1 / 4 + 1 / 3 + 1 / 2) / 3, (2 / 4 + 0 + 1 / 2) / 3
    assert astuple(found.breakdown) == pytest.approx((both, shared_only, personal_only, neither))
    assert found.breakdown.both + found.breakdown.shared_only == pytest.approx(found.acc_g)
    # over 1/2, 1/2, 2/3 and 1/3, 1/2, 3/4: the k-th decile is at place k / 5 of 0 .. 2
    assert found.deciles_g[4:] == pytest.approx([1 / 2 + place / 6 for place in (0, 0.2, 0.4, 0.6, 0.8)])
    assert found.deciles_p[:5] == pytest.approx([1 / 3 + place / 6 for place in (0.2, 0.4, 0.6, 0.8, 1)])
    assert (found.worst_tenth_g, found.worst_tenth_p) == pytest.approx((1 / 2, 1 / 3))  # a tenth is one client
    assert (found.clients, found.missing) == (3, 1)


def test_both_are_the_accuracy_score():
    found = personalization_metrics(SHARED, PERSONAL, TARGETS, MASK)
    each = [[float(accuracy(logits[m], TARGETS[m], MASK[m])) for m in range(3)] for logits in (SHARED, PERSONAL)]
    assert (found.acc_g, found.acc_p) == pytest.approx(tuple(np.mean(each, axis=1)))


def test_without_a_received_model_only_the_personal_one_counts():
    found = personalization_metrics(None, PERSONAL, TARGETS, MASK)
    assert found.acc_p == pytest.approx((3 / 4 + 1 / 3 + 1 / 2) / 3)
    assert found.worst_tenth_p == pytest.approx(1 / 3)
    assert all(math.isnan(value) for value in (found.acc_g, found.helped, *astuple(found.breakdown), *found.deciles_g))
    plain = to_json(found)
    assert plain["acc_g"] is None
    assert plain["breakdown"]["both"] is None
    assert plain["clients"] == 3


def test_positions_of_sequences_are_instances():
    # one client, two sequences of three characters, the second with one character only
    targets = np.array([[[0, 0, 0], [0, -1, -1]]])
    shared = answers([[[0, 1, 1], [0, 0, 0]]])  # 1/3 and 1
    personal = answers([[[0, 0, 1], [1, 0, 0]]])  # 2/3 and 0
    found = personalization_metrics(shared, personal, targets, np.ones((1, 2), bool))
    assert (found.acc_g, found.acc_p) == pytest.approx(((1 / 3 + 1) / 2, (2 / 3) / 2))
    # by position: both 1/3 and 0, shared only 0 and 1, personal only 1/3 and 0, neither 1/3 and 0
    assert astuple(found.breakdown) == pytest.approx((1 / 6, 1 / 2, 1 / 6, 1 / 6))
    assert found.hurt == 100


def test_as_many_positions_right_elsewhere_are_a_tie():
    # seven sequences of three: each model has seven positions right, in other sequences, so the sums round apart
    ours, theirs = np.ones((1, 7, 3), int), np.ones((1, 7, 3), int)
    ours[0, [0, 0, 0, 1, 1, 2, 3], [0, 1, 2, 0, 1, 0, 0]] = 0
    theirs[0, :, 1] = 0
    found = personalization_metrics(answers(ours), answers(theirs), np.zeros((1, 7, 3), int), np.ones((1, 7), bool))
    assert found.same == 100


def test_no_client_the_same_is_zero_not_less():
    """5 of 6 helped and one hurt: 100 - 83.3 - 16.7 is -1e-15, which a table prints as -0."""
    better = np.array([1, 1, 1, 1, 1, 0.0])
    instances = {"both": 0 * better, "shared_only": 1 - better, "personal_only": better, "neither": 0 * better}
    found = personalization_of(instances)
    assert (found.same, np.signbit(found.same)) == (0, False)
    assert found.helped + found.hurt == pytest.approx(100)


def test_nobody_has_a_row():
    found = personalization_metrics(SHARED, PERSONAL, TARGETS, np.zeros_like(MASK))
    assert all(math.isnan(value) for value in (found.acc_g, found.acc_p, found.helped, *found.deciles_p))
    assert (found.clients, found.missing) == (0, 4)


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(RequestError, match=r"got shapes \(4, 4\) and \(4, 3\)"):
        personalization_metrics(SHARED, PERSONAL, TARGETS, MASK[:, :3])
