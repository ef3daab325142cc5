# SPDX-License-Identifier: Apache-2.0
"""Predicted costs: the formulas' numbers, what they rely on, and a real run that keeps the promise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS, LSGDPFL
from idiolect.models import Linear
from idiolect.objectives import MX2, ClientLoss, LocalOnly
from idiolect.theory import (
    Constants,
    block_constants,
    client_constants,
    complexity,
    from_theory,
    joint_problem,
    lower_bounds,
    predict,
)
from idiolect.theory.constants import BlockConstants

LOSS = ClientLoss(model=Linear(3), criterion="squared")


def constants(smoothness=1.0, convexity=0.01, component=1.0, clients=20):
    return Constants(*(np.full(clients, value) for value in (smoothness, convexity, component)), True, "given")


def blocks(mu=0.01, shared=0.04, personal=0.09, component_shared=0.04, component_personal=0.16):
    return BlockConstants(mu, shared, personal, component_shared, component_personal, "given")


def prediction(name, objective=None, epsilon=1e-6, rows=100, known=None, **settings):
    own = known or constants()
    chosen = objective or MX2(LOSS, penalty=0.5, clients=20)
    algorithm = ALGORITHMS[name].algorithm(chosen, clients=20, **settings)
    filled, _ = from_theory(ALGORITHMS[name].theory, algorithm, own, rows)
    return predict(ALGORITHMS[name].theory, filled, own, block_constants(chosen, own), rows, epsilon)


def test_lower_bounds():
    # mu = 0.01, ln(1/eps) = 3: sqrt(0.04/0.01) * 3 = 6, sqrt(0.09/0.01) * 3 = 9;
    # components at n = 25: 25 + sqrt(25 * 4) * 3 = 55 and 25 + sqrt(25 * 16) * 3 = 85
    least = lower_bounds(blocks(), 25, math.exp(-3))
    assert least == pytest.approx((6.0, 55.0, 85.0, 6.0, 9.0))
    alone = lower_bounds(blocks(shared=0.0, component_shared=0.0), 25, math.exp(-3))
    assert alone == pytest.approx((0.0, 0.0, 85.0, 0.0, 9.0))  # a flat block needs no gradient


def test_iterations_until():
    # 0.9^k * 2 <= 0.1 needs k >= ln 20/-ln 0.9 = 28.4
    assert complexity.iterations_until(0.1, 2.0, 0.1) == 29
    assert complexity.iterations_until(0.1, 0.05, 0.1) == 0
    assert complexity.iterations_until(1.0, 2.0, 0.1) == 1


def test_acd_pfl():
    # S = 0.2 + 0.3, nu = 0.01/0.25 = 0.04, theta = (sqrt(0.0016 + 0.16) - 0.04)/2 = 0.1809975;
    # ln(2/0.001)/-ln(1 - theta) = 7.6009/0.199668 = 38.07; p_w = 0.4
    promise = complexity.acd_pfl(blocks(), 10, 1e-3)
    assert promise.iterations == 39
    assert promise.cost == pytest.approx((15.6, 156.0, 234.0, 15.6, 23.4))
    assert promise.exact
    # p_w = 0.8 by hand: S = max(0.2/0.8, 0.3/0.2) = 1.5
    slower = complexity.acd_pfl(blocks(), 10, 1e-3, shared_probability=0.8)
    assert slower.iterations > 2 * promise.iterations
    assert slower.cost.rounds == pytest.approx(0.8 * slower.iterations)


def test_acd_pfl_on_one_block_is_accelerated_gradient_descent():
    # only w: S = sqrt(L^w), nu = 0.25, theta = (sqrt(1.0625) - 0.25)/2
    only = complexity.acd_pfl(blocks(personal=0.0, component_personal=0.0), 10, 1e-3)
    assert only.cost.rounds == only.iterations == only.cost.full_shared_gradients
    assert only.cost.personal_gradients == 0.0


def test_asvrcd_pfl():
    # p_w = 0.04/0.2 = 0.2, Lx = 0.4, rho = 0.2/10 = 0.02, eta = 1/1.6, theta1 = min{1/2, sqrt(0.625 * 0.01 * 25)} =
    # 0.3952847, gamma = 0.625/(4 theta1) = 0.3952847; nu = 1 - gamma mu = 0.9960472;
    # c = min{0.02, sqrt(0.01 * 0.02/0.8) = 0.0158114}/4 = 0.00395285;
    # start = theta1/(gamma nu mu) + 1 + (1 + theta1)/0.04 = 100.3968 + 1 + 34.8821 = 136.279;
    # ln(136279)/-ln(1 - c) = 11.82245/0.00396068 = 2984.95
    settings = {"shared_probability": 0.2, "refresh_probability": 0.02, "momentum": 0.3952847, "mirror_step": 0.3952847}
    promise = complexity.asvrcd_pfl(blocks(), 10, 1e-3, **settings)
    assert promise.iterations == 2985
    # rounds (0.2 + 0.02) k + 1; by w 0.4 k + 10 (0.02 k + 1); by beta 1.6 k + the same; full 0.02 k + 1
    assert promise.cost == pytest.approx((657.7, 1801.0, 5383.0, 60.7, 60.7))
    assert not promise.exact


def test_gradient_descent():
    # ln 1000/-ln(1 - 0.01/0.13) = 6.9078/0.0800427 = 86.3
    promise = complexity.gradient_descent(blocks(), 10, 1e-3)
    assert promise.cost == pytest.approx((87.0, 870.0, 870.0, 87.0, 87.0))
    alone = complexity.gradient_descent(blocks(shared=0.0), 10, 1e-3)
    assert alone.cost.rounds == alone.cost.shared_gradients == 0
    assert alone.cost.full_personal_gradients == alone.iterations > 0


def test_lsgd_pfl():
    # eta mu = 0.02: ln(200/0.001)/-ln 0.98 = 12.20607/0.0202027 = 604.2; 605/5 = 121 rounds
    promise = complexity.lsgd_pfl(blocks(), 10, 1e-3, step_size=2.0, local_steps=5)
    assert promise.cost == pytest.approx((121.0, 6050.0, 6050.0, 605.0, 605.0))
    assert "floor" in promise.statement
    assert "floor" not in complexity.lsgd_pfl(blocks(), 10, 1e-3, step_size=2.0, local_steps=1).statement
    batches = complexity.lsgd_pfl(blocks(), 10, 1e-3, step_size=2.0, local_steps=1, batch_size=4)
    assert batches.cost == pytest.approx((605.0, 2420.0, 2420.0, 0.0, 0.0))
    assert "floor" in batches.statement


def test_l2sgd_plus():
    # a mu'/M = 10 * 0.01/20 = 0.005, start (1 + 0.5)/0.01 = 150: ln(150/0.001)/-ln 0.995 = 11.9184/0.00501254 = 2377.7
    promise = complexity.l2sgd_plus(constants(), 100, 1e-3, penalty=0.5, averaging_probability=0.25, step_size=10.0)
    assert promise.iterations == 2378
    assert promise.cost == pytest.approx((594.5, 0.0, 1783.5, 0.0, 0.0))


@pytest.mark.parametrize("name", ["acd_pfl", "asvrcd_pfl"])
def test_more_accuracy_and_worse_conditioning_cost_more(name):
    by_accuracy = [prediction(name, epsilon=epsilon).cost.rounds for epsilon in (1e-2, 1e-4, 1e-8)]
    assert by_accuracy == sorted(set(by_accuracy))
    by_curvature = [prediction(name, known=constants(1.0, mu)).cost.rounds for mu in (0.1, 0.01, 0.001)]
    assert by_curvature == sorted(set(by_curvature))


def test_asvrcd_pfl_is_monotone_in_rows_and_refreshes():
    by_rows = [prediction("asvrcd_pfl", rows=rows).cost.personal_gradients for rows in (1, 10, 100, 1000)]
    assert by_rows == sorted(set(by_rows))
    seldom, often = (prediction("asvrcd_pfl", refresh_probability=rho).iterations for rho in (0.001, 0.1))
    assert seldom > often


@pytest.mark.parametrize("name", ["acd_pfl", "asvrcd_pfl"])
def test_no_promise_is_below_the_limit(name):
    for mu in (0.1, 0.001):
        own, objective = constants(1.0, mu), MX2(LOSS, penalty=0.5, clients=20)
        promise = prediction(name, known=own).cost
        least = lower_bounds(block_constants(objective, own), 100, 1e-6)
        assert promise.rounds > least.rounds
        assert promise.shared_gradients > least.shared_gradients
        assert promise.personal_gradients > least.personal_gradients


def test_few_rounds_where_little_is_shared():
    """Theorem 7: rounds follow sqrt(L^w), so a hundredth of the penalty takes about a tenth of them."""
    strong, weak = (
        prediction("acd_pfl", MX2(LOSS, penalty=penalty, clients=20), known=constants(1.0, 1e-3)).cost.rounds
        for penalty in (1.0, 0.01)
    )
    assert strong / weak == pytest.approx(10, rel=0.05)


def test_nothing_is_promised_beyond_the_theorem():
    for settings in ({"step_size": 0.1}, {"momentum": 0.1}, {"mirror_step": 0.1}, {"anchor": 0.25}):
        assert prediction("asvrcd_pfl", **settings) is None
    for settings in ({"shared_probability": 0.5}, {"refresh_probability": 0.1}, {"batch_size": 0}):
        assert prediction("asvrcd_pfl", **settings) is not None
    for name in ("scd_pfl", "ascd_pfl", "svrcd_pfl"):
        assert prediction(name) is None
    own, objective = constants(), LocalOnly(LOSS)
    known = block_constants(objective, own)
    for step_size, promised in ((5.0, True), (5.1, False)):  # 1/(4 * 0.05) = 5
        algorithm = LSGDPFL(objective, step_size=step_size, clients=20)
        assert (predict(ALGORITHMS["lsgd_pfl"].theory, algorithm, own, known, 100, 1e-6) is not None) is promised
    flat = dataclasses.replace(known, strong_convexity=0.0)
    assert (
        predict(ALGORITHMS["lsgd_pfl"].theory, LSGDPFL(objective, step_size=1.0, clients=20), own, flat, 100, 1e-6)
        is None
    )


def test_a_strong_convexity_by_hand_is_relied_on():
    exact, bold = prediction("acd_pfl"), prediction("acd_pfl", strong_convexity=0.01)
    assert bold.iterations < exact.iterations


def test_acd_pfl_keeps_its_promise(regression, train):
    """Run for as many rounds as predicted: the gap, of beta at its best w, is at most eps of the start's."""
    loss, rows = regression(3)
    objective, own = MX2(loss, penalty=0.5, clients=rows.clients), client_constants(loss, rows)
    algorithm = ALGORITHMS["acd_pfl"].algorithm(objective, clients=rows.clients)
    filled, _ = from_theory(ALGORITHMS["acd_pfl"].theory, algorithm, own, 12)
    promise = predict(ALGORITHMS["acd_pfl"].theory, filled, own, block_constants(objective, own), 12, 1e-4)
    problem = joint_problem(objective, rows)
    best = problem.optimum()
    zero = [np.zeros_like(leaf) for leaf in best.personal.values()]
    start = problem.value((), dict(zip(best.personal, zero))) - best.value
    reached = train(filled, rows, math.ceil(promise.cost.rounds))
    assert problem.value((), reached) - best.value <= 1e-4 * start
    early = train(filled, rows, 2)
    assert problem.value((), early) - best.value > 1e-4 * start
