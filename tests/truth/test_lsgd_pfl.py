# SPDX-License-Identifier: Apache-2.0
"""LSGD-PFL: the corrected step of E002-6, theorem 1, and its one-block special cases."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import LSGDPFL, Local, LocalSGD, PersonalizedLocalSGD
from idiolect.core import RequestError, settings
from idiolect.core.algorithm import fit_of
from idiolect.core.objective import Objective
from idiolect.objectives import ClientLoss, GlobalModel, LocalOnly

CLIENTS, PENALTY = 20, 0.5


@settings
class Mixture(Objective):
    """MX2 of Unified 2023 in rescaled space: f_m = f'_m(beta) + (lam/2) |beta - u|^2, u = w / sqrt(M)."""

    client_loss: ClientLoss = dataclasses.field(kw_only=False)
    weight: float
    clients: int
    has_shared = True
    has_personal = True

    def init_shared(self, key):
        return self.client_loss.init(key)

    def init_personal(self, key):
        return self.client_loss.init(key)

    def loss(self, key, shared, personal, batch):
        value, statistics = self.client_loss.value(key, personal, batch)
        gap = personal["location"] - shared["location"] / self.clients**0.5
        return value + 0.5 * self.weight * jnp.sum(gap**2), statistics

    def deployed(self, shared, personal):
        return personal

    def predict(self, model, inputs):
        return self.client_loss.predict(model, inputs)


def mixture_problem(lab):
    """(objective, data, optimal w, optimal beta, F): curvatures in [0.5, 1], so L' = 1."""
    draw = np.random.default_rng(11)
    curvatures, optima = draw.uniform(0.5, 1, (CLIENTS, 2)), draw.normal(size=(CLIENTS, 2))
    client_loss, data = lab.quadratic_problem(curvatures, optima)
    # beta_m = (h o + lam u) / (h + lam) and u = mean beta: one linear equation per coordinate
    pull = curvatures + PENALTY
    u = (curvatures * optima / pull).mean(0) / (1 - (PENALTY / pull).mean(0))
    beta = (curvatures * optima + PENALTY * u) / pull

    def value(w, personal):
        own = (curvatures * (personal - optima) ** 2).sum(1)
        return (own + PENALTY * ((personal - w / CLIENTS**0.5) ** 2).sum(1)).mean() / 2

    return Mixture(client_loss, weight=PENALTY, clients=CLIENTS), data, u * CLIENTS**0.5, beta, value


STEP = CLIENTS / (4 * (1 + PENALTY))  # 1 / (4 L^beta) with L^beta = (L' + lam) / M, theorem 1
CONVEXITY = 0.5 / (3 * CLIENTS)  # mu' / (3 M), table 3.2
CORRECTED = {"step_size": STEP, "clients": CLIENTS}


def test_one_step_rounds_reach_the_optimum(lab):
    # contraction at least 1 - eta mu = 1 - 1/36 per round: 2000 rounds leave 1e-24 of the distance
    objective, data, w, beta, _ = mixture_problem(lab)
    run = lab.simulate(LSGDPFL(objective, **CORRECTED), data, 2000)
    np.testing.assert_allclose(lab.flat(run.server.shared), w, rtol=1e-10)
    np.testing.assert_allclose(lab.flat_rows(run.states.personal), beta, rtol=1e-10)


def test_more_local_steps_stop_near_the_optimum(lab):
    objective, data, w, _, _ = mixture_problem(lab)
    run = lab.simulate(LSGDPFL(objective, local_steps=5, **CORRECTED), data, 1000)
    gap = np.linalg.norm(lab.flat(run.server.shared) - w) / np.linalg.norm(w)
    assert 1e-6 < gap < 0.2  # the heterogeneity bias: neither exact nor far


