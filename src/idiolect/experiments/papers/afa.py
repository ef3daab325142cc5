# SPDX-License-Identifier: Apache-2.0
"""What the reproductions of paper 004 share: lanes of all-for-all on one problem, read at chosen rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from idiolect.algorithms import AllForAllAdaptive
from idiolect.core import mixing
from idiolect.core.algorithm import Algorithm
from idiolect.core.mixing import Discrepancies, Phases
from idiolect.data.problem import Problem
from idiolect.engines.door import Training, run_precision
from idiolect.engines.simulate import Session
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.spec import ModelSpec
from idiolect.objectives import LocalOnly

PRECISION = "float64"
SCORE = ("squared_error",)  # engines want a score to record; nothing here is read from it


def streaming(problem: Problem, b: np.ndarray, phases: Phases) -> AllForAllAdaptive:
    """Time-adaptive all-for-all on fresh rows, one per agent and round."""
    loss = build_client_loss(ModelSpec(), problem.federation, problem)
    known = mixing.discrepancies_from_dense(b, dense=True)
    return AllForAllAdaptive(LocalOnly(loss), discrepancies=known, phases=phases, batch_size=1, order="stream")


def by_round(phases: Phases, rounds: int) -> Phases:
    """The same schedule with a phase per round: lanes of unlike schedules then share one program."""
    numbers = np.arange(rounds)
    place = np.searchsorted(phases.end[:-1], numbers, side="right")
    return Phases(phases.accuracy[place], phases.step_size[place], (numbers + 1).astype(np.int32))


def walk(
    algorithms: Sequence[Algorithm],
    problem: Problem,
    at: Sequence[int],
    start: float = 0.0,
    of: Callable[[np.ndarray], np.ndarray] = lambda models: models,
) -> np.ndarray:
    """What `of` makes of all models, (lanes, agents, dimension), after the rounds `at`: (lanes, rounds, ...).

    All lanes are one program. Everybody takes part in every round and begins at `start` in every coordinate.
    """
    length = int(np.diff(at, prepend=0).max())
    training = Training(rounds=max(at), precision=PRECISION, executor="batched", block=length)
    session = Session(algorithms, problem.federation, training, [0] * len(algorithms), SCORE, None)
    seen, done = [], 0
    with run_precision(PRECISION):
        models = jax.tree.map(lambda leaf: leaf + start, session.server.models)
        session.server = session.server._replace(models=models)
        for stop in at:
            # block by block rather than `train`: scores of every lane at every stop would take longer than the rounds
            session.server, states, _ = session.block(done, stop - done, session.training)
            session.population.scatter(states)
            done = stop
            (leaf,) = session.server.models.values()
            seen.append(of(np.asarray(leaf).reshape(len(algorithms), problem.clients, problem.dimension)))
    return np.stack(seen, axis=1)


def excess(models: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """mean_i (1/2) |x_i - mean_i|^2 over the last two axes: F of mean estimation; infinite for runs that diverged."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.5 * ((models - truth) ** 2).sum(axis=-1).mean(axis=-1)


def squared_distances(places: np.ndarray) -> np.ndarray:
    """b_ij = (1/2) |theta_i - theta_j|^2: what j's best model costs agent i in mean estimation."""
    places = places.reshape(len(places), -1)
    return 0.5 * ((places[:, None] - places[None]) ** 2).sum(axis=2)


def stops(rounds: int, named: Sequence[int], number: int = 40) -> list[int]:
    """Rounds to look at: the named ones and others between, evenly on a logarithmic axis."""
    between = np.unique(np.round(np.geomspace(1, rounds, number)).astype(int))
    return sorted({*between.tolist(), *named})


def all_known(b: np.ndarray) -> Discrepancies:
    """b as a matrix."""
    return mixing.discrepancies_from_dense(b, dense=True)


def quartiles(draws: np.ndarray) -> tuple[Any, Any]:
    """The band between the quarter and three quarters of the draws, along the first axis."""
    return np.quantile(draws, 0.25, axis=0), np.quantile(draws, 0.75, axis=0)
