# SPDX-License-Identifier: Apache-2.0
"""What the reproductions of paper 000 share: its two algorithms on a problem, watched by step or by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.personalized_local_sgd import PersonalizedLocalSGD
from idiolect.core.batched import Batched
from idiolect.data.problem import Problem
from idiolect.engines.debug import Event, debug
from idiolect.engines.door import Training, run_precision
from idiolect.engines.simulate import Session
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.spec import ModelSpec
from idiolect.metrics.optimum import consensus_error
from idiolect.objectives import Additive, ClientLoss, GlobalModel

PRECISION = "float64"
SCORE = ("squared_error",)  # engines want a score to record; nothing here is read from it


class Walk(NamedTuple):
    """Every local iterate: (rounds, K + 1, clients, dimension), the first of each round as received."""

    shared: np.ndarray  # w_m
    models: np.ndarray  # w_m + theta_m; w_m where nothing is personal
    server: np.ndarray  # (rounds + 1, dimension): w before the first and after every round


def client_loss(problem: Problem) -> ClientLoss:
    """f'_m of a synthetic problem."""
    return build_client_loss(ModelSpec(), problem.federation, problem)


def local_sgd(problem: Problem, **settings: Any) -> LocalSGD:
    """Algorithm 2 on one model for everybody."""
    return LocalSGD(GlobalModel(client_loss(problem)), **settings)


def personalized(problem: Problem, **settings: Any) -> PersonalizedLocalSGD:
    """Algorithm 1 on a shared model and a correction per client."""
    return PersonalizedLocalSGD(Additive(client_loss(problem)), **settings)


def every_step(algorithm: Batched, problem: Problem, rounds: int) -> Walk:
    """Run in the debug engine, which shows every local step, and keep all of them."""
    steps = algorithm.local_steps
    shape = (rounds, steps + 1, problem.clients, problem.dimension)
    shared, models = np.full(shape, np.nan), np.full(shape, np.nan)
    server = np.full((rounds + 1, problem.dimension), np.nan)

    def observe(event: Event) -> None:
        if event.stage in ("receive", "step"):
            place = (event.round, event.t + 1, event.client)
            shared[place] = _vector(event.value.shared)
            models[place] = shared[place] + _vector(getattr(event.value, "personal", None), problem.dimension)
        elif event.stage == "broadcast":
            server[event.round] = _vector(event.value.shared)
        elif event.stage == "server_step":
            server[event.round + 1] = _vector(event.value.shared)

    debug(algorithm, problem.federation, Training(rounds=rounds, precision=PRECISION), observe=observe)
    return Walk(shared, models, server)


def consensus_errors(walk: Walk) -> np.ndarray:
    """xi_t = mean_m |w_m,t - wbar_t|^2 for t = 0 .. KR - 1, at multiples of K after communication: (rounds, K)."""
    before_each_step = walk.shared[:, :-1]
    with jax.enable_x64(True):
        errors = jax.vmap(consensus_error)(before_each_step.reshape(-1, *before_each_step.shape[2:]))
    return np.asarray(errors).reshape(before_each_step.shape[:2])


def every_round(
    algorithms: Sequence[PersonalizedLocalSGD],
    problem: Problem,
    rounds: int,
    seeds: Sequence[int],
) -> np.ndarray:
    """w + theta_m after every round, all lanes as one compiled program: (lanes, rounds + 1, clients, dimension)."""
    training = Training(rounds=rounds, precision=PRECISION, executor="batched", block=1)
    session = Session(algorithms, problem.federation, training, seeds, SCORE, None)
    seen = [_models(session, problem)]
    with run_precision(PRECISION):
        # block by block rather than `train`: a ledger and scores per lane and round would take longer than the rounds
        for number in range(rounds):
            session.server, states, _ = session.block(number, 1, session.training)
            session.population.scatter(states)
            seen.append(_models(session, problem))
    return np.stack(seen, axis=1)


def _models(session: Session, problem: Problem) -> np.ndarray:
    """w + theta_m as it stands: (lanes, clients, dimension)."""
    ((_, states, _),) = session.population.parts()  # in memory there is one part, everybody
    lanes = len(session.seeds)
    shared = np.asarray(_leaf(session.server.shared)).reshape(lanes, 1, problem.dimension)
    return shared + np.asarray(_leaf(states.personal)).reshape(lanes, problem.clients, problem.dimension)


def squared_errors(models: np.ndarray, problem: Problem) -> np.ndarray:
    """mean_m |v_m - v*_m|^2 over the last two axes."""
    assert problem.optimum is not None
    return ((models - problem.optimum) ** 2).sum(axis=-1).mean(axis=-1)


def radius(problem: Problem) -> float:
    """B: the largest |v*_m|."""
    assert problem.optimum is not None
    return float(np.linalg.norm(problem.optimum, axis=1).max())


def part(progress: Callable[[str, int, int], None], label: str, total: int) -> Callable[[], None]:
    """A counter that reports one more part of `total` done at each call."""
    done = iter(range(1, total + 1))
    return lambda: progress(label, next(done), total)


def _leaf(params: Mapping[str, Any]) -> Any:
    (leaf,) = params.values()  # linear and location problems have one block of parameters
    return leaf


def _vector(params: Any, dimension: int = 0) -> np.ndarray:
    return np.zeros(dimension) if params is None else np.asarray(_leaf(params), np.float64)
