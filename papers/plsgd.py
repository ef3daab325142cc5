# SPDX-License-Identifier: Apache-2.0
"""What the reproductions of PLSGD 2023 share: its two algorithms on a problem, watched by step or by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect import Additive, Batched, GlobalModel, Training, debug
from idiolect.algorithms import LocalSGD, PersonalizedLocalSGD
from idiolect.data import Problem
from idiolect.engines.debug import Event
from idiolect.metrics import consensus_error
from papers import lanes
from papers.lanes import PRECISION
from papers.problems import problem_loss


class Walk(NamedTuple):
    """Every local iterate: (rounds, K + 1, clients, dimension), the first of each round as received."""

    shared: np.ndarray  # w_m
    models: np.ndarray  # w_m + theta_m; w_m where nothing is personal
    server: np.ndarray  # (rounds + 1, dimension): w before the first and after every round


def local_sgd(problem: Problem, **settings: Any) -> LocalSGD:
    """Algorithm 2 on one model for everybody."""
    return LocalSGD(GlobalModel(problem_loss(problem)), **settings)


def personalized(problem: Problem, **settings: Any) -> PersonalizedLocalSGD:
    """Algorithm 1 on a shared model and a correction per client."""
    return PersonalizedLocalSGD(Additive(problem_loss(problem)), **settings)


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
    count = len(algorithms)

    def read(server: Any, states: Any) -> np.ndarray:
        shared = np.asarray(_leaf(server.shared)).reshape(count, 1, problem.dimension)
        return shared + np.asarray(_leaf(states.personal)).reshape(count, problem.clients, problem.dimension)

    return np.stack(lanes.walk(algorithms, problem.federation, range(rounds + 1), read, seeds=seeds), axis=1)


def squared_errors(models: np.ndarray, problem: Problem) -> np.ndarray:
    """mean_m |v_m - v*_m|^2 over the last two axes."""
    assert problem.optimum is not None
    return ((models - problem.optimum) ** 2).sum(axis=-1).mean(axis=-1)


def radius(problem: Problem) -> float:
    """B: the largest |v*_m|."""
    assert problem.optimum is not None
    return float(np.linalg.norm(problem.optimum, axis=1).max())


def _leaf(params: Mapping[str, Any]) -> Any:
    (leaf,) = params.values()  # linear and location problems have one block of parameters
    return leaf


def _vector(params: Any, dimension: int = 0) -> np.ndarray:
    return np.zeros(dimension) if params is None else np.asarray(_leaf(params), np.float64)
