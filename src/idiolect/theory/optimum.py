# SPDX-License-Identifier: Apache-2.0
"""Exact optima of the known plain losses f'_m, in float64 on the host; `joint` has those of whole objectives.

Squared losses have a closed form (the one of least norm where several are optimal). Logistic and softmax
losses are solved by Newton's method to a gradient norm of 1e-12 (relative to the largest row), or as near as
rounding allows and at most 1e-9. Without l2 there may be no optimum: it is looked for, and None says so.
"""

from __future__ import annotations

import numpy as np

from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.core.tree import Params
from idiolect.objectives import ClientLoss
from idiolect.theory.arrow import own_optimum
from idiolect.theory.convex import ConvexLoss, MatrixRows, convex_loss
from idiolect.theory.joint import joint_optimum, weighted_rows


def local_optima(objective: Objective | ClientLoss, rows: Rows) -> Params | None:
    """v*_m = argmin f'_m for every client, stacked; None where no optimum is known."""
    loss = convex_loss(objective)
    if loss is None:
        return None
    solutions = []
    for own in weighted_rows(loss, rows):
        solution = own_optimum(loss, own)
        if solution is None:  # one client without an optimum is enough
            return None
        solutions.append(solution)
    return loss.stack_params(solutions)


def shared_optimum(objective: Objective | ClientLoss, rows: Rows) -> Params | None:
    """w* = argmin of the mean of f'_m over clients; None where not known."""
    loss = convex_loss(objective)
    if loss is None:
        return None
    # rows of all clients as one client's, each weighted by its client: then one solver serves both questions
    pooled = MatrixRows(*(np.concatenate(parts) for parts in zip(*weighted_rows(loss, rows))))
    solution = own_optimum(loss, pooled._replace(weights=1 / rows.clients * pooled.weights))
    return None if solution is None else loss.to_params(solution)


def client_values(objective: Objective | ClientLoss, rows: Rows, params: Params, *, stacked: bool) -> np.ndarray | None:
    """f'_m of every client: at its own row of `params` when stacked, all at the same `params` otherwise."""
    loss = convex_loss(objective)
    if loss is None:
        return None
    points = client_points(loss, rows.clients, params, stacked=stacked)
    return np.array([loss.value(p, v) for p, v in zip(weighted_rows(loss, rows), points)])


def optimal_value(objective: Objective, rows: Rows) -> float | None:
    """F*, the least value of the objective; None where it is not known or not attained."""
    found = joint_optimum(objective, rows)
    return None if found is None else found.value


def client_points(loss: ConvexLoss, clients: int, params: Params, *, stacked: bool) -> list[np.ndarray]:
    """Every client's coefficients, from stacked parameters or from one set for all."""
    if not stacked:
        return [loss.from_params(params)] * clients
    return [
        loss.from_params({name: np.asarray(leaf)[client] for name, leaf in params.items()}) for client in range(clients)
    ]
