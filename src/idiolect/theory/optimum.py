# SPDX-License-Identifier: Apache-2.0
"""Exact optima of the known convex losses, in float64 on the host.

Squared losses have a closed form (the one of least norm where several are optimal). Logistic and softmax
losses are solved by Newton's method to a gradient norm of 1e-12 (relative to the largest row), or as near as
rounding allows and at most 1e-9, and need l2 > 0: without it there may be no optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.core.tree import Params
from idiolect.objectives import ClientLoss, GlobalModel
from idiolect.theory.convex import ConvexLoss, convex_loss

_TOLERANCE = 1e-12
_DENSE_SIZE = 1500  # up to here a Newton system is solved by factorisation, beyond by conjugate gradients
_NEWTON_STEPS = 200


class _Problem(NamedTuple):
    """Rows with a weight each; the weights of one client sum to 1, those of the mean over clients too."""

    design: np.ndarray
    goals: np.ndarray
    weights: np.ndarray


def local_optima(objective: Objective | ClientLoss, rows: Rows) -> Params | None:
    """v*_m = argmin f'_m for every client, stacked; None where no optimum is known."""
    loss = _solvable(objective)
    return None if loss is None else _stack(loss, [_solve(loss, p) for p in _problems(loss, rows)])


def shared_optimum(
    objective: Objective | ClientLoss, rows: Rows, client_weights: np.ndarray | None = None
) -> Params | None:
    """w* = argmin of the mean of f'_m over clients, weighted equally by default; None where not known."""
    loss = _solvable(objective)
    if loss is None:
        return None
    weights = np.ones(rows.clients) if client_weights is None else np.asarray(client_weights, np.float64)
    problems = _problems(loss, rows)
    share = weights / weights.sum()
    pooled = _Problem(
        np.concatenate([p.design for p in problems]),
        np.concatenate([p.goals for p in problems]),
        np.concatenate([a * p.weights for a, p in zip(share, problems)]),
    )
    return loss.to_params(_solve(loss, pooled))


def client_values(objective: Objective | ClientLoss, rows: Rows, params: Params, *, stacked: bool) -> np.ndarray | None:
    """f'_m of every client: at its own row of `params` when stacked, all at the same `params` otherwise."""
    loss = convex_loss(objective)
    if loss is None:
        return None
    points = client_points(loss, rows.clients, params, stacked=stacked)
    return np.array([loss.value(*p, v) for p, v in zip(_problems(loss, rows), points)])


def client_gradients(
    objective: Objective | ClientLoss, rows: Rows, params: Params, *, stacked: bool
) -> np.ndarray | None:
    """grad f'_m of every client, (M, columns, outputs); points as in `client_values`."""
    loss = convex_loss(objective)
    if loss is None:
        return None
    points = client_points(loss, rows.clients, params, stacked=stacked)
    return np.array([loss.gradient(*p, v) for p, v in zip(_problems(loss, rows), points)])


def optimal_value(objective: Objective, rows: Rows) -> float | None:
    """F*: the least mean_m f'_m over what the objective may choose - one model, or one per client."""
    one_model = isinstance(objective, GlobalModel)
    params = shared_optimum(objective, rows) if one_model else local_optima(objective, rows)
    if params is None:
        return None
    values = client_values(objective, rows, params, stacked=not one_model)
    return None if values is None else float(values.mean())


def client_points(loss: ConvexLoss, clients: int, params: Params, *, stacked: bool) -> list[np.ndarray]:
    """Every client's coefficients, from stacked parameters or from one set for all."""
    if not stacked:
        return [loss.from_params(params)] * clients
    return [
        loss.from_params({name: np.asarray(leaf)[client] for name, leaf in params.items()}) for client in range(clients)
    ]


def _solvable(objective: Objective | ClientLoss) -> ConvexLoss | None:
    loss = convex_loss(objective)
    return None if loss is None or (loss.criterion != "squared" and loss.l2 == 0) else loss


def _problems(loss: ConvexLoss, rows: Rows) -> list[_Problem]:
    problems = []
    for client in range(rows.clients):
        inputs, targets = rows.of(client)
        problems.append(
            _Problem(loss.design(inputs), loss.goals(targets), np.full(len(inputs), 1 / max(len(inputs), 1)))
        )
    return problems


