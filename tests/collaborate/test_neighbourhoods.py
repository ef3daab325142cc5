# SPDX-License-Identifier: Apache-2.0
"""Neighbourhoods from discrepancies: weights, counts, special cases, pair lists, and one sentence per wrong input."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.collaborate import neighbourhoods as n
from idiolect.core import mixing
from idiolect.core.checks import RequestError

PLACES = np.random.default_rng(0).random(15)
B = 0.5 * (PLACES[:, None] - PLACES[None]) ** 2


def test_weights_use_at_most_in_both_places():
    b = np.array([[0.0, 0.05, 0.2], [0.05, 0.0, 0.1], [0.2, 0.1, 0.0]])
    np.testing.assert_allclose(n.neighbourhood_weights(b, 0.1), [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])
    np.testing.assert_array_equal(n.neighbourhood_weights(b, 1e-9), np.eye(3))  # an isolated agent listens to itself


def test_pairs_give_the_same_without_a_matrix():
    first, second = np.triu_indices(15, 1)
    expected = n.neighbourhood_weights(B, 0.01)
    found = n.neighbourhoods_from_pairs(15, first, second, B[first, second], 0.01)
    np.testing.assert_allclose(mixing.dense(found), expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(mixing.dense(n.neighbourhoods(B, 0.01)), expected, rtol=0, atol=1e-15)


def test_many_agents_need_no_matrix():
    agents = 20_000  # a matrix would take 3.2 GB
    first = np.arange(agents - 1)
    found = n.neighbourhoods_from_pairs(agents, first, first + 1, np.full(agents - 1, 0.1), 0.2)
    assert found.indices.shape == (3, agents)
    assert "2 to 3 of 20000 clients" in n.describe(found)
    assert (
        n.describe(mixing.from_dense(np.full((4, 4), 0.25))) == "every client listens to all 4 clients, itself included"
    )


def test_the_sentence_counts_loners():
    sentence = n.describe(mixing.from_dense(np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])))
    assert "1 to 2 of 3 clients, " in sentence
    assert "1.67 on average, 1 of 3 clients to themselves alone" in sentence


def changed(i, j, value):
    b = B.copy()
    b[i, j] = value
    return b


@pytest.mark.parametrize(
    ("b", "words"),
    [
        (changed(2, 5, 7.0), r"symmetric, got b\[2, 5\] = 7 and b\[5, 2\]"),
        (changed(2, 5, -0.1), r"at least 0, got b\[2, 5\] = -0.1"),
        (changed(3, 3, 0.2), r"distance 0 from itself, got b\[3, 3\] = 0.2"),
        (changed(2, 5, np.nan), r"b\[2, 5\] is not; use inf"),
        (B[:3], "square"),
    ],
)
def test_wrong_discrepancies_get_one_sentence(b, words):
    with pytest.raises(RequestError, match=words):
        n.neighbourhood_weights(b, 0.1)


def test_asymmetry_can_be_kept_or_resolved():
    b = changed(2, 5, 7.0)
    assert n.check_discrepancy(b, "keep")[2, 5] == 7
    assert n.check_discrepancy(b, "keep")[5, 2] == B[5, 2]
    assert n.check_discrepancy(b, "larger")[5, 2] == 7
    far = changed(2, 5, np.inf)
    far[5, 2] = np.inf
    assert (n.neighbourhood_weights(far, 10.0)[2] > 0).sum() == 14  # infinity is far apart, not wrong


def test_other_wrong_requests():
    for accuracy in (0.0, -1.0, float("nan")):
        with pytest.raises(RequestError, match="above 0"):
            n.neighbourhood_weights(B, accuracy)
    with pytest.raises(RequestError, match="at least one client"):
        n.neighbourhoods_from_pairs(0, [], [], [], 0.1)
    with pytest.raises(RequestError, match="at least 0, got -1"):
        n.neighbourhoods_from_pairs(3, [0], [1], [-1.0], 0.1)
    with pytest.raises(RequestError, match="asymmetric must be one of"):
        n.check_discrepancy(B, "mean")
