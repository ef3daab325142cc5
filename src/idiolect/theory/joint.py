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

from idiolect.core.addressing import PerClient
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
from idiolect.theory.alone import own_optimum
from idiolect.theory.arrow import Arrow, Client, Place, Point, Term
from idiolect.theory.columns import residual_columns, split_positions
from idiolect.theory.constants import shares_of
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
    if loss is None:
        return None
    if isinstance(objective, RescaledObjective) and objective.clients == 0:
        objective = dataclasses.replace(objective, clients=rows.clients)
    every = weighted_rows(loss, rows)
    optima = _own_optima(objective, loss, every) if isinstance(objective, FLIX) else None
    build = _BUILDERS.get(type(objective)) if optima is None else _flix_builder(optima)
    if build is None:
        return None
    prepared = () if optima is None else _prepared(loss, optima)
    shared_layout, personal_layout, client = build(objective, loss)
    clients = [client(number, own) for number, own in enumerate(every)]
    shares = np.full(rows.clients, 1 / rows.clients)
    sizes = (_size(shared_layout), _size(personal_layout))
    return JointProblem(objective, Arrow(tuple(clients), shares, *sizes), shared_layout, personal_layout, prepared)


def joint_optimum(objective: Objective, rows: Rows) -> JointOptimum | None:
    """The minimiser of F on these rows; None where it is not known or there is none."""
    problem = joint_problem(objective, rows)
    return None if problem is None else problem.optimum()


def value(objective: Objective, rows: Rows, shared: Params, personal: Params) -> float | None:
    """F(w, beta) at stacked personal blocks; None for an objective that theory does not know."""
    problem = joint_problem(objective, rows)
    return None if problem is None else problem.value(shared, personal)


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


_MakeClient = Callable[[int, MatrixRows], Client]
_Build = Callable[[Any, ConvexLoss], tuple[Layout, Layout, _MakeClient]]


def _whole(loss: ConvexLoss) -> tuple[Layout, np.ndarray]:
    """The layout of all coefficients, and their positions."""
    positions = np.arange(loss.shape[0] * loss.shape[1])
    return loss.to_params(positions.reshape(loss.shape)), positions


def _plain(objective: Objective, loss: ConvexLoss) -> tuple[Layout, Layout, _MakeClient]:
    """f'_m at w, at beta_m, or at their sum, by the blocks that there are."""
    layout, every = _whole(loss)
    shared, personal = objective.has_shared, objective.has_personal
    term = Term(1.0, Place(1.0, every) if shared else None, Place(1.0, every) if personal else None)
    return layout if shared else (), layout if personal else (), lambda number, rows: Client(loss, rows, (term,))


def _pulled(objective: MT2 | MX2, loss: ConvexLoss) -> tuple[Layout, Layout, _MakeClient]:
    layout, every = _whole(loss)
    place = Place(1.0, every)
    terms: tuple[Term, ...] = (Term(1.0, None, place),)
    if isinstance(objective, MT2):
        terms = (Term(float(objective.relaxation), place, None), *terms)
    return layout, layout, lambda number, rows: Client(loss, rows, terms, penalty=float(objective.penalty))


def _apfl2(objective: APFL2, loss: ConvexLoss) -> tuple[Layout, Layout, _MakeClient]:
    layout, every = _whole(loss)
    mixing = objective.mixing

    def client(number: int, rows: MatrixRows) -> Client:
        share = float(mixing.values[number] if isinstance(mixing, PerClient) else mixing)
        mixed = Term(1.0, Place(share, every), Place(1 - share, every))
        return Client(loss, rows, (Term(float(objective.relaxation), Place(1.0, every), None), mixed))

    return layout, layout, client


def _ws2(objective: WS2, loss: ConvexLoss) -> tuple[Layout, Layout, _MakeClient]:
    layouts, places = [], []
    for block in split_positions(objective, loss):
        starts = np.cumsum([0, *(part.size for part in block.values())])
        layouts.append({n: s + np.arange(part.size).reshape(part.shape) for s, (n, part) in zip(starts, block.items())})
        places.append(Place(1.0, np.concatenate([part.reshape(-1) for part in block.values()])))
    term = Term(1.0, places[0], places[1])
    return layouts[0], layouts[1], lambda number, rows: Client(loss, rows, (term,))


