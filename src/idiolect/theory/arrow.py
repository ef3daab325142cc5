# SPDX-License-Identifier: Apache-2.0
"""Newton's method for one shared and many personal blocks: given the shared one, the personal ones are independent.

Every client's loss is linear in its coefficients' arguments, so a client term of any objective here is a weighted sum
of f'_m at coefficients V = (shared block, placed and scaled) + (personal block, placed and scaled), and squares. The
Hessian is an arrow: eliminating every personal block leaves one system in the shared one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lstsq
from scipy.sparse.linalg import LinearOperator, cg

from idiolect.core.checks import RequestError
from idiolect.theory.convex import ConvexLoss, MatrixRows

TOLERANCE = 1e-12  # of the gradient norm, relative to the largest row
DENSE_SIZE = 1500  # up to here a block's system is solved by factorisation, beyond by conjugate gradients
NEWTON_STEPS = 200
_CONJUGATE_STEPS = 2000
_FLOOR = 1e-10  # what is added to a Hessian that may be singular: far above rounding, far below curvature that matters


class Place(NamedTuple):
    """Where a block's entries stand among the coefficients, and what they are multiplied with."""

    factor: float
    positions: np.ndarray


class Term(NamedTuple):
    """weight * f'(V): V holds the shared and the personal block at their places; None: not in this term."""

    weight: float
    shared: Place | None
    personal: Place | None
    fixed: np.ndarray | None = None  # what V holds besides


