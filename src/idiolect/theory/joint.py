# SPDX-License-Identifier: Apache-2.0
"""F(w, beta) of a convex objective and its exact optimum, in float64 on the host.

Logistic and softmax losses without l2 have an optimum on some data only: it is looked for, and None says that there
is none. Conventions of the accuracy are those of `arrow`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect.core.data import Rows
from idiolect.core.objective import Mixture, Objective
from idiolect.core.tree import Params
from idiolect.objectives import (
    APFL2,
    FLIX,
    MT2,
    MX2,
    WS2,
    Additive,
    GlobalModel,
    LocalOnly,
    RescaledObjective,
    Residual,
)
from idiolect.objectives.flix import Prepared
from idiolect.theory import arrow
from idiolect.theory.arrow import Arrow, Client, Place, Point, Term, own_optimum
from idiolect.theory.constants import per_client, residual_columns, shares_of, split_positions
from idiolect.theory.convex import ConvexLoss, MatrixRows, convex_loss

Layout = Any  # a block's pytree, with every entry's position in a flat vector instead of its value


class JointOptimum(NamedTuple):
    """The minimiser of F, its value, and the norm of F's gradient there."""

    shared: Params  # w*, as the algorithm stores it
    personal: Params  # beta*_m, stacked
    value: float
    gradient_norm: float


@dataclasses.dataclass(frozen=True)
class JointProblem:
    """F on given rows, built once for many evaluations. An absent block is the empty tuple."""

    objective: Objective
    arrow: Arrow
    shared_layout: Layout
    personal_layout: Layout
    prepared: Any = ()  # what an objective that prepares has its clients keep, exact and stacked

    def value(self, shared: Params, personal: Params) -> float:
        """F(w, beta); a mixture without a w of its own is taken at the best one, u = mean of the beta_m."""
        return self.arrow.value(self._point(shared, personal))

    def gradient_norm(self, shared: Params, personal: Params) -> float:
        """|grad F| in (w, beta)."""
        return self._norm(self.arrow.gradient(self._point(shared, personal)))

    def optimum(self) -> JointOptimum | None:
        """The minimiser; None where there is none. An additive objective's w is the mean of the models."""
        point = _additive_minimum(self.arrow) if isinstance(self.objective, Additive) else arrow.minimise(self.arrow)
        if point is None:
            return None
        shared = _read(self.shared_layout, point.shared / self._shrink)
        value, norm = self.arrow.value(point), self._norm(self.arrow.gradient(point))
        return JointOptimum(shared, _read(self.personal_layout, point.personal), value, norm)

    @property
    def _shrink(self) -> float:
        return self.objective.shrink if isinstance(self.objective, RescaledObjective) else 1.0

    def _norm(self, gradient: Point) -> float:
        # client terms carry 1/M in F; u = shrink * w
        personal = (gradient.personal**2).sum() / len(gradient.personal) ** 2
        return float(np.sqrt(self._shrink**2 * (gradient.shared**2).sum() + personal))

    def _point(self, shared: Params, personal: Params) -> Point:
        clients = len(self.arrow.clients)
        own = _flatten(self.personal_layout, personal, (clients, self.arrow.personal_size))
        if isinstance(self.objective, Mixture) and jax.tree.leaves(shared) == []:
            return Point(own.mean(axis=0), own)
        return Point(self._shrink * _flatten(self.shared_layout, shared, (self.arrow.shared_size,)), own)


def joint_problem(objective: Objective, rows: Rows) -> JointProblem | None:
    """F of a convex objective on these rows; None for an objective or a model that theory does not know."""
    loss = convex_loss(objective)
    build: _Build | None = _flix if isinstance(objective, FLIX) else _BUILDERS.get(type(objective))
    if loss is None or build is None:
        return None
    if isinstance(objective, RescaledObjective) and objective.clients == 0:
        objective = dataclasses.replace(objective, clients=rows.clients)
    return build(objective, loss, weighted_rows(loss, rows))


def joint_optimum(objective: Objective, rows: Rows) -> JointOptimum | None:
    """The minimiser of F on these rows; None where it is not known or there is none."""
    problem = joint_problem(objective, rows)
    return None if problem is None else problem.optimum()


def weighted_rows(loss: ConvexLoss, rows: Rows) -> list[MatrixRows]:
    """Every client's rows in matrix form, each with weight 1/n_m, or w_i / n_m for weights w of mean 1."""
    every = []
    for client in range(rows.clients):
        inputs, targets = rows.of(client)
        weights = np.full(len(inputs), 1 / max(len(inputs), 1))
        own = rows.weights_of(client)
        if own is not None:
            weights = weights * own
        every.append(MatrixRows(loss.design(inputs), loss.goals(targets), weights))
    return every


_Build = Callable[[Any, ConvexLoss, list[MatrixRows]], JointProblem | None]


def _problem(
    objective: Objective, clients: list[Client], shared: Layout, personal: Layout, prepared: Any = ()
) -> JointProblem:
    shares = np.full(len(clients), 1 / len(clients))
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(layout)) for layout in (shared, personal)]
    return JointProblem(objective, Arrow(tuple(clients), shares, *sizes), shared, personal, prepared)


def _whole(loss: ConvexLoss) -> tuple[Layout, Place]:
    """The layout of all coefficients, and their place."""
    positions = np.arange(loss.size)
    return loss.to_params(positions.reshape(loss.shape)), Place(1.0, positions)


