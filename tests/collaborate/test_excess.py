# SPDX-License-Identifier: Apache-2.0
"""Cross-fitted excess losses: exact values, bytes."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.collaborate.excess import judging, pairwise_excess
from idiolect.collaborate.quadratic import (
    common_model,
    expand,
    make_sample,
    optimum,
    quick_models,
    row_weights,
    score,
    score_own,
)
from idiolect.core.checks import RequestError
from idiolect.theory.convex import ConvexLoss, MatrixRows


def excess_of(sample, penalty=0.0):
    return pairwise_excess(sample, expand(sample, common_model(sample, penalty)), penalty)


def test_leaving_one_out_has_a_closed_form(bench):
    """A toss left out costs (n/(n-1))^2 (z - m)^2/2, so that e_ij = (m_j - m_i)^2/2 - S_i((n/(n-1))^2 - 1)/2."""
    values = np.random.default_rng(0).normal(size=(4, 6)) + np.arange(4)[:, None]
    excess = excess_of(bench.mean_sample(values, folds=6))
    means, spread = values.mean(axis=1), values.var(axis=1)
    wanted = 0.5 * (means[None] - means[:, None]) ** 2 - 0.5 * spread[:, None] * ((6 / 5) ** 2 - 1)
    np.fill_diagonal(wanted, 0.0)
    # quick models are off by the 1e-10 of their curvature that keeps undetermined directions in place
    assert excess.value == pytest.approx(wanted, abs=1e-8)


def test_agents_alike_have_no_excess_on_average(bench):
    """b_ij = 0 and equal sizes: E e_ij = v_j - v_i k/(k-1), v = 1/(2n): -0.0125 for n = 10, k = 5."""
    draws, off = np.random.default_rng(1), ~np.eye(40, dtype=bool)
    found = [excess_of(bench.mean_sample(draws.normal(size=(40, 10)))).value[off].mean() for _ in range(60)]
    assert np.mean(found) == pytest.approx(0.05 - 0.05 * 5 / 4, abs=0.0075)  # three standard errors


def test_the_bill(bench):
    """4 agents, one coefficient: 4 models up, 12 down, 12 pairs x 1 number up, 4 bytes each."""
    exchange = judging(bench.mean_sample(np.eye(4)), 4, 12)
    assert exchange.pairs == 12
    assert exchange.download_bytes == 12 * 4
    assert exchange.upload_bytes == 4 * 4 + 12 * 4
    assert "every mean excess" in exchange.reveals


def test_quick_models_of_squares_are_exact_and_solve_weighted_problems(bench):
    sample = bench.line_sample(bench.lines(np.eye(3), (9, 12, 15)))
    expansion = expand(sample, common_model(sample, 2.0))
    shares = np.array([[0.2, 0.3, 0.5]])
    weights = row_weights(shares, sample.counts)
    quick = quick_models(sample, expansion, weights, 2.0)
    assert optimum(sample, weights[0], 2.0, np.zeros(4)) == pytest.approx(quick[0], abs=1e-8)
    # the gradient vanishes: sum_j a_j X_j'(X_j v - y_j) + 2 v, the bias free
    gradient = 2.0 * quick[0] * [1, 1, 1, 0]
    for agent in range(3):
        mine = sample.owner == agent
        residual = sample.design[mine] @ quick[0] - sample.goals[mine, 0]
        gradient += weights[0, agent] * sample.design[mine].T @ residual
    assert np.abs(gradient).max() < 1e-7
    assert row_weights(np.eye(3), sample.counts) == pytest.approx(np.eye(3))
    by_rows = np.tile(sample.counts / 36, (3, 1))
    assert row_weights(by_rows, sample.counts) == pytest.approx(np.ones((3, 3)))


@pytest.mark.parametrize(("criterion", "width"), [("logistic", 0), ("cross_entropy", 3)])
def test_optima_of_log_losses_are_stationary_and_a_single_class_stays_finite(bench, criterion, width):
    draws = np.random.default_rng(2)
    labels = [draws.integers(max(width, 2), size=20), np.ones(20, int)]
    rows = bench.rows_of([(draws.normal(size=(20, 2)), one) for one in labels])
    sample = make_sample(ConvexLoss(criterion, 2, width, bias=True, diagonal=False, l2=0.0), rows)
    loss = sample.loss
    for agent in range(2):
        point = optimum(sample, np.eye(2)[agent], 1.0, np.zeros(sample.size))
        mine = sample.owner == agent
        gradient = loss.gradient(
            MatrixRows(sample.design[mine], sample.goals[mine], np.ones(20)), point.reshape(loss.shape)
        )
        assert np.abs(gradient.reshape(-1) + sample.ridge(1.0) * point).max() < 1e-5
        assert np.isfinite(point).all()
    # the loss of a row by hand
    models = draws.normal(size=(2, sample.size))
    answers = sample.design[3] @ models[0].reshape(loss.shape)
    goal = sample.goals[3]
    wanted = (
        np.log1p(np.exp(-(2 * goal - 1) * answers)) if width == 0 else np.log(np.exp(answers - answers @ goal).sum())
    )
    assert score(sample, models)[3, 0] == pytest.approx(float(np.squeeze(wanted)))
    assert score_own(sample, models)[-1] == pytest.approx(score(sample, models)[-1, 1])


def test_twins_leave_the_same_rows_out_whatever_their_order(bench):
    values = np.random.default_rng(3).normal(size=(1, 12))
    sample = bench.mean_sample(np.concatenate([values, values[:, ::-1], values + 1]))
    first, second = (sample.owner == agent for agent in (0, 1))
    folds = [dict(zip(sample.goals[one, 0], sample.fold[one])) for one in (first, second)]
    assert folds[0] == folds[1]
    assert len(set(sample.fold[sample.owner == 2])) == 5


def test_blocks_of_rows_are_not_divided_and_classes_spread(bench):
    labels = np.repeat([0, 1], 15)
    rows = bench.rows_of([(np.arange(30.0)[:, None], labels)] * 2)
    loss = ConvexLoss("logistic", 1, 0, bias=True, diagonal=False, l2=0.0)
    sample = make_sample(loss, rows, 5, 0, blocks=np.tile(np.arange(30) // 3, 2))
    for agent in range(2):
        fold = sample.fold[sample.owner == agent]
        assert (fold.reshape(10, 3) == fold.reshape(10, 3)[:, :1]).all()
        assert all(len(set(fold[labels == one])) == 5 for one in (0, 1))
    assert sample.agents == 2


def test_too_large_models_and_too_few_folds_are_refused(bench):
    rows = bench.rows_of([(np.zeros((2, 600)), np.zeros(2, int)), (np.zeros((2, 600)), np.ones(2, int))])
    with pytest.raises(RequestError, match="at most 1000 coefficients, got 1202"):
        make_sample(ConvexLoss("cross_entropy", 600, 2, bias=True, diagonal=False, l2=0.0), rows)
    with pytest.raises(RequestError, match="folds must be at least 2"):
        bench.mean_sample(np.eye(3), folds=1)
