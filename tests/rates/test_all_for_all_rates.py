# SPDX-License-Identifier: Apache-2.0
"""The theory of All-for-all 2022: corrected steps, phases, sample sizes, and the printed rate that does not hold."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS, AllForAll, AllForAllNaive, AllForOne
from idiolect.core import mixing
from idiolect.core.data import Rows
from idiolect.models import Location
from idiolect.objectives import ClientLoss, GlobalModel, LocalOnly
from idiolect.theory import all_for_all as theory
from idiolect.theory.constants import client_constants
from idiolect.theory.parameters import from_theory
from idiolect.theory.step_sizes import advise

PLACES = np.array([0.0, 0.125, 0.25, 0.875])  # exact in binary, so that <= is put to the test
B = 0.5 * (PLACES[:, None] - PLACES[None]) ** 2  # 1/128 between neighbours, 1/32, and 0.19 or more to the last


def test_steps():
    assert theory.stable_step(2.0, 25.0) == 0.01
    # N eps/(2 B^2 Ssum): 4 * 0.1/(2 * 0.5 * 2.5)
    assert theory.asynchronous_step(0.1, 0.5, 4, 2.5) == pytest.approx(0.16)
    known = {"smoothness": 2.0, "strong_convexity": 0.5, "agents": 4, "shares": 2.0, "spectral_radius": 1.5}
    # mu N eps/(4 L sigma^2 Ssum) = 0.5 * 4 * 0.1/(4 * 2 * 0.25 * 2) = 0.05; 1/(2 * 2 * 1.5) = 1/6
    assert theory.synchronous_step(0.1, noise=0.25, **known) == pytest.approx(0.05)
    assert theory.synchronous_step(0.1, noise=0.0, **known) == pytest.approx(1 / 6)
    assert theory.synchronous_step(100.0, noise=0.25, **known) == pytest.approx(1 / 6)


def test_samples_bounds_and_savings():
    # (4 D^2 B^2/eps^2) Ssum; with as many samples K = T/N the bound sqrt(B^2 D^2 Ssum/T) is eps/2
    accuracy, radius, moment, shares = 0.1, 0.7, 0.3, 2.5
    samples = theory.asynchronous_samples(accuracy, radius, moment, shares)
    assert samples == pytest.approx(4 * 0.49 * 0.3 / 0.01 * 2.5)
    assert math.sqrt(moment * radius**2 * shares / samples) == pytest.approx(accuracy / 2)
    # E004-6: the saving is the harmonic mean, below the arithmetic one
    assert theory.saving([1, 2, 4]) == pytest.approx(3 / (1 + 1 / 2 + 1 / 4))


def test_the_printed_rate_is_too_fast():
    """E004-5: two equal quadratics, b = 0, eta = 1/2: F^40/F^0 = 2.0e-3, printed exp(-20) = 2.1e-9."""
    weights = np.array([[0.1, 0.9], [0.0, 1.0]])
    x = np.ones(2)
    for _ in range(40):
        x = x - 0.5 * weights @ weights.T @ x
    assert (x**2).sum() / 2 == pytest.approx(2.0e-3, rel=0.02)
    assert theory.contraction(1.0, 0.5, weights) ** 40 >= (x**2).sum() / 2  # and the corrected one is a bound
    assert theory.contraction(1.0, 0.5, np.eye(2)) == 0.5
    assert theory.contraction(1.0, 0.5, np.full((2, 2), 0.5)) == pytest.approx(0.5)


@pytest.mark.parametrize("dense", [False, True])
def test_neighbourhoods_bias_and_doubling(dense):
    b = mixing.discrepancies_from_dense(B, dense=dense)
    np.testing.assert_array_equal(theory.neighbourhood_counts(b, 1 / 64), [2, 3, 2, 1])  # <= in the count
    weights = mixing.dense(theory.neighbours_within(b, 1 / 64))
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])
    assert theory.bias(weights, B) == pytest.approx((1 / 2 + 2 / 3 + 1 / 2) / 128 / 4)
    phases = theory.doubling(b, 100, first_accuracy=1 / 16, smoothness=1.0, strong_convexity=1.0, noise=0.25)
    np.testing.assert_allclose(phases.accuracy, 0.5**4 * 0.5 ** np.arange(len(phases.end)))
    # eps_0 = 1/16: N_i = 3, 3, 3, 1, Lambda is doubly stochastic: min(1/2, 4/16/(4 * 0.25 * 2)) = 1/8
    assert phases.step_size[0] == pytest.approx(1 / 8)
    assert phases.end[0] == math.ceil(math.log(4) * 8)
    lengths = np.diff(phases.end, prepend=0)
    np.testing.assert_array_equal(lengths, np.ceil(math.log(4) / phases.step_size))
    assert phases.end[-2] < 100 <= phases.end[-1]
    assert (np.diff(phases.step_size) < 0).all()


def test_the_convex_schedule_and_a_phase_per_round():
    b = mixing.discrepancies_from_dense(B)
    phases = theory.doubling_convex(b, 1000, first_accuracy=1.0, radius=1.0, second_moment=0.5)
    # eps = 1: all are close, Ssum = 1: K = 4 * 0.5 = 2 rounds, eta = 4/(2 * 0.5) = 4 (E004-3)
    assert (phases.end[0], phases.step_size[0]) == (2, 4.0)
    often = theory.one_over_k(b, 50, smoothness=1.0, strong_convexity=1.0, noise=0.25)
    np.testing.assert_array_equal(often.end, np.arange(1, 51))
    rho = theory.spectral_radius(theory.neighbours_within(b, often.accuracy[0]))
    assert often.step_size[0] == pytest.approx(1 / (2 * rho))
    np.testing.assert_allclose(often.step_size[9:], 1 / np.arange(10, 51))
    assert (np.diff(often.accuracy) <= 0).all()
    for k in (10, 30, 50):  # the step in theory of the chosen accuracy is at least 1/k, of the next smaller one less
        steps = {float(e): 4 * e / (4 * 0.25 * (1 / theory.neighbourhood_counts(b, e)).sum()) for e in 2 * np.unique(B)}
        assert often.accuracy[k - 1] == min(e for e, step in steps.items() if step >= 1 / k)


@pytest.fixture(scope="module")
def means():
    """Four agents that estimate a mean from four rows each, variance 1/4."""
    targets = np.concatenate([place + np.array([-0.5, 0.5, -0.5, 0.5]) for place in PLACES])[:, None]
    rows = Rows(np.ones((16, 1)), targets, np.arange(5) * 4)
    return ClientLoss(model=Location(1), criterion="squared"), rows


def test_the_step_is_left_to_theory(means):
    loss, rows = means
    known = client_constants(loss, rows)
    star = np.array([[0.25] * 4, [0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0, 0, 0.5]])
    algorithm = AllForAll(LocalOnly(loss), neighbours=mixing.from_dense(star), clients=4)
    radius = np.linalg.eigvalsh(star @ star.T).max()
    filled, advice = from_theory(ALGORITHMS["all_for_all"].theory, algorithm, known, 4, wanted=["step_size"])
    assert filled.step_size == pytest.approx(1 / (2 * radius))
    assert "1/(2 L rho(W)), rho(W) = " in advice.explanation()
    assert (
        advise(ALGORITHMS["all_for_all"].theory, algorithm, known)
        .warning(0.5)
        .startswith("step_size 0.5 is beyond 1/(2 L rho(W))")
    )
    # eps = 0.01, sigma^2 = 1/4 for one row: mu N eps/(4 L sigma^2 Ssum), N_i = 4, 2, 2, 2
    drawn = dataclasses.replace(algorithm, batch_size=1, target_accuracy=0.01)
    assert advise(ALGORITHMS["all_for_all"].theory, drawn, known).recommended == pytest.approx(
        4 * 0.01 / (4 * 0.25 * 1.75)
    )
    alone = AllForAll(LocalOnly(loss), own_share=1.0, clients=4, batch_size=1, target_accuracy=0.01)
    assert advise(ALGORITHMS["all_for_all"].theory, alone, known).recommended == pytest.approx(0.01)
    naive = AllForAllNaive(LocalOnly(loss), neighbours=mixing.from_dense(star), clients=4, batch_size=1)
    assert advise(ALGORITHMS["all_for_all_naive"].theory, naive, known).recommended == 0.5
    one = AllForOne(
        GlobalModel(loss), neighbours=mixing.from_dense(star), clients=4, batch_size=1, target_accuracy=0.01
    )
    assert advise(ALGORITHMS["all_for_one"].theory, one, known).recommended == pytest.approx(0.04)  # agent 0 has four


def test_noise_is_the_largest_at_the_optima(means):
    loss, rows = means
    assert theory.largest_noise(LocalOnly(loss), rows, 0) == 0
    assert theory.largest_noise(LocalOnly(loss), rows, 1) == pytest.approx(0.25)
    assert theory.largest_noise(LocalOnly(loss), rows, 5) == pytest.approx(0.05)