def _plain(objective: Objective, loss: ConvexLoss, every: list[MatrixRows]) -> JointProblem:
    """f'_m at w, at beta_m, or at their sum, by the blocks that there are."""
    layout, place = _whole(loss)
    shared, personal = objective.has_shared, objective.has_personal
    term = Term(1.0, place if shared else None, place if personal else None)
    clients = [Client(loss, own, (term,)) for own in every]
    return _problem(objective, clients, layout if shared else (), layout if personal else ())


def _pulled(objective: MT2 | MX2, loss: ConvexLoss, every: list[MatrixRows]) -> JointProblem:
    layout, place = _whole(loss)
    terms: tuple[Term, ...] = (Term(1.0, None, place),)
    if isinstance(objective, MT2):
        terms = (Term(float(objective.relaxation), place, None), *terms)
    clients = [Client(loss, own, terms, float(objective.penalty)) for own in every]
    return _problem(objective, clients, layout, layout)


def _apfl2(objective: APFL2, loss: ConvexLoss, every: list[MatrixRows]) -> JointProblem:
    layout, place = _whole(loss)
    together = Term(float(objective.relaxation), place, None)
    shares = per_client(objective.mixing, len(every)).tolist()
    mixed = [Term(1.0, place._replace(factor=share), place._replace(factor=1 - share)) for share in shares]
    clients = [Client(loss, own, (together, term)) for own, term in zip(every, mixed)]
    return _problem(objective, clients, layout, layout)


def _ws2(objective: WS2, loss: ConvexLoss, every: list[MatrixRows]) -> JointProblem:
    layouts, places = [], []
    for block in split_positions(objective, loss):
        starts = np.cumsum([0, *(part.size for part in block.values())])
        layouts.append({n: s + np.arange(part.size).reshape(part.shape) for s, (n, part) in zip(starts, block.items())})
        places.append(Place(1.0, np.concatenate([part.reshape(-1) for part in block.values()])))
    term = Term(1.0, places[0], places[1])
    return _problem(objective, [Client(loss, own, (term,)) for own in every], *layouts)


def _residual(objective: Residual, loss: ConvexLoss, every: list[MatrixRows]) -> JointProblem:
    layouts = []
    for block in ("shared", "personal"):
        side = convex_loss(dataclasses.replace(objective.client_loss, model=objective.side(block)))
        assert side is not None  # a narrower model of a known kind
        layouts.append(_whole(side)[0])
    if loss.diagonal:  # both sides see every coordinate: their sum is what the rows see
        plain, term = dataclasses.replace(loss, l2=0.0), Term(1.0, _whole(loss)[1], _whole(loss)[1])
        return _problem(objective, [Client(plain, own, (term,), ridge=loss.l2) for own in every], *layouts)
    columns = residual_columns(objective, loss)
    width = loss.shape[1]
    first = len(columns[0]) * width
    term = Term(1.0, Place(1.0, np.arange(first)), Place(1.0, np.arange(first, first + len(columns[1]) * width)))
    # the columns of both models side by side: then it is one loss of one design, the bias being a column already
    joined = dataclasses.replace(loss, features=len(columns[0]) + len(columns[1]), bias=False)
    seen = [own._replace(design=own.design[:, np.concatenate(columns)]) for own in every]
    return _problem(objective, [Client(joined, own, (term,)) for own in seen], *layouts)


def _flix(objective: FLIX, loss: ConvexLoss, every: list[MatrixRows]) -> JointProblem | None:
    layout, place = _whole(loss)
    shares, optima = shares_of(objective, len(every)), np.zeros((len(every), *loss.shape))
    for number in np.flatnonzero(shares != 1):  # of the other x*_m nothing is mixed in
        optimum = own_optimum(loss, every[number])
        if optimum is None:
            return None
        optima[number] = optimum
    terms = [
        Term(1.0, place._replace(factor=share), None, (1 - share) * optimum)
        for share, optimum in zip(shares.tolist(), optima)
    ]
    clients = [Client(loss, own, (term,)) for own, term in zip(every, terms)]
    prepared = Prepared(loss.stack_params(optima), np.ones(len(every), bool))
    return _problem(objective, clients, layout, (), prepared)


_BUILDERS: dict[type[Objective], _Build] = {
    GlobalModel: _plain,
    LocalOnly: _plain,
    Additive: _plain,
    MT2: _pulled,
    MX2: _pulled,
    APFL2: _apfl2,
    WS2: _ws2,
    Residual: _residual,
}


def _additive_minimum(problem: Arrow) -> Point | None:
    """Every client's own optimum v*_m as w = mean v*_m, theta_m = v*_m - w: any other w does as well."""
    term = Term(1.0, None, problem.clients[0].terms[0].personal)
    clients = tuple(dataclasses.replace(client, terms=(term,)) for client in problem.clients)
    alone = arrow.minimise(dataclasses.replace(problem, clients=clients, shared_size=0))
    if alone is None:
        return None
    mean = alone.personal.mean(axis=0)
    return Point(mean, alone.personal - mean)


def _read(layout: Layout, flat: np.ndarray) -> Params:
    """A flat vector, or a stack of them, as the block it stands for."""
    return jax.tree.map(lambda positions: flat[..., positions], layout)


def _flatten(layout: Layout, block: Params, shape: tuple[int, ...]) -> np.ndarray:
    """The block, or a stack of them, as flat vectors."""
    flat = np.zeros(shape)
    for positions, leaf in zip(jax.tree.leaves(layout), jax.tree.leaves(block), strict=True):
        flat[..., positions.reshape(-1)] = np.asarray(leaf, np.float64).reshape(*shape[:-1], -1)
    return flat
