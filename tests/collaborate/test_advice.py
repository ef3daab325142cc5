# SPDX-License-Identifier: Apache-2.0
"""From held-out losses to advice, and how advice is judged."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.collaborate.advice import advise, shrink
from idiolect.collaborate.options import OPTIONS, fit_options, try_options
from idiolect.collaborate.quadratic import score_own
from idiolect.collaborate.verdict import judge, regrets, savings


def test_without_noise_nothing_is_shrunk_and_without_differences_everything():
    draws = np.random.default_rng(0)
    counts = draws.integers(5, 50, 20)
    gains = draws.normal(size=(20, 2))
    exact, spread = shrink(gains, np.zeros((20, 2, 2)), counts)
    assert exact == pytest.approx(gains, abs=1e-6)
    assert np.abs(spread).max() < 1e-6
    # gains 0.3 and -0.1 everywhere, noise 1: the answer is near the mean of all, not near any client's own
    noise = np.tile(np.eye(2), (20, 1, 1))
    drawn = np.array([0.3, -0.1]) + draws.normal(size=(20, 2))
    common, spread = shrink(drawn, noise, np.full(20, 10))
    assert np.ptp(common, axis=0).max() < 0.6 * np.ptp(drawn, axis=0).min()
    assert common.mean(axis=0) == pytest.approx(drawn.mean(axis=0), abs=0.05)


def test_intervals_of_shrunken_gains_hold_and_errors_fall():
    draws = np.random.default_rng(1)
    inside, ours, raw = [], [], []
    for _ in range(40):
        counts = draws.integers(5, 200, 40)
        size = (1 / counts) / (1 / counts).mean()
        truth = np.stack([0.1 * size + 0.05 * size * draws.normal(size=40), 0.05 * size], axis=1)
        noise = np.array([[1, 0.5], [0.5, 1]]) * (0.4 / counts)[:, None, None]
        measured = truth + np.stack([draws.multivariate_normal([0, 0], one) for one in noise])
        expected, spread = shrink(measured, noise, counts)
        half = 1.96 * np.sqrt(np.einsum("aii->ai", spread))
        inside.append(np.abs(expected - truth) <= half)
        ours.append((expected - truth) ** 2)
        raw.append((measured - truth) ** 2)
    assert np.mean(inside) > 0.85  # the prior is estimated from 40 agents: a little below 0.95
    assert np.mean(ours) < 0.5 * np.mean(raw)


@pytest.fixture(scope="module")
def two_kinds(bench):
    """12 agents of 14 rows on one line, and one of 120 rows on another: neighbours for the many, alone for the one."""
    slopes = np.array([[1.0, -1, 0.5]] * 12 + [[-3.0, 3, 1]])
    sample = bench.line_sample(bench.lines(slopes, [14] * 12 + [120]))
    options = try_options(sample)
    test = bench.line_sample(bench.lines(slopes, [200] * 13, seed=1), folds=2)
    return sample, options, test


def test_small_agents_alike_join_and_a_large_stranger_does_not_join_everybody(two_kinds):
    sample, options, _ = two_kinds
    advice = advise(sample, options.losses)
    assert set(advice.names()[:12]) == {"neighbours"}
    assert advice.names()[12] != "everybody"
    assert (advice.low <= advice.expected).all()
    assert advice.expected[:12, 2].min() > 0
    assert advice.chance.min() >= 0
    assert set(options.penalties) == set(OPTIONS)


def test_the_verdict_of_test_rows(two_kinds):
    sample, options, test = two_kinds
    models = fit_options(sample, options)
    losses = np.stack([score_own(test, models[way]) for way in OPTIONS], axis=1)
    pick = advise(sample, options.losses).pick
    verdict = judge(test, losses, pick)
    assert verdict.right.all()
    assert verdict.decidable.all()  # everybody's model is measurably worse for all of them
    regret, saved = regrets([verdict], OPTIONS), savings([verdict], OPTIONS)
    assert regret["advice"].mean < min(regret["always alone"].mean, regret["always everybody"].mean)
    assert saved["always everybody"].low > 0
    worst = judge(test, losses, np.full(13, 1))
    assert not worst.right.any()
    assert regrets([worst], OPTIONS)["advice"].mean == pytest.approx(regret["always everybody"].mean)


def test_agents_without_test_rows_are_not_counted_and_few_rows_decide_nothing(bench):
    test = bench.mean_sample([[0.0, 0.1, 0.2], [0.0] * 3, []], folds=2)
    losses = np.array([[0.0, 1, 2]] * 6)
    verdict = judge(test, losses, np.array([0, 2, 1]))
    assert verdict.tested.tolist() == [True, True, False]
    assert verdict.decidable.sum() == 0  # three rows are below MINIMUM_ROWS
    assert verdict.right.tolist() == [True, True, False]
    assert regrets([verdict, verdict], OPTIONS)["advice"].mean == pytest.approx(1.0)
