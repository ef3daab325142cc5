# SPDX-License-Identifier: Apache-2.0
"""From held-out losses to advice, and how advice is judged."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from benchmarks.advice_coverage import Setting, coverage

from idiolect.collaborate.advice import advise
from idiolect.collaborate.leave_out import left_out_losses
from idiolect.collaborate.options import OPTIONS, fit_options, try_options
from idiolect.collaborate.quadratic import make_sample, optimum, own_optima, score_own
from idiolect.collaborate.shrinkage import shrink
from idiolect.collaborate.verdict import judge, regrets, savings
from idiolect.core.checks import RequestError
from idiolect.theory.convex import ConvexLoss


def test_without_noise_nothing_is_shrunk_and_without_differences_everything():
    draws = np.random.default_rng(0)
    counts = draws.integers(5, 50, 20)
    gains = draws.normal(size=(20, 2))
    exact = shrink(gains, np.zeros((20, 2, 2)), counts)
    assert exact.expected == pytest.approx(gains, abs=1e-4)
    assert (exact.high - exact.low).max() < 1e-3
    # gains 0.3 and -0.1 everywhere, noise 1: the answer is near the mean of all, not near any client's own
    noise = np.tile(np.eye(2), (20, 1, 1))
    drawn = np.array([0.3, -0.1]) + draws.normal(size=(20, 2))
    common = shrink(drawn, noise, np.full(20, 10)).expected
    # no client is moved by more than its noise, hence what is beyond it stays
    assert (common.std(axis=0) < 0.6 * drawn.std(axis=0)).all()
    assert np.abs(common - drawn).max() <= 1 + 1e-9


def test_intervals_of_shrunken_gains_hold_and_errors_fall():
    draws = np.random.default_rng(1)
    inside, ours, raw = [], [], []
    for _ in range(20):
        counts = draws.integers(5, 200, 40)
        size = (1 / counts) / (1 / counts).mean()
        truth = np.stack([0.1 * size + 0.05 * size * draws.normal(size=40), 0.05 * size], axis=1)
        noise = np.array([[1, 0.5], [0.5, 1]]) * (0.4 / counts)[:, None, None]
        measured = truth + np.stack([draws.multivariate_normal([0, 0], one) for one in noise])
        found = shrink(measured, noise, counts)
        inside.append((found.low <= truth) & (truth <= found.high))
        ours.append((found.expected - truth) ** 2)
        raw.append((measured - truth) ** 2)
    assert np.mean(inside) > 0.85  # the prior is estimated from 40 agents: a little below 0.95
    assert np.mean(ours) < 0.5 * np.mean(raw)


def test_an_outlying_client_stays_itself():
    """One client loses 0.48 with a standard error of 0.10 among forty that gain next to nothing."""
    draws = np.random.default_rng(2)
    noise = np.tile(0.01 * np.eye(2), (40, 1, 1))
    measured = 0.02 + 0.1 * draws.normal(size=(40, 2))
    measured[7] = [-0.48, -0.1]
    found = shrink(measured, noise, np.full(40, 30))
    assert found.expected[7, 0] < -0.37
    assert found.low[7, 0] < -0.48 < found.high[7, 0] < 0
    assert np.abs(found.expected[np.arange(40) != 7, 0] - 0.02).mean() < 0.06


def test_intervals_cover_for_usual_outlying_and_shuffled_clients():
    """Full advice on clients of known laws; the docs have the table of many draws."""
    held = coverage(Setting(clients=24, outlying=3, shuffled=3), 4, seed=5)
    assert held["all"] > 0.92
    assert held["outlying"] >= 0.85
    assert held["shuffled"] >= 0.85


def test_leaving_rows_out_by_one_step_is_exact_for_squares(bench):
    """Each row's loss under the model fitted without it, blocks of rows left out together."""
    sample = bench.line_sample(bench.lines(np.array([[1.0, -1], [2, 0], [0, 0]]), [9, 5, 1]))
    block = np.arange(15)
    block[:3] = 0
    sample = dataclasses.replace(sample, block=block)
    models = own_optima(sample, 0.5, np.zeros((3, 3)))
    losses = left_out_losses(sample, models, 0.5)
    for row in range(15):
        kept = sample.take((sample.owner == sample.owner[row]) & (block != block[row]))
        weights = (np.arange(3) == sample.owner[row]).astype(float)
        model = optimum(kept, weights, 0.5, np.zeros(3))
        assert losses[row] == pytest.approx(0.5 * (sample.design[row] @ model - sample.goals[row, 0]) ** 2, rel=1e-5)


def test_many_agents_in_blocks_are_judged_on_rows_that_did_not_sort_them(bench):
    """Without any structure blocks of agents with like noise must not look like neighbours worth joining."""
    slopes = np.tile([1.0, -1.0], (120, 1)) + np.random.default_rng(0).normal(size=(120, 2))
    sample = bench.line_sample(bench.lines(slopes, [12] * 120))
    options = try_options(sample, most_pairs=50)
    assert not options.all_pairs
    assert max(map(len, options.neighbours.blocks)) <= 100
    test = bench.line_sample(bench.lines(slopes, [100] * 120, seed=1), folds=2)
    models = fit_options(sample, options)
    for place, way in enumerate(OPTIONS):
        promised, kept = sample.means(options.losses)[:, place].mean(), test.means(score_own(test, models[way])).mean()
        assert promised == pytest.approx(kept, rel=0.15)


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
    assert verdict.decidable.all()  # one model for all is measurably worse for all of them
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


def test_small_agents_send_nothing_and_are_still_advised(bench):
    """Other rows of an agent with fewer than 5 change its own losses alone; no fold has fewer than 5 rows."""
    rows = bench.lines([[1.0], [1.0], [-1.0], [-1.0], [1.0]], [30, 11, 7, 25, 4])
    changed = dataclasses.replace(rows, inputs=np.where(np.arange(77)[:, None] < 73, rows.inputs, 9.0))
    found, other = (try_options(_guarded(bench, each), (1.0,), least=5) for each in (rows, changed))
    sample = _guarded(bench, rows).heard(5)
    sizes = np.unique(5 * sample.owner + sample.fold, return_counts=True)[1]
    assert sorted(sizes) == [5] * 6 + [6] * 6 + [7]
    np.testing.assert_array_equal(found.losses[:73], other.losses[:73])
    np.testing.assert_array_equal(found.neighbours.dense(), other.neighbours.dense())
    assert (found.losses[73:] != other.losses[73:]).any(axis=0).all()
    assert np.isfinite(found.losses).all()
    assert "at least 5 rows" in found.neighbours.exchange.reveals


def test_advice_without_a_client_that_may_send_is_refused(bench):
    with pytest.raises(RequestError, match=r"fewer than 5 rows .* the largest has 4"):
        try_options(_guarded(bench, bench.lines([[1.0], [1.0]], [4, 3])), least=5)


def _guarded(bench, rows):
    loss = ConvexLoss("squared", 1, 0, bias=True, diagonal=False, l2=0.0)
    return make_sample(loss, rows, least=5)