def test_the_printed_personal_step_diverges(lab):
    # without 1/M, beta multiplies by 1 - eta (h + lam) = 1 - (M/4)(h + lam)/(1 + lam), at least 7/3 in size for M = 20
    objective, data, _, beta, _ = mixture_problem(lab)
    printed = PersonalizedLocalSGD(objective, step_size=STEP, personal_step_scale=1.0)
    run = lab.simulate(printed, data, 50)
    assert np.abs(lab.flat_rows(run.states.personal)).max() > 1e12 * np.abs(beta).max()
    # and alpha = 1/M is the corrected algorithm
    corrected = dataclasses.replace(printed, personal_step_scale=1 / CLIENTS)
    one, other = lab.simulate(corrected, data, 50), lab.simulate(LSGDPFL(objective, **CORRECTED), data, 50)
    np.testing.assert_allclose(lab.flat(one.server.shared), lab.flat(other.server.shared), rtol=1e-12)


def test_theorem_1_bounds_the_weighted_average(lab):
    # tau = 1, sigma = 0: F(average) - F* <= (1 - eta mu)^K 2 (|w0 - w*|^2 + sum_m |beta0 - beta*|^2) / eta
    objective, data, w, beta, value = mixture_problem(lab)
    algorithm = LSGDPFL(objective, output="weighted_average", strong_convexity=CONVEXITY, **CORRECTED)
    start = 2 * ((w**2).sum() + (beta**2).sum()) / STEP
    for rounds in (5, 100):
        run = lab.simulate(algorithm, data, rounds)
        shared = lab.flat(algorithm.deliver(None, run.server).shared)
        gap = value(shared, lab.personal_models(algorithm, data, run, rounds)) - value(w, beta)
        assert 0 < gap <= (1 - STEP * CONVEXITY) ** rounds * start


def test_the_weighted_average_survives_weights_that_overflow(lab):
    # 1 - eta mu = 1/2: after 3000 steps the newest weight is 2^3001, past float64. Against the newest only the last
    # 60 iterates matter, and by then the run stands still at its fixed point
    objective, data, w, beta, _ = mixture_problem(lab)
    algorithm = LSGDPFL(objective, output="weighted_average", strong_convexity=0.5 / STEP, **CORRECTED)
    run = lab.simulate(algorithm, data, 3000)
    np.testing.assert_allclose(lab.flat(algorithm.deliver(None, run.server).shared), w, rtol=1e-10)
    np.testing.assert_allclose(lab.personal_models(algorithm, data, run, 3000), beta, rtol=1e-10)


@pytest.mark.parametrize("output", ["last", "weighted_average"])
def test_one_block_is_local_sgd_or_local_training(lab, output):
    client_loss, data, _ = lab.softmax_problem()
    batching = {"local_steps": 3, "batch_size": 2}
    shared = LSGDPFL(GlobalModel(client_loss), step_size=0.3, clients=5, output=output, **batching)
    run = lab.simulate(shared, data, 4)
    plain = lab.simulate(LocalSGD(GlobalModel(client_loss), step_size=0.3, **batching), data, 4)
    np.testing.assert_allclose(lab.flat(run.server.shared), lab.flat(plain.server.shared), rtol=1e-12)
    assert run.tally() == plain.tally()
    np.testing.assert_array_equal(
        lab.flat(shared.shared_model(run.server)), lab.personal_models(shared, data, run, 4)[0]
    )

    personal = LSGDPFL(LocalOnly(client_loss), step_size=1.5, clients=5, output=output, **batching)
    run = lab.simulate(personal, data, 4)
    alone = lab.simulate(Local(LocalOnly(client_loss), step_size=1.5 / 5, **batching), data, 4)
    np.testing.assert_allclose(lab.flat_rows(run.states.personal), lab.flat_rows(alone.states.personal), rtol=1e-12)
    assert run.tally() == alone.tally()
    assert personal.shared_model(run.server) is None


def test_unequal_numbers_of_steps_have_no_weighted_average(lab):
    client_loss, _, _ = lab.softmax_problem()
    algorithm = LSGDPFL(GlobalModel(client_loss), output="weighted_average", epochs=2)
    assert fit_of(algorithm).refused is None  # all rows at once: two steps for every client
    assert "set local_steps instead of epochs" in fit_of(dataclasses.replace(algorithm, batch_size=3)).refused


def test_the_number_of_clients_is_never_guessed(lab):
    client_loss, data, _ = lab.softmax_problem()
    with pytest.raises(RequestError, match=r"LSGDPFL\.clients must be the number of clients M, got 0"):
        lab.simulate(LSGDPFL(GlobalModel(client_loss)), data, 1)
