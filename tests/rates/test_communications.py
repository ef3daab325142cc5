# SPDX-License-Identifier: Apache-2.0
"""Communications to a relative gap of 1e-8, by the ledger, on drawn quadratics.

MX2 with random quadratics, eigenvalues log-uniform in [mu', 1]. Expected, for the last three of (M, d, lam, mu') =
(10,5,0.5,0.01), (10,5,0.02,1e-3), (20,5,0.5,1e-4), (20,5,0.002,1e-3): ACD-PFL about 35, 120, 12, gradient descent 1099,
230, 3807. So the factor 5 belongs to the second and the fourth, where F really is badly conditioned: the third's strong
pull leaves a condition number of 65, whatever mu' says.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from idiolect.algorithms import ACDPFL, ALGORITHMS, LSGDPFL
from idiolect.algorithms.block_descent import SAMPLE
from idiolect.algorithms.schedule import iterations_before_message
from idiolect.core.data import Rows
from idiolect.core.keys import step_key
from idiolect.core.settings import settings
from idiolect.data.federation import Federation
from idiolect.data.problem import federate
from idiolect.data.task import Task
from idiolect.engines.simulate import Options, Training, open_session
from idiolect.models import Linear
from idiolect.objectives import MX2, ClientLoss
from idiolect.theory.complexity import predict
from idiolect.theory.constants import Constants, block_constants, client_constants
from idiolect.theory.joint import JointProblem, joint_problem
from idiolect.theory.parameters import from_theory

GAP, FEATURES, SEEDS = 1e-8, 5, range(4)
BADLY_CONDITIONED = {"lam = 0.02": (10, 0.02, 1e-3), "lam = 0.002": (20, 0.002, 1e-3)}
WELL_CONDITIONED = (20, 0.5, 1e-4)


class CheckA(NamedTuple):
    """One of the problems: F, what is known of it, and its true spectrum."""

    objective: MX2
    federation: Federation
    constants: Constants
    value: JointProblem
    best: float
    start: float  # F - F* at zero
    spectrum: np.ndarray  # of F's Hessian in (w, beta)

    @property
    def clients(self):
        return self.federation.train.clients

    def measure(self, lane, where):
        """The relative gap, where a lane stands."""
        return {"gap": (self.value.value(where.shared, where.personal) - self.best) / self.start}


@functools.cache
def check_a(clients, penalty, mu):
    draw = np.random.default_rng(0)
    hessians = []
    for _ in range(clients):
        basis, _ = np.linalg.qr(draw.normal(size=(FEATURES, FEATURES)))
        hessians.append(basis * np.exp(draw.uniform(np.log(mu), 0, FEATURES)) @ basis.T)
    # d rows with X'X/d = H, and targets X v: f'_m(v_m) = 0 at a random v_m
    inputs = np.array([np.linalg.cholesky(h).T for h in hessians]) * FEATURES**0.5
    targets = np.einsum("mnd,md->mn", inputs, draw.normal(size=(clients, FEATURES)))
    rows = Rows(np.concatenate(inputs), targets.ravel(), np.arange(clients + 1) * FEATURES)
    loss = ClientLoss(model=Linear(FEATURES, bias=False), criterion="squared")
    objective = MX2(loss, penalty=penalty, clients=clients)
    value = joint_problem(objective, rows)
    best = value.optimum()
    zero = jax.tree.map(np.zeros_like, (best.shared, best.personal))
    return CheckA(
        objective,
        federate(rows, Task.regression(1), ""),
        client_constants(loss, rows),
        value,
        best.value,
        value.value(*zero) - best.value,
        np.linalg.eigvalsh(_hessian(hessians, penalty)),
    )


def _hessian(hessians, penalty):
    """Of F: w has lam/M, beta_m has (H_m + lam)/M, and both together -lam M^{-1/2}/M."""
    clients, one = len(hessians), np.eye(FEATURES)
    whole = np.kron(np.eye(clients + 1), penalty * one)
    for m, own in enumerate(hessians, 1):
        here = slice(m * FEATURES, (m + 1) * FEATURES)
        whole[here, here] += own
        whole[here, :FEATURES] = whole[:FEATURES, here] = -penalty * clients**-0.5 * one
    return whole / clients


def histories(problem, algorithms, seeds, rounds, every=1):
    """One history per lane, the gap in every row."""
    training = Training(rounds=rounds, record_every=every, precision="float64", executor="batched")
    session = open_session(
        algorithms, problem.federation, training, seeds, ("squared_error",), Options(measure=problem.measure)
    )
    session.train()
    return [recorder.history for recorder in session.recorders]


def communications(problem, history):
    """Uploads per client, by the ledger, until the gap is reached for the first time; None where it is not."""
    reached = (row["messages_up"] for row in history if row["gap"] <= GAP)
    uploads = next(reached, None)
    return None if uploads is None else uploads // problem.clients


def mean_of_acd(problem, algorithm, rounds):
    counts = [communications(problem, own) for own in histories(problem, [algorithm] * len(SEEDS), SEEDS, rounds)]
    assert None not in counts, counts
    return float(np.mean(counts))


def acd(problem, cls=ACDPFL, **given):
    algorithm = cls(problem.objective, clients=problem.clients, **given)
    return from_theory(ALGORITHMS["acd_pfl"].theory, algorithm, problem.constants, FEATURES)[0]


def gradient_descent(problem, step_size):
    """LSGD-PFL with one exact step per round: w - eta grad_w F and beta - eta grad_beta F."""
    return LSGDPFL(problem.objective, clients=problem.clients, local_steps=1, batch_size=0, step_size=step_size)


def gaps_of_gradient_descent(problem, rounds):
    """After `rounds` communications, with the two constant steps one may call best: 1/L and 2/(L + mu)."""
    least, largest = problem.spectrum[[0, -1]]
    steps = [gradient_descent(problem, step) for step in (1 / largest, 2 / (largest + least))]
    last = [own[-1] for own in histories(problem, steps, [0, 0], rounds, every=rounds)]
    assert all(row["messages_up"] == rounds * problem.clients for row in last)
    return [row["gap"] for row in last]


@pytest.mark.parametrize("which", BADLY_CONDITIONED)
def test_acd_needs_five_times_fewer_than_gradient_descent_where_kappa_is_large(which):
    problem = check_a(*BADLY_CONDITIONED[which])
    assert problem.spectrum[-1] / problem.spectrum[0] > 200
    count = mean_of_acd(problem, acd(problem), 60)
    # another program found about 35 and 12, on draws of its own
    assert {"lam = 0.02": 20, "lam = 0.002": 7}[which] < count < {"lam = 0.02": 55, "lam = 0.002": 20}[which]
    # gradient descent falls monotonically: what it has not reached at five times the count, it needs more for
    assert min(gaps_of_gradient_descent(problem, int(5 * count))) > 1000 * GAP
    # and in the end it gets there: the other program, after 1099 and 3807
    assert gaps_of_gradient_descent(problem, 4500)[0] < GAP


@pytest.mark.parametrize("which", BADLY_CONDITIONED)
def test_acd_keeps_its_promise(which):
    problem = check_a(*BADLY_CONDITIONED[which])
    algorithm = acd(problem)
    blocks = block_constants(problem.objective, problem.constants)
    promised = predict(ALGORITHMS["acd_pfl"].theory, algorithm, problem.constants, blocks, FEATURES, GAP).cost.rounds
    count = mean_of_acd(problem, algorithm, 60)
    assert count < promised < 8 * count  # a bound, and one that says something


def test_where_kappa_is_small_the_gain_is_too():
    """The promise rests on mu'/(3M), 700 times below the truth here; with the true mu, ACD is ahead all the same."""
    problem = check_a(*WELL_CONDITIONED)
    assert problem.spectrum[-1] / problem.spectrum[0] < 100
    count = mean_of_acd(problem, acd(problem, strong_convexity=float(problem.spectrum[0])), 120)
    assert min(gaps_of_gradient_descent(problem, int(2 * count))) > GAP
    assert min(gaps_of_gradient_descent(problem, 800)) < GAP


@settings
class SwappedCoin(ACDPFL):
    """E002-1, as printed: the coin that should sample beta samples w."""

    def _schedule(self, key: Any, refresh_due: Any) -> tuple[Any, Any]:
        return iterations_before_message(step_key(key, 0), 1 - self.coefficients.shared_probability), np.int32(SAMPLE)


@pytest.mark.parametrize("which", BADLY_CONDITIONED)
def test_the_printed_coin_diverges(which):
    """p_w is far below 1/2: the steps of w, made for rare ones, overshoot. Another program saw it in 6 of 9 runs."""
    problem = check_a(*BADLY_CONDITIONED[which])
    for history in histories(problem, [acd(problem, SwappedCoin)] * len(SEEDS), SEEDS, 100, every=100):
        assert history[-1]["gap"] > 1e6
