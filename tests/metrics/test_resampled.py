# SPDX-License-Identifier: Apache-2.0
"""Intervals over repeated splits: Nadeau and Bengio's formula, and that they cover where the plain ones do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from idiolect.metrics import gain_estimates, judge, paired_estimates, score_estimates, student_intervals
from idiolect.metrics.resampled import one_split, with_folds

NAN = float("nan")


@pytest.mark.parametrize("estimates", [gain_estimates, score_estimates])
def test_the_interval_is_the_corrected_one(estimates):
    values = np.array([[0.1, 0.4, 0.2, 0.5, NAN]])
    found = student_intervals(estimates(values, 0.25))
    half = stats.t.ppf(0.975, 3) * np.std(values[0, :4], ddof=1) * np.sqrt(1 / 4 + 0.25)
    np.testing.assert_allclose([found.value[0], found.low[0], found.high[0]], [0.3, 0.3 - half, 0.3 + half])


def test_what_splits_cannot_tell_is_said():
    gains = np.array([[0.0, 0.0, 0.0], [0.1, 0.1, 0.1], [0.3, NAN, NAN], [NAN, NAN, NAN]])
    found = student_intervals(gain_estimates(gains, 0.25))
    assert found.low[0] == found.high[0] == 0  # no gain in any split: without a doubt
    assert found.low[1] < 0 < found.high[1]  # three equal gains of accuracy are no certainty
    assert np.isnan(found.low[2:]).all()
    assert np.isnan(found.value[3])
    assert list(judge(gain_estimates(gains, 0.25))[1]) == ["same", "unclear", "unclear", ""]


def test_scores_without_spread_have_no_error():
    found = student_intervals(score_estimates(np.array([[1.0, 1.0, 1.0], [1.0, NAN, NAN]]), 0.25))
    assert found.low[0] == found.high[0] == 1
    assert np.isnan(found.low[1])
    assert found.value[1] == 1


def test_overlapping_splits_cover_the_truth_where_the_plain_interval_does_not():
    """The error of a mean on 10 splits of 40 rows, seen as a gain: the truth is its mean over many samples."""
    draw = np.random.default_rng(3)
    rows, splits, test = 40, 10, 8
    samples = draw.normal(size=(600, rows))
    gains = np.empty((600, splits))
    for sample in range(600):
        for split in range(splits):
            order = draw.permutation(rows)
            fitted = samples[sample, order[test:]].mean()
            gains[sample, split] = 1.2 - np.mean((samples[sample, order[:test]] - fitted) ** 2)
    truth = 1.2 - (1 + 1 / (rows - test))
    corrected = student_intervals(gain_estimates(gains, test / (rows - test)))
    plain = student_intervals(gain_estimates(gains, 0.0))
    covers = [np.mean((found.low <= truth) & (truth <= found.high)) for found in (corrected, plain)]
    assert 0.88 <= covers[0] <= 0.98
    assert covers[1] < 0.8


def test_clients_are_judged_by_the_usual_rule():
    draw = np.random.default_rng(0)
    truth = np.repeat([1.0, 0.0, -1.0], 6)
    gains = truth[:, None] + 0.15 * draw.normal(size=(18, 10))
    verdict = judge(gain_estimates(gains, np.full(18, 0.25)))[1]
    assert (verdict[:6] == "helped").all()
    assert (verdict[12:] == "hurt").all()
    assert "hurt" not in verdict[6:12]


def test_an_interval_of_one_split_holds_the_mean_gain_of_others_because_it_counts_training_rows():
    """A mean alone against a fixed value: its training rows move the gain of all test rows together."""
    draw, train, test = np.random.default_rng(1), 20, 5
    rows = draw.normal(size=(4000, train + test))
    losses = (rows[:, train:] - rows[:, :train].mean(axis=1, keepdims=True)) ** 2 - (rows[:, train:] - 0.3) ** 2
    truth = 1 / train - 0.3**2
    found = paired_estimates(losses, np.ones(losses.shape, bool))
    plain, whole = student_intervals(found), student_intervals(one_split(found, test / train))
    held = [np.mean((one.low <= truth) & (truth <= one.high)) for one in (plain, whole)]
    assert held[0] < 0.92 < held[1] < 0.97
    np.testing.assert_allclose(whole.high - whole.low, (plain.high - plain.low) * np.sqrt(1.25))


def test_folds_and_test_rows_tell_the_error_by_their_degrees_of_freedom():
    """Client 0: 4 test rows, 3 folds of 8 validation rows; client 1: one test row; client 2: no validation row."""
    found = paired_estimates(np.array([[1.0, 2, 3, 4], [5, 0, 0, 0], [1, 3, 0, 0]]), np.tri(4)[[3, 0, 1]] > 0)
    gains = np.array([[1.0, 0, np.nan], [2, 3, np.nan], [4, 9, np.nan]])
    pooled = with_folds(found, gains, np.array([8, 2, 0]), np.array([4, 1, 2]))
    first = (3 * found.error[0] ** 2 + 2 * gains[:, 0].var(ddof=1) * 8 / 4) / 5
    np.testing.assert_allclose(pooled.error, [np.sqrt(first), np.sqrt(21.0 * 2 / 1), found.error[2]])
    np.testing.assert_array_equal(pooled.freedom, [5, 2, 1])
    np.testing.assert_array_equal(pooled.value, found.value)


def test_folds_make_up_for_test_rows_that_agree_by_chance():
    """Gains of rows with rare large values, 4 test rows, models that differ; the truth is a mean over models."""
    rng = np.random.default_rng(0)
    rows = rng.standard_t(3, (4000, 4 + 16)) + np.repeat(rng.normal(0, 0.8, (4000, 5)), 4, axis=1)
    found = paired_estimates(rows[:, :4], np.ones((4000, 4)))
    folds = rows[:, 4:].reshape(4000, 4, 4).mean(axis=2).T
    pooled = with_folds(found, folds, np.full(4000, 4), np.full(4000, 4))
    covered = [100 * ((one.low <= 0) & (one.high >= 0)).mean() for one in map(student_intervals, (found, pooled))]
    assert covered[0] < 90
    assert covered[1] > covered[0] + 3