@dataclasses.dataclass(frozen=True)
class Client:
    """f(u, b) = sum over terms + (penalty/2) |u - b|^2 + (ridge/2) (|u|^2 + |b|^2)."""

    loss: ConvexLoss
    rows: MatrixRows
    terms: tuple[Term, ...]
    penalty: float = 0.0
    ridge: float = 0.0

    def value(self, shared: np.ndarray, personal: np.ndarray) -> float:
        """f(u, b)."""
        total = sum(t.weight * self.loss.value(self.rows, self._place(t, shared, personal)) for t in self.terms)
        if self.penalty:
            total += 0.5 * self.penalty * np.sum((shared - personal) ** 2)
        if self.ridge:
            total += 0.5 * self.ridge * (np.sum(shared**2) + np.sum(personal**2))
        return float(total)

    def gradient(self, shared: np.ndarray, personal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By u and by b."""
        return self._pull_back(
            lambda term: self.loss.gradient(self.rows, self._place(term, shared, personal)), shared, personal
        )

    def hessian(self, shared: np.ndarray, personal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The blocks (u, u), (u, b) and (b, b)."""
        sizes = (shared.size, personal.size)
        blocks = [[np.zeros((rows, columns)) for columns in sizes] for rows in sizes]
        for term in self.terms:
            own = term.weight * self.loss.hessian(self.rows, self._place(term, shared, personal))
            # the blocks that this term moves; the pair (b, u) is the transpose of (u, b)
            places = [(i, place) for i, place in enumerate((term.shared, term.personal)) if place is not None]
            for (i, left), (j, right) in itertools.combinations_with_replacement(places, 2):
                blocks[i][j] += left.factor * right.factor * own[np.ix_(left.positions, right.positions)]
        for i, size in enumerate(sizes):
            blocks[i][i] += (self.penalty + self.ridge) * np.eye(size)
        if self.penalty:
            blocks[0][1] -= self.penalty * np.eye(sizes[0])
        return blocks[0][0], blocks[0][1], blocks[1][1]

    def hessian_product(
        self, shared: np.ndarray, personal: np.ndarray, along_shared: np.ndarray, along_personal: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The Hessian at (u, b) times a direction."""

        def product(term: Term) -> np.ndarray:
            along = self._place(term._replace(fixed=None), along_shared, along_personal)
            return self.loss.hessian_product(self.rows, self._place(term, shared, personal), along)

        return self._pull_back(product, along_shared, along_personal)

    def _pull_back(
        self, own: Callable[[Term], np.ndarray], shared: np.ndarray, personal: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """By u and by b: what every term says by its coefficients, and the gradient of the squares."""
        blocks = (self.ridge * shared, self.ridge * personal)
        for term in self.terms:
            found = own(term).reshape(-1)
            for block, place in zip(blocks, (term.shared, term.personal)):
                if place is not None:
                    block += term.weight * place.factor * found[place.positions]
        if self.penalty:
            away = self.penalty * (shared - personal)
            blocks = (blocks[0] + away, blocks[1] - away)
        return blocks

    def _place(self, term: Term, shared: np.ndarray, personal: np.ndarray) -> np.ndarray:
        coefficients = np.zeros(self.loss.size) if term.fixed is None else term.fixed.flatten()
        for place, block in ((term.shared, shared), (term.personal, personal)):
            if place is not None:
                coefficients[place.positions] += place.factor * block
        return coefficients.reshape(self.loss.shape)


class Point(NamedTuple):
    """A shared block and one personal block per client; also a gradient or a direction."""

    shared: np.ndarray  # (p,)
    personal: np.ndarray  # (M, q)

    def norm(self) -> float:
        """sqrt(|u|^2 + mean_m |b_m|^2)."""
        return float(np.sqrt(np.sum(self.shared**2) + np.sum(self.personal**2) / max(len(self.personal), 1)))


@dataclasses.dataclass(frozen=True)
class Arrow:
    """F(u, b_1..b_M) = sum_m share_m f_m(u, b_m), the shares summing to 1."""

    clients: tuple[Client, ...]
    shares: np.ndarray
    shared_size: int
    personal_size: int

    def value(self, point: Point) -> float:
        """F."""
        values = [client.value(point.shared, own) for client, own in zip(self.clients, point.personal)]
        return float(self.shares @ np.array(values))

    def gradient(self, point: Point) -> Point:
        """grad_u F, and grad f_m by b_m: without its share, so that it is on the scale of one client's loss."""
        gradients = [client.gradient(point.shared, own) for client, own in zip(self.clients, point.personal)]
        shared = sum(
            (share * gradient for share, (gradient, _) in zip(self.shares, gradients)), np.zeros(self.shared_size)
        )
        return Point(shared, np.array([gradient for _, gradient in gradients]).reshape(len(self.clients), -1))

    def direction(self, point: Point, gradient: Point, ridge: float) -> Point:
        """(Hessian + ridge)^-1 gradient."""
        if max(self.shared_size, self.personal_size) > DENSE_SIZE:
            return self._conjugate_direction(point, gradient, ridge)
        # the Hessian is an arrow: clients meet in u alone. Each b_m is eliminated by itself, so that no matrix is
        # larger than one block
        schur, pull, kept = ridge * np.eye(self.shared_size), gradient.shared.copy(), []
        for client, share, own, own_gradient in zip(self.clients, self.shares, point.personal, gradient.personal):
            shared, mixed, personal = client.hessian(point.shared, own)
            solved = _solve(personal + ridge * np.eye(self.personal_size), np.column_stack([mixed.T, own_gradient]))
            schur += share * (shared - mixed @ solved[:, :-1])
            pull -= share * (mixed @ solved[:, -1])
            kept.append(solved)
        step = _solve(schur, pull)
        return Point(step, np.array([solved[:, -1] - solved[:, :-1] @ step for solved in kept]))

    def _conjugate_direction(self, point: Point, gradient: Point, ridge: float) -> Point:
        """The same without forming the Hessian; u is stretched by sqrt(M) to be curved as much as the b_m."""
        clients, stretch = len(self.clients), len(self.clients) ** -0.5
        shares = self.shares[:, None] * clients

        def unpack(flat: np.ndarray) -> Point:
            return Point(stretch * flat[: self.shared_size], flat[self.shared_size :].reshape(clients, -1))

        def pack(shared: np.ndarray, personal: np.ndarray) -> np.ndarray:
            return np.concatenate([clients * stretch * shared, (shares * personal).reshape(-1)])

        def product(flat: np.ndarray) -> np.ndarray:
            along = unpack(flat)
            both = [
                client.hessian_product(point.shared, own, along.shared, step)
                for client, own, step in zip(self.clients, point.personal, along.personal)
            ]
            shared = sum((share * part for share, (part, _) in zip(self.shares, both)), ridge * along.shared)
            return pack(shared, np.array([part for _, part in both]).reshape(clients, -1) + ridge * along.personal)

        size = self.shared_size + clients * self.personal_size
        operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
        # an inexact Newton step: far from the optimum a rough direction is enough, and this forcing term still
        # converges superlinearly
        accuracy = min(0.1, np.sqrt(gradient.norm()))
        solution, _ = cg(operator, pack(*gradient), rtol=accuracy, maxiter=_CONJUGATE_STEPS)
        return unpack(solution)


def minimise(arrow: Arrow) -> Point | None:
    """Newton's method from zero, damped until the gradient norm (or the value) falls; None where there is no optimum.

    Without l2 a logistic or softmax loss may have none (separable rows): the gradient then vanishes at infinity, but
    Newton's step does not get short, which is how it is told. There a multiple of the identity that vanishes with the
    gradient keeps the systems regular (softmax has a direction along which nothing changes).
    """
    point = Point(np.zeros(arrow.shared_size), np.zeros((len(arrow.clients), arrow.personal_size)))
    gradient = arrow.gradient(point)
    size, weight = _scales(arrow)
    tolerance = TOLERANCE * max(1.0, size) * weight * _reach(arrow)
    for _ in range(NEWTON_STEPS):
        norm = gradient.norm()
        if norm <= tolerance:
            break
        moved = _search(arrow, point, gradient, arrow.direction(point, gradient, _ridge(arrow, norm)))
        if moved is None:
            break  # rounding: no step along the direction lowers the norm
        point, gradient = moved
    norm = gradient.norm()
    if _may_escape(arrow):
        # the floor keeps rounding along a flat direction from looking like a step
        left = arrow.direction(point, gradient, max(_ridge(arrow, norm), _FLOOR * size**2 * weight)).norm()
        return point if norm <= 1e3 * tolerance and left <= 1e-6 * (1 / size + point.norm()) else None
    if norm > 1e3 * tolerance:
        raise RequestError(
            f"the optimum must be found to a gradient norm of {tolerance:.0e}, got {norm:.1e}. "
            f"Raise l2 (now {arrow.clients[0].loss.l2:g}) or scale the features."
        )
    return point


def own_optimum(loss: ConvexLoss, rows: MatrixRows) -> np.ndarray | None:
    """argmin f'_m of one client's rows, of least norm where several are optimal; None where there is none."""
    if loss.criterion != "squared":
        client = Client(loss, rows, (Term(1.0, None, Place(1.0, np.arange(loss.size))),))
        point = minimise(Arrow((client,), np.ones(1), 0, loss.size))
        return None if point is None else point.personal[0].reshape(loss.shape)
    design, goals, weights = rows
    if loss.diagonal:
        products, squares = weights @ (design * goals), weights @ design**2 + loss.l2
        return np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)[:, None]
    root = np.sqrt(weights)[:, None]
    # l2 as extra rows: the square root of the normal equations, so half the digits are not lost
    padding = np.sqrt(loss.l2) * np.eye(loss.columns)
    stacked = np.concatenate([root * design, padding])
    wanted = np.concatenate([root * goals, np.zeros((loss.columns, goals.shape[1]))])
    return np.linalg.lstsq(stacked, wanted)[0]


def _search(arrow: Arrow, point: Point, gradient: Point, direction: Point) -> tuple[Point, Point] | None:
    """The first of 1, 1/2, 1/4, ... of the step that lowers the gradient norm, or clearly the value."""
    norm, value = gradient.norm(), arrow.value(point)
    steepness = float(
        gradient.shared @ direction.shared + arrow.shares @ (gradient.personal * direction.personal).sum(axis=1)
    )
    damping = 1.0
    while damping > 1e-10:
        moved = Point(point.shared - damping * direction.shared, point.personal - damping * direction.personal)
        moved_gradient = arrow.gradient(moved)
        # by the norm of the gradient first: near the optimum differences of F are all rounding
        if moved_gradient.norm() <= (1 - 1e-4 * damping) * norm:
            return moved, moved_gradient
        clear = damping * steepness > 1e-9 * max(abs(value), 1e-3)  # beyond the rounding of F
        if clear and arrow.value(moved) <= value - 1e-4 * damping * steepness:
            return moved, moved_gradient
        damping /= 2
    return None


def _may_escape(arrow: Arrow) -> bool:
    return any(c.loss.criterion != "squared" and c.loss.l2 == 0 and c.ridge == 0 for c in arrow.clients)


def _ridge(arrow: Arrow, norm: float) -> float:
    """What is added to the Hessian: for squared losses only what makes a singular one safe to factorise."""
    size, weight = _scales(arrow)
    if _may_escape(arrow):
        return norm * size  # a gradient is on the scale of a row, a Hessian on that of its square
    singular = any(c.loss.criterion == "squared" and c.loss.l2 == 0 for c in arrow.clients)
    return _FLOOR * size**2 * weight if singular else 0.0


def _scales(arrow: Arrow) -> tuple[float, float]:
    """The largest row, and the weight of a client's terms where that is above 1."""
    sizes = [float(np.sqrt((c.rows.design**2).sum(axis=1).max(initial=0.0))) for c in arrow.clients]
    weights = [sum(term.weight for term in c.terms) for c in arrow.clients]
    return max(sizes, default=0.0) or 1.0, max(1.0, max(weights, default=0.0))


def _reach(arrow: Arrow) -> float:
    """How much of a client's model the blocks move, where that is below 1: F's gradient is smaller by as much."""
    places = [place for c in arrow.clients for t in c.terms for place in (t.shared, t.personal) if place is not None]
    return min(1.0, max((place.factor for place in places), default=1.0)) or 1.0


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution of a symmetric system, of least norm where the matrix is singular."""
    if matrix.size == 0:
        return right
    try:
        return cho_solve(cho_factor(matrix), right)
    # softmax and unpenalised columns that are constant leave a direction free: any of its points will do
    except LinAlgError:
        return lstsq(matrix, right)[0]