def _stack(loss: ConvexLoss, solutions: list[np.ndarray]) -> Params:
    each = [loss.to_params(solution) for solution in solutions]
    return {name: np.stack([params[name] for params in each]) for name in each[0]}


def _solve(loss: ConvexLoss, problem: _Problem) -> np.ndarray:
    if loss.criterion != "squared":
        return _newton(loss, problem)
    design, goals, weights = problem
    if loss.diagonal:
        products, squares = weights @ (design * goals), weights @ design**2 + loss.l2
        return np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)[:, None]
    root = np.sqrt(weights)[:, None]
    # l2 as extra rows: the square root of the normal equations, so half the digits are not lost
    padding = np.sqrt(loss.l2) * np.eye(loss.columns)
    stacked = np.concatenate([root * design, padding])
    wanted = np.concatenate([root * goals, np.zeros((loss.columns, goals.shape[1]))])
    return np.linalg.lstsq(stacked, wanted)[0]


def _newton(loss: ConvexLoss, problem: _Problem) -> np.ndarray:
    """Newton's method, damped until the gradient norm falls: its direction always lowers that norm."""
    point = np.zeros(loss.shape)
    slope = loss.gradient(*problem, point)
    size = float(np.sqrt((problem.design**2).sum(axis=1).max(initial=0.0)))
    tolerance = _TOLERANCE * max(1.0, size)
    for _ in range(_NEWTON_STEPS):
        norm = np.linalg.norm(slope)
        if norm <= tolerance:
            break
        direction = _newton_direction(loss, problem, point, slope)
        damping = 1.0
        while damping > 1e-10:
            moved = point - damping * direction
            moved_slope = loss.gradient(*problem, moved)
            if np.linalg.norm(moved_slope) <= (1 - 1e-4 * damping) * norm:
                break
            damping /= 2
        else:
            break  # rounding: no step along the direction lowers the norm
        point, slope = moved, moved_slope
    left = float(np.linalg.norm(slope))
    if left > 1e3 * tolerance:
        raise RequestError(
            f"the optimum must be found to a gradient norm of {tolerance:.0e}, got {left:.1e}. "
            f"Raise l2 (now {loss.l2:g}) or scale the features."
        )
    return point


def _newton_direction(loss: ConvexLoss, problem: _Problem, point: np.ndarray, slope: np.ndarray) -> np.ndarray:
    design, goals, weights = problem
    chances = loss.row_slopes(loss.outputs(design, point), goals) + goals  # predicted probabilities
    if point.size <= _DENSE_SIZE:
        return np.linalg.solve(_hessian(loss, design, weights, chances), slope.reshape(-1)).reshape(slope.shape)

    def product(direction: np.ndarray) -> np.ndarray:
        moved = design @ direction.reshape(loss.shape)
        curved = chances * moved
        if loss.criterion == "logistic":
            curved = curved * (1 - chances)
        else:
            curved = curved - chances * curved.sum(axis=1, keepdims=True)
        return (design.T @ (weights[:, None] * curved)).reshape(-1) + loss.l2 * direction.reshape(-1)

    operator = LinearOperator((point.size, point.size), matvec=product, dtype=np.float64)
    norm = float(np.linalg.norm(slope))
    solution, _ = cg(operator, slope.reshape(-1), rtol=min(0.1, np.sqrt(norm)), maxiter=10 * point.size)
    return solution.reshape(slope.shape)


def _hessian(loss: ConvexLoss, design: np.ndarray, weights: np.ndarray, chances: np.ndarray) -> np.ndarray:
    columns, outputs = loss.shape
    if loss.criterion == "logistic":
        curvature = (weights * chances[:, 0] * (1 - chances[:, 0]))[:, None]
        return design.T @ (curvature * design) + loss.l2 * np.eye(columns)
    blocks = np.empty((columns, outputs, columns, outputs))
    for one in range(outputs):
        for other in range(outputs):
            mixed = chances[:, one] * ((one == other) - chances[:, other])
            blocks[:, one, :, other] = design.T @ ((weights * mixed)[:, None] * design)
    return blocks.reshape(columns * outputs, -1) + loss.l2 * np.eye(columns * outputs)
