# SPDX-License-Identifier: Apache-2.0
"""Printed forms of the five papers beside the corrected ones, in plain NumPy; docs/errata.md names these tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from idiolect.models import WordLSTM
from idiolect.theory.step_sizes import lsgd_pfl_step


def local_sgd_round(w, curvature, optima, *, step_size, outer, steps):
    """One round of local SGD on (curvature/2)(v - optimum)^2, outer step on the mean movement."""
    copies = np.full(len(optima), w)
    for _ in range(steps):
        copies = copies - step_size * curvature * (copies - optima)
    return w + outer * (copies - w).mean()


def test_minibatch_sgd_is_a_limit_of_local_sgd_and_not_its_value_at_0():
    # E000-1: printed "eta = 0 recovers minibatch SGD with step beta"; the right limit has beta eta K fixed
    curvature, optima, steps, whole = np.array([1.0, 0.2]), np.array([2.0, -1.0]), 5, 0.3
    target = 1.0 - whole * (curvature * (1.0 - optima)).mean()

    def end(step_size, outer):
        return local_sgd_round(1.0, curvature, optima, step_size=step_size, outer=outer, steps=steps)

    assert end(0.0, whole) == 1.0  # nothing moves
    gaps = [abs(end(eta, whole / (steps * eta)) - target) for eta in (1e-2, 1e-4)]
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


def test_the_weights_of_scafflix_sum_to_one_with_the_index_of_the_sum():
    # E001-3: alpha_i^2/gamma_i inside the sum over j weighs nothing: it gives every i another multiple of the mean
    alpha, gamma = np.array([0.2, 0.5, 1.0]), np.array([1.0, 0.4, 0.1])
    server = 1 / (alpha**2 / gamma).mean()
    assert server / 3 * (alpha**2 / gamma).sum() == pytest.approx(1)
    printed = server / 3 * (3 * alpha**2 / gamma)  # the sum over j of client i's own ratio
    assert np.abs(printed - 1).min() > 0.4


def test_the_step_of_lsgd_pfl_needs_the_smoothness_of_w_too():
    # E002-13: F = (L^w/2) w^2 + (L^beta/2) beta^2, tau = 1; printed 1/(4 L^beta) multiplies w by 1 - 25
    shared, personal = 1.0, 0.01
    for step_size, grows in ((1 / (4 * personal), True), (lsgd_pfl_step(shared, personal, 1), False)):
        w = 1.0
        for _ in range(10):
            w -= step_size * shared * w
        assert (abs(w) > 1e13) == grows
        assert (abs(w) < 1) != grows


def test_k_times_the_first_gradient_is_not_sgd():
    # E003-1: with K = 5 and eta h = 0.6, iterated steps leave 0.4^5, the printed sum jumps to 1 - 3
    v, steps, product = 1.0, 5, 0.6
    for _ in range(steps):
        v -= product * v
    assert v == pytest.approx(0.4**5)
    assert abs(1.0 - steps * product * 1.0) > 1  # farther from the optimum than the start


def test_the_printed_mean_of_flow_shrinks_the_model():
    # E003-2: n_m/(nM) with n = sum n_m; clients that all agree on 1 send the server to 1/M, M^-R after R rounds
    rows = np.array([3.0, 5.0, 2.0, 6.0])
    model = 1.0
    for _ in range(3):
        model = (rows * model).sum() / (rows.sum() * len(rows))
    assert model == pytest.approx(4.0**-3)
    assert (rows * 1.0).sum() / rows.sum() == 1


@pytest.mark.parametrize(("bound", "steps", "rounds"), [(1, 1, 1), (1, 10, 500), (3, 3, 2)])
def test_theorem_4_1_of_flow_leaves_no_step(bound, steps, rounds):
    # E003-3: 1/(2 beta) <= eta <= 1/(2 sqrt(5) beta B K^2 sqrt(R)), and B, K, R are at least 1
    assert 1 / (2 * math.sqrt(5) * bound * steps**2 * math.sqrt(rounds)) < 1 / 2


def test_rounding_both_probabilities_of_a_route_can_choose_none():
    # E003-4: at a tie both entries round to 0 and the layer is gone; a threshold keeps one of them
    tie = np.array([0.5, 0.5])
    assert np.round(tie).sum() == 0
    chosen = tie[1] > 0.5
    assert [1 - chosen, int(chosen)] == [1, 0]


def test_the_stated_lstm_of_flow_is_not_as_large_as_table_4_says():
    # E003-5: embedding 96, hidden 670, 10,004 words: 72.38 M is 18 times too much, and psi is 22 % of it, not 1.23 %
    embedding, hidden, words = 96, 670, 10_004
    count = (
        words * embedding + 4 * hidden * (embedding + hidden + 1) + embedding * (hidden + 1) + words * (embedding + 1)
    )
    assert count == 4_050_748
    assert (WordLSTM(words, words).embedding, WordLSTM(words, words).hidden) == (embedding, hidden)
    assert 72.38e6 / count > 17
    assert 0.891e6 / count == pytest.approx(0.22, abs=0.005)


def test_the_loss_of_the_mixture_does_not_train_the_shared_half():
    # E003-8: f = (1/2)(v - 1)^2, w_p = (w_g + w_l)/2 with w_l fitted first. By equation 5 the mixture gets perfect and
    # w_g stays what it was: half of a mixture is no model. Its own loss makes it one.
    def shared_half(own_loss):
        shared = -1.0
        for _ in range(50):
            local = 2.0 - shared  # the local half that makes the mixture perfect
            for _ in range(3):
                mixed = (shared + local) / 2
                shared -= 0.3 * ((shared - 1) if own_loss else (mixed - 1) / 2)
        return shared

    assert shared_half(own_loss=False) == pytest.approx(-1.0)
    assert shared_half(own_loss=True) == pytest.approx(1.0)


def bayes_risk(noise, samples, grid=400):
    """Mean of (1/2)(x - p)^2 of the best estimator that knows p + n, n uniform on [-noise, noise], and the tosses."""
    places = (np.arange(grid) + 0.5) / grid  # p is uniform on [0, 1]
    counts = np.arange(samples + 1)
    chance = binom.pmf(counts[:, None], samples, places)  # of each count, for each p
    before, total = np.concatenate([[0], np.cumsum(np.ones(grid))]), 0.0
    sums = [np.concatenate([np.zeros((len(counts), 1)), np.cumsum(chance * places**k, axis=1)], 1) for k in (0, 1, 2)]
    wide = round(noise * grid)
    for told in range(-wide, grid + wide):  # p + n lies in this cell: p is one of the cells within `wide` of it
        low, high = max(told - wide, 0), min(told + wide, grid)
        zeroth, first, second = (one[:, high] - one[:, low] for one in sums)
        spread = second - np.divide(first**2, zeroth, out=np.zeros_like(first), where=zeroth > 0)
        total += spread.sum() / (2 * wide) / before[-1]
    return total / 2


@pytest.mark.parametrize(("noise", "least"), [(0.32, 8.01e-5), (0.5, 8.10e-5)])
def test_no_estimator_can_gain_by_noisy_places_at_1000_samples(noise, least):
    # E004-8: figure 1(b) shows a gain there; the best possible one is 4 %, and at 3 samples 2.5 to 3.5 times
    alone = 1 / 6 / 1000 / 2
    assert bayes_risk(noise, 1000) == pytest.approx(least, rel=5e-3)
    assert bayes_risk(noise, 1000) > 0.95 * alone
    assert 1 / 6 / 3 / 2 / bayes_risk(noise, 3) > 2.3
