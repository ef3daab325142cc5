# SPDX-License-Identifier: Apache-2.0
"""Distances of appendix A: unbiased where it matters, bounded above, exact on the line."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from idiolect.collaborate.distances import (
    LIPSCHITZ,
    exact_wasserstein,
    mean_differences,
    moment_differences,
    slice_rows,
    wasserstein_distances,
)
from idiolect.core.checks import RequestError


def test_means_apart_by_two_have_discrepancy_two(bench):
    """b = (m_i - m_j)^2 / 2 = 2; debiased, so that 10 rows are as right on average as 1000; the bound is above."""
    draws = np.random.default_rng(0)
    found = [mean_differences(bench.tosses([draws.normal(size=10), 2 + draws.normal(size=10)])) for _ in range(400)]
    values = np.array([one.value[0, 1] for one in found])
    assert values.mean() == pytest.approx(2, abs=0.15)  # the standard error of this mean is 0.045
    assert np.mean([one.upper[0, 1] > 2 for one in found]) > 0.95
    assert found[0].value[0, 0] == found[0].upper[1, 1] == 0
    assert found[0].exchange.upload_bytes == 2 * 3 * 4  # mean, variance, count


def test_agents_alike_are_at_distance_zero_most_of_the_time(bench):
    values = np.random.default_rng(1).normal(size=(40, 10))
    off = ~np.eye(40, dtype=bool)
    found = mean_differences(bench.tosses(values))
    assert np.median(found.value[off]) == 0
    assert (found.upper[off] > found.value[off]).all()


def test_second_moments_see_other_inputs_and_other_labels(bench):
    draws = np.random.default_rng(2)
    inputs = [draws.normal(size=(400, 2)) for _ in range(3)]
    scaled = 2 * draws.normal(size=(400, 2))  # E aa' = 4 I: |difference| = 3 sqrt(2)
    slopes = [(inputs[0], 1.0), (inputs[1], 1.0), (inputs[2], -1.0), (scaled, 1.0)]
    rows = bench.rows_of([(a, sign * a[:, 0]) for a, sign in slopes])
    found, blind = (moment_differences(rows, diameter=2.0, labelled=labelled) for labelled in (True, False))
    assert found.value[0, 2] == pytest.approx(4 * 2, rel=0.15)  # E ba = e_1 against -e_1
    assert blind.value[0, 2] < 4 * 0.3  # inputs alone cannot see that
    assert blind.value[0, 3] == pytest.approx(4 * 3 * np.sqrt(2), rel=0.15)
    assert found.value[0, 1] < 0.2 * found.value[0, 2]
    assert (found.upper >= found.value).all()
    assert found.exchange.upload_bytes == 4 * 4 * (3 + 2 + 2)  # aa' (3), ba (2), spread, count


def test_wasserstein_on_the_line_is_exact_and_signs_count(bench):
    draws = np.random.default_rng(3)
    inputs = [draws.normal(size=(320, 1)), draws.normal(size=(320, 1)) + 1]
    rows = bench.rows_of([(inputs[0], np.ones(320)), (inputs[1], np.ones(320))])
    found = wasserstein_distances(rows, diameter=1.5)
    exact = wasserstein_distance(inputs[0][:, 0], inputs[1][:, 0])
    assert exact_wasserstein(*inputs) == pytest.approx(exact)
    assert found.upper[0, 1] > 1.5 * LIPSCHITZ * exact * 0.99 > found.value[0, 1] * 0.95
    assert found.value[0, 1] == pytest.approx(1.5 * LIPSCHITZ * exact, rel=0.03)
    flipped = bench.rows_of([(inputs[1], np.ones(320)), (inputs[1], np.zeros(320))])
    assert wasserstein_distances(flipped).value[0, 1] == pytest.approx(
        LIPSCHITZ * exact_wasserstein(inputs[1], -inputs[1]), rel=0.03
    )
    assert wasserstein_distances(flipped, labelled=False).value[0, 1] == 0


def test_sliced_distances_order_pairs_as_the_exact_ones_do(bench):
    draws = np.random.default_rng(4)
    clouds = [draws.normal(size=(60, 3)) + shift for shift in (0, 0, 1, 3)]
    rows = bench.rows_of([(cloud, np.zeros(60)) for cloud in clouds])
    found = wasserstein_distances(rows, labelled=False, directions=64)
    exact = [exact_wasserstein(clouds[0], other) for other in clouds[1:]]
    assert found.value[0, 1] < found.value[0, 2] < found.value[0, 3]
    assert found.value[0, 3] == pytest.approx(LIPSCHITZ * exact[2], rel=0.25)
    assert (found.value == found.value.T).all()


def test_what_cannot_be_compared_is_refused(bench):
    many = np.tile([0, 1, 2], 10)
    with pytest.raises(RequestError, match="targets 0 or 1"):
        wasserstein_distances(bench.rows_of([(np.ones((30, 1)), many), (np.ones((30, 1)), many)]))
    empty = bench.rows_of([(np.ones((0, 1)), np.ones(0)), (np.zeros((2, 1)), np.ones(2))])
    with pytest.raises(RequestError, match="no rows to compare"):
        mean_differences(empty)


@pytest.mark.parametrize(("features", "least"), [(2, 20), (30, 32)])
def test_summaries_that_would_be_rows_are_refused(bench, features, least):
    """Sums of fewer rows than that are as many numbers as the rows themselves."""
    large, small = ((np.ones((count, features)), np.ones(count)) for count in (2 * least, least - 1))
    with pytest.raises(RequestError, match=f"at least {least} rows of every client.*client 1 has {least - 1}"):
        moment_differences(bench.rows_of([large, small]), 1.0)
    assert moment_differences(bench.rows_of([large, large]), 1.0).value[0, 1] == 0
    with pytest.raises(RequestError, match="client 1 has 19"):
        wasserstein_distances(bench.rows_of([large, (np.ones((19, features)), np.ones(19))]))


def test_what_is_sent_is_a_fraction_of_what_is_held(bench):
    """Every number is a mean of at least 10 rows, and there are at most a quarter as many as the rows hold."""
    draws = np.random.default_rng(5)
    counts = (20, 57, 400)
    rows = bench.rows_of([(draws.normal(size=(count, 3)), np.arange(count) % 2) for count in counts])
    sent = slice_rows(rows)
    assert [one.means.shape for one in sent] == [(2, 7), (5, 7), (40, 7)]
    assert all(one.means.size <= 3 * one.rows / 4 for one in sent)
    assert wasserstein_distances(rows).exchange.upload_bytes == 4 * sum(one.means.size + 2 for one in sent)
