# SPDX-License-Identifier: Apache-2.0
"""How far a run is from the optimum of its own objective, on problems whose optimum can be solved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from idiolect.core import Objective, Prepares, Rows
from idiolect.core.addressing import address, axes
from idiolect.core.tree import Params
from idiolect.engines.evaluate import Standing
from idiolect.metrics.optimum import distance_to_optimum, suboptimality
from idiolect.objectives import Additive, GlobalModel, LocalOnly
from idiolect.record.errors import DamagedError
from idiolect.record.files import whole
from idiolect.record.sealed import check_file, seal_file
from idiolect.theory.joint import JointOptimum, JointProblem, joint_problem
from idiolect.theory.optimum import client_values

PLAIN = (GlobalModel, LocalOnly, Additive)  # f_m is f'_m of the client's model, whatever blocks made it


def optimum_measure(
    objective: Objective, rows: Rows, cache: Path | None = None
) -> Callable[[Standing], dict[str, float]] | None:
    """Training loss, suboptimality and squared distance to the optimum, per record; None where it is not known.

    The loss is F at the method's point, the optimum that of its own objective: zero is what the method can reach. The
    distance is the mean over clients of |v_m - v*_m|^2 between the models they predict with. A solved optimum is kept
    in the file `cache` and read back from there.
    """
    with jax.enable_x64(True):
        # in double precision, whatever the run computes in: float32 rounds F long before a method has reached its
        # optimum
        problem = joint_problem(objective, rows)
        best = None if problem is None else _solve(problem, cache)
        if problem is None or best is None:
            return None
        optima = _models(objective, best, problem.prepared, rows.clients)

    def measure(where: Standing) -> dict[str, float]:
        if isinstance(objective, PLAIN):  # what a method predicts with may be finer than its point: an average, say
            value = float(np.mean(np.asarray(client_values(objective, rows, where.models, stacked=True))))
        else:
            value = problem.value(where.shared, where.personal)
        with jax.enable_x64(True):
            distance = float(distance_to_optimum(where.models, optima))
        return {
            "train_loss": value,
            "suboptimality": float(suboptimality(value, best.value)),
            "distance_to_optimum": distance,
        }

    return measure


def _models(objective: Objective, best: JointOptimum, prepared: Params, clients: int) -> Params:
    """What every client would predict with at the optimum, stacked, in float64."""
    own_part = prepared if isinstance(objective, Prepares) else best.personal
    deployed = jax.vmap(
        lambda own, personal: own.deployed(best.shared, personal), in_axes=(axes(objective), 0), axis_size=clients
    )
    models = deployed(address(objective, np.arange(clients)), own_part)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), models)


def _solve(problem: JointProblem, cache: Path | None) -> JointOptimum | None:
    """The optimum, solved now or read back."""
    blocks, structure = jax.tree.flatten((problem.shared_layout, problem.personal_layout))
    if cache is not None and cache.is_file():
        with contextlib.suppress(DamagedError):  # it is solved again
            check_file(cache)
            with np.load(cache) as kept:
                arrays = [kept[f"block_{place}"] for place in range(len(blocks))]
                shared, personal = jax.tree.unflatten(structure, arrays)
                return JointOptimum(shared, personal, float(kept["value"]), float(kept["gradient_norm"]))
    best = problem.optimum()
    if best is not None and cache is not None:
        leaves = jax.tree.leaves((best.shared, best.personal))
        contents: dict[str, Any] = {f"block_{place}": leaf for place, leaf in enumerate(leaves)}
        with whole(cache) as unfinished:
            with unfinished.open("wb") as file:
                np.savez(file, value=best.value, gradient_norm=best.gradient_norm, **contents)
            seal_file(unfinished)
    return best
