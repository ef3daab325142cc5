# SPDX-License-Identifier: Apache-2.0
"""What the reproductions of All-for-all 2022 share: lanes of all-for-all on one problem, read at chosen rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from idiolect import Algorithm, LocalOnly
from idiolect.algorithms import AllForAll, AllForAllAdaptive
from idiolect.core import mixing
from idiolect.core.mixing import Discrepancies, Phases
from idiolect.data import Problem
from papers import lanes
from papers.problems import problem_loss


def streaming(problem: Problem, b: np.ndarray, phases: Phases) -> AllForAllAdaptive:
    """Time-adaptive all-for-all on fresh rows, one per agent and round."""
    settings: dict[str, Any] = {"phases": phases, "batch_size": 1, "order": "stream"}
    return AllForAllAdaptive(LocalOnly(problem_loss(problem)), discrepancies=all_known(b), **settings)


def all_for_all(problem: Problem, neighbours: mixing.Neighbours, step_size: float, **settings: Any) -> AllForAll:
    """All-for-all with given neighbours on a problem's own losses."""
    return AllForAll(LocalOnly(problem_loss(problem)), neighbours=neighbours, step_size=step_size, **settings)


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
    seed: int = 0,
    cohort: int = 0,
) -> np.ndarray:
    """What `of` makes of all models, (lanes, agents, dimension), after the rounds `at`: (lanes, rounds, ...).

    All lanes are one program. All agents, or a cohort of them, take part in every round and begin at `start` in every
    coordinate.
    """
    shape = (len(algorithms), problem.clients, problem.dimension)

    def read(server: Any, states: Any) -> np.ndarray:
        (leaf,) = server.models.values()
        return of(np.asarray(leaf).reshape(shape))

    seen = lanes.walk(
        algorithms,
        problem.federation,
        at,
        read,
        seeds=[seed] * len(algorithms),
        cohort=cohort,
        begin=lambda server: server._replace(models=jax.tree.map(lambda leaf: leaf + start, server.models)),
    )
    return np.stack(seen, axis=1)


def true_means(problem: Problem) -> np.ndarray:
    """What the rows were drawn from: (agents, dimension)."""
    assert problem.truth is not None
    return problem.truth


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