def _residual(objective: Residual, loss: ConvexLoss) -> tuple[Layout, Layout, _MakeClient]:
    sides = {}
    for block in ("shared", "personal"):
        side = convex_loss(dataclasses.replace(objective.client_loss, model=objective.side(block)))
        assert side is not None  # a narrower model of a known kind
        sides[block] = side
    layouts = [_whole(side)[0] for side in sides.values()]
    if loss.diagonal:  # both sides see every coordinate: their sum is what the rows see
        every = _whole(loss)[1]
        plain, term = dataclasses.replace(loss, l2=0.0), Term(1.0, Place(1.0, every), Place(1.0, every))
        return layouts[0], layouts[1], lambda number, rows: Client(plain, rows, (term,), ridge=loss.l2)
    columns = residual_columns(objective, loss)
    width = loss.shape[1]
    first = len(columns[0]) * width
    term = Term(1.0, Place(1.0, np.arange(first)), Place(1.0, np.arange(first, first + len(columns[1]) * width)))
    # the columns of both models side by side: then it is one loss of one design, the bias being a column already
    joined = dataclasses.replace(loss, features=len(columns[0]) + len(columns[1]), bias=False)
    take = np.concatenate(columns)

    def client(number: int, rows: MatrixRows) -> Client:
        return Client(joined, rows._replace(design=rows.design[:, take]), (term,))

    return layouts[0], layouts[1], client


def _flix_builder(optima: np.ndarray) -> _Build:
    """FLIX, once the x*_m are known."""

    def build(objective: FLIX, loss: ConvexLoss) -> tuple[Layout, Layout, _MakeClient]:
        layout, every = _whole(loss)
        shares = shares_of(objective, len(optima))

        def client(number: int, rows: MatrixRows) -> Client:
            share = float(shares[number])
            return Client(loss, rows, (Term(1.0, Place(share, every), None, (1 - share) * optima[number]),))

        return layout, (), client

    return build


def _own_optima(objective: FLIX, loss: ConvexLoss, every: list[MatrixRows]) -> np.ndarray | None:
    """x*_m of every client, zeros where alpha_m = 1; None where one has none."""
    shares = shares_of(objective, len(every))
    optima = [np.zeros(loss.shape) if a == 1 else own_optimum(loss, rows) for a, rows in zip(shares, every)]
    found = [optimum for optimum in optima if optimum is not None]
    return np.stack(found) if len(found) == len(every) else None


def _prepared(loss: ConvexLoss, optima: np.ndarray) -> Prepared:
    parts = [loss.to_params(optimum) for optimum in optima]
    return Prepared({name: np.stack([part[name] for part in parts]) for name in parts[0]}, np.ones(len(optima), bool))


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
    clients = [
        dataclasses.replace(client, terms=(Term(1.0, None, client.terms[0].personal),)) for client in problem.clients
    ]
    alone = arrow.minimise(dataclasses.replace(problem, clients=tuple(clients), shared_size=0))
    if alone is None:
        return None
    mean = alone.personal.mean(axis=0)
    return Point(mean, alone.personal - mean)


def _size(layout: Layout) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(layout))


def _read(layout: Layout, flat: np.ndarray) -> Params:
    """A flat vector, or a stack of them, as the block it stands for."""
    return jax.tree.map(lambda positions: flat[..., positions], layout)


def _flatten(layout: Layout, block: Params, shape: tuple[int, ...]) -> np.ndarray:
    """The block, or a stack of them, as flat vectors."""
    flat = np.zeros(shape)
    for positions, leaf in zip(jax.tree.leaves(layout), jax.tree.leaves(block), strict=True):
        flat[..., positions.reshape(-1)] = np.asarray(leaf, np.float64).reshape(*shape[:-1], -1)
    return flat
