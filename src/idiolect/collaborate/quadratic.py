# SPDX-License-Identifier: Apache-2.0
"""Every client's rows as one table with folds, and quick models from their quadratic expansions.

Squared losses are quadratic, so that their quick models are exact; others are expanded once, around the model of
all rows: a quick model is one Newton step away from it. What judges a model is always its true loss on other rows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import cached_property
from typing import NamedTuple

import numpy as np

from idiolect.collaborate.batched import MOST_STEPS, Groups, Weighted, own_answers, sums_of_groups
from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.core.keys import Purpose, host_generator
from idiolect.theory.convex import ConvexLoss, MatrixRows

MOST_COEFFICIENTS = 1000  # of one model: its Hessian is formed, for every client and fold
FEW_COEFFICIENTS = 16  # up to here every row's own Hessian is formed: many small sums are one pass over the rows
SCORES_AT_ONCE = 4_000_000  # outputs held in memory while models are scored
BIAS_PENALTY = 0.01  # on biases of log losses: one class alone would send them to infinity
# Sums over a fold leave the client. Those of one or two rows are the rows, and log losses tell three to five of them,
# as a row's curvature depends on the row (`benchmarks.rows_folds`). From here on many sets of rows have the same sums.
FOLD_ROWS_OF_SQUARES, FOLD_ROWS_OF_LOGS = 5, 10
_TINY = 1e-10  # fraction of the curvature that keeps an undetermined direction where it starts


def fold_rows(loss: ConvexLoss) -> int:
    """Rows of one client that a sum must be over to be sent."""
    return FOLD_ROWS_OF_SQUARES if loss.criterion == "squared" else FOLD_ROWS_OF_LOGS


@dataclasses.dataclass(frozen=True)
class Sample:
    """The rows of all clients, sorted by client, each in one of `folds` folds that models leave out in turn."""

    loss: ConvexLoss  # without l2: penalties are given apart, and never touch a bias
    design: np.ndarray  # (rows, columns)
    goals: np.ndarray  # (rows, outputs)
    owner: np.ndarray  # (rows,)
    fold: np.ndarray  # (rows,)
    agents: int
    folds: int
    block: np.ndarray  # (rows,) number of the rows that stand or fall together
    copies: bool = False  # whether some client holds the rows of another

    @cached_property
    def counts(self) -> np.ndarray:
        """(clients,) rows of each."""
        return np.bincount(self.owner, minlength=self.agents)

    @cached_property
    def starts(self) -> np.ndarray:
        """(clients + 1,) where each client's rows begin."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def groups(self) -> Groups:
        """The rows client by client."""
        return Groups(self.loss, self.design, self.goals, self.starts)

    def grouped(self, label: np.ndarray, amount: int) -> tuple[np.ndarray, Groups]:
        """(rows,) the order of the rows by labels 0 to amount - 1, and the rows so."""
        # a stable sort: rows of a group keep their order, and sums over them their rounding
        order = np.argsort(label, kind="stable")
        starts = np.searchsorted(label[order], np.arange(amount + 1))
        return order, Groups(self.loss, self.design[order], self.goals[order], starts)

    def for_model(self, weights: np.ndarray) -> MatrixRows:
        """The rows under one model, those that count; `weights` are what one row of each client counts."""
        rows = self.take(weights[self.owner] > 0)
        return MatrixRows(rows.design, rows.goals, weights[rows.owner])

    def for_models(self, weights: np.ndarray) -> Weighted:
        """The rows under several models; `weights` are what one row of each client counts in each."""
        return Weighted(self.loss, self.design, self.goals, weights[:, self.owner])

    @cached_property
    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows,) numbers of the blocks, client by client, whatever they are called; (blocks,) the client of each."""
        pairs, number = np.unique(np.stack([self.owner, self.block]), axis=1, return_inverse=True)
        return number.reshape(-1), pairs[0]

    def block_sums(self, values: np.ndarray) -> np.ndarray:
        """Row values added up within blocks: (rows, ...) to (blocks, ...)."""
        number, owner = self.blocks
        sums = np.zeros((len(owner), *values.shape[1:]))
        np.add.at(sums, number, values)
        return sums

    @property
    def size(self) -> int:
        """Coefficients of one model."""
        return self.loss.size

    def ridge(self, penalty: float) -> np.ndarray:
        """(size,) the penalty's diagonal; a bias is free, but for a trace that ends the flight of a single class."""
        marks = np.full(self.loss.shape, float(penalty))
        if self.loss.bias:
            marks[-1] = 0.0 if self.loss.criterion == "squared" else BIAS_PENALTY
        return marks.reshape(-1)

    def without(self, fold: int) -> Sample:
        """The rows of the other folds."""
        return self.take(self.fold != fold)

    def only(self, fold: int) -> Sample:
        """The rows of one fold."""
        return self.take(self.fold == fold)

    def take(self, chosen: np.ndarray) -> Sample:
        """Some of the rows, of the same clients."""
        parts = {name: getattr(self, name)[chosen] for name in ("design", "goals", "owner", "fold", "block")}
        return dataclasses.replace(self, **parts)

    def heard(self, least: int) -> Sample:
        """Without the rows of clients that have fewer than `least`: these send nothing, and stay as clients."""
        return self.take(self.counts[self.owner] >= least)

    def some_agents(self, agents: np.ndarray) -> Sample:
        """Only these clients, numbered anew in the order given (which must rise)."""
        kept = self.take(self.rows_of(agents))
        owner = np.repeat(np.arange(len(agents)), self.counts[agents])
        return dataclasses.replace(kept, owner=owner, agents=len(agents))

    def rows_of(self, agents: np.ndarray) -> np.ndarray:
        """Places of these clients' rows, client after client."""
        counts = self.counts[agents]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(self.starts[agents], counts) + within

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Row values added up per client: (rows, ...) to (clients, ...)."""
        return sums_of_groups(values, self.starts)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Row values averaged per client; 0 for one without rows."""
        return self.sums(values) / np.maximum(self.counts, 1).reshape(-1, *[1] * (values.ndim - 1))


def make_sample(
    loss: ConvexLoss, rows: Rows, folds: int = 5, seed: int = 0, blocks: np.ndarray | None = None, least: int = 1
) -> Sample:
    """Deal every client's rows to folds at random, class by class, blocks (overlapping windows, say) undivided.

    A client fills fewer folds, if need be one, so that each has at least `least` rows.
    """
    if loss.size > MOST_COEFFICIENTS:
        raise RequestError(
            f"Advice on neighbours needs models of at most {MOST_COEFFICIENTS} coefficients, got {loss.size}; "
            "name fewer features."
        )
    if folds < 2:
        raise RequestError(f"folds must be at least 2, got {folds}; 5 is usual.")
    plain = dataclasses.replace(loss, l2=0.0)
    goals = plain.goals(rows.targets)
    owner = np.repeat(np.arange(rows.clients), rows.counts)
    fold = np.empty(len(owner), np.int64)
    block = np.arange(len(owner)) if blocks is None else np.asarray(blocks)
    # a class that sits in one fold only would be unknown to the model that is judged on it
    label = np.zeros(len(owner)) if loss.criterion == "squared" else goals @ np.arange(1, goals.shape[1] + 1)
    design = plain.design(rows.inputs)
    twins = _twins(design, goals, rows.offsets)
    for agent, (twin, sorting) in enumerate(twins):
        places = np.arange(rows.offsets[agent], rows.offsets[agent + 1])[sorting]
        _, first, number = np.unique(block[places], return_index=True, return_inverse=True)
        draws = host_generator(seed, Purpose.SPLIT, twin)
        chance = draws.permutation(len(first))[np.argsort(np.argsort(first))]  # by place among the sorted rows
        place = np.argsort(np.lexsort((chance, label[places][first])))
        start = int(draws.integers(folds))
        fold[places] = _dealt(place[number], folds, least, start)
    copies = any(twin != agent for agent, (twin, _) in enumerate(twins))
    return Sample(plain, design, goals, owner, fold, rows.clients, folds, block, copies)


def _dealt(place: np.ndarray, folds: int, least: int, start: int) -> np.ndarray:
    """(rows,) folds of one client: in turn, in as many folds as leave none of them with fewer than `least` rows."""
    for used in range(min(folds, max(len(place) // least, 1)), 0, -1):
        dealt = (place % used + start) % folds
        if used == 1 or np.bincount(dealt)[np.unique(dealt)].min() >= least:  # blocks are of different size
            break
    return dealt


def _twins(design: np.ndarray, goals: np.ndarray, offsets: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """(first client with the same rows, order of the rows) per client: twins leave the same rows out together."""
    seen: dict[bytes, int] = {}
    sortings, firsts = [], []
    for agent in range(len(offsets) - 1):
        whole = np.hstack([part[offsets[agent] : offsets[agent + 1]] for part in (goals, design)])
        sortings.append(np.lexsort(whole.T[::-1]))
        ordered = whole[sortings[-1]]
        distinct = 1 + int((np.diff(ordered, axis=0) != 0).any(axis=1).sum())
        # coin tosses agree by chance: rows that repeat themselves prove no copy
        content = ordered.tobytes() if 2 * distinct > len(ordered) else str(agent).encode()
        firsts.append(seen.setdefault(content, agent))
    # only twins are dealt by what their rows hold: for the others chance shall not know the values
    several = {first for first, times in Counter(firsts).items() if times > 1}
    return [
        (first, sorting if first in several else np.arange(len(sorting))) for first, sorting in zip(firsts, sortings)
    ]


class Expansion(NamedTuple):
    """sum over the rows of (client, fold) of their losses, to second order around `point`."""

    point: np.ndarray  # (size,)
    gradients: np.ndarray  # (clients, folds, size)
    hessians: np.ndarray  # (clients, folds, size, size)

    def without(self, fold: int | None) -> tuple[np.ndarray, np.ndarray]:
        """(gradients, Hessians) per client, over the other folds."""
        gradients, hessians = self.gradients.sum(axis=1), self.hessians.sum(axis=1)
        if fold is None:
            return gradients, hessians
        return gradients - self.gradients[:, fold], hessians - self.hessians[:, fold]

    def leaving(self, fold: int) -> Expansion:
        """The same sums, those of one fold taken away."""
        kept = (np.arange(self.gradients.shape[1]) != fold).astype(float)
        return Expansion(self.point, self.gradients * kept[:, None], self.hessians * kept[:, None, None])


def expand(sample: Sample, point: np.ndarray) -> Expansion:
    """Gradients and Hessians of every client and fold at one point."""
    loss, shape, coefficients = sample.loss, (sample.agents, sample.folds), point.reshape(sample.loss.shape)
    _, cells = sample.grouped(sample.owner * sample.folds + sample.fold, sample.agents * sample.folds)
    if sample.size <= FEW_COEFFICIENTS:
        gradients, hessians = cells.derivatives_at(loss.outputs(cells.design, coefficients))
        return Expansion(point, gradients.reshape(*shape, -1), hessians.reshape(*shape, sample.size, -1))
    gradients = np.zeros((*shape, sample.size))
    hessians = np.zeros((*shape, sample.size, sample.size))
    for cell in np.flatnonzero(np.diff(cells.starts)):
        rows, place = slice(*cells.starts[cell : cell + 2]), divmod(int(cell), sample.folds)
        part = MatrixRows(cells.design[rows], cells.goals[rows], np.ones(len(cells.goals[rows])))
        # of large models cell by cell: Hessians of single rows would not fit into memory
        gradients[place] = loss.gradient(part, coefficients).reshape(-1)
        hessians[place] = loss.hessian(part, coefficients)
    return Expansion(point, gradients, hessians)


def quick_models(
    sample: Sample, expansion: Expansion, weights: np.ndarray, penalty: float, without: int | None = None
) -> np.ndarray:
    """(models, size): minimisers of sum_j a_j (rows of j) + (penalty/2) |V|^2 for every row a of `weights`."""
    gradients, hessians = expansion.without(without)
    ridge = sample.ridge(penalty)
    curvature = np.einsum("jn,npq->jpq", weights, hessians)
    scale = np.maximum(np.trace(curvature, axis1=1, axis2=2) / sample.size, 1e-30)
    places = np.arange(sample.size)
    curvature[:, places, places] += ridge + _TINY * scale[:, None]
    gradient = weights @ gradients + ridge * expansion.point
    return expansion.point - np.linalg.solve(curvature, gradient[..., None])[..., 0]


def row_weights(shares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """What one row of j counts in client i's fit, from lambda_ij: n_eff lambda_ij / n_j, 1/n_eff = sum lambda^2/n_j.

    A client alone counts its rows once, all together count every row once: penalties mean the same for all.
    """
    counted = np.maximum(counts, 1)
    return shares / counted / np.maximum((shares**2 / counted).sum(axis=1, keepdims=True), 1e-300)


def score(sample: Sample, models: np.ndarray) -> np.ndarray:
    """(rows, models) losses of every model on every row."""
    columns, outputs = sample.loss.shape
    found = np.empty((len(sample.design), len(models)))
    width = len(models) * (columns if sample.loss.diagonal else outputs)
    step = max(1, SCORES_AT_ONCE // max(width, 1))
    for start in range(0, len(found), step):
        rows = slice(start, start + step)
        design, goals = sample.design[rows], sample.goals[rows]
        if sample.loss.diagonal:
            answers = design[:, None, :] * models[None]
        else:
            answers = np.tensordot(design, models.reshape(-1, columns, outputs), axes=(1, 1))
        if sample.loss.criterion == "squared":
            answers -= goals[:, None]
            found[rows] = 0.5 * np.einsum("rmo,rmo->rm", answers, answers)
            continue
        flat = answers.reshape(-1, answers.shape[-1])
        found[rows] = sample.loss.row_losses(flat, np.repeat(goals, len(models), axis=0)).reshape(-1, len(models))
    return found


def score_own(sample: Sample, models: np.ndarray) -> np.ndarray:
    """(rows,) loss of each row under its owner's model; `models` is (clients, size) or (clients, folds, size)."""
    chosen = models[sample.owner] if models.ndim == 2 else models[sample.owner, sample.fold]
    return sample.loss.row_losses(own_answers(sample.loss, sample.design, chosen), sample.goals)


def own_optima(sample: Sample, penalty: float, start: np.ndarray) -> np.ndarray:
    """(clients, size): every client's optimum on its own rows; few coefficients: all clients at once."""
    if sample.size <= FEW_COEFFICIENTS:
        return sample.groups.optima(sample.ridge(penalty), start)
    each = (sample.some_agents(np.array([agent])) for agent in range(sample.agents))
    return np.stack([optimum(one, np.ones(1), penalty, first) for one, first in zip(each, start)])


def common_model(sample: Sample, penalty: float) -> np.ndarray:
    """The optimum of all rows: damped Newton from zero."""
    return optimum(sample, np.ones(sample.agents), penalty, np.zeros(sample.size))


def optimum(sample: Sample, weights: np.ndarray, penalty: float, start: np.ndarray) -> np.ndarray:
    """argmin sum_j a_j (rows of j) + (penalty/2) |V|^2 by Newton steps, halved until the value falls."""
    loss, rows, ridge = sample.loss, sample.for_model(weights), sample.ridge(penalty)
    if len(rows.weights) == 0:
        return np.zeros(sample.size)  # all that a penalty alone asks for

    def value(point: np.ndarray) -> float:
        with np.errstate(over="ignore"):
            losses = loss.row_losses(loss.outputs(rows.design, point.reshape(loss.shape)), rows.goals)
            return float(rows.weights @ losses + 0.5 * (ridge * point) @ point)

    point, now = start.copy(), value(start)
    for _ in range(MOST_STEPS):
        coefficients = point.reshape(loss.shape)
        gradient = loss.gradient(rows, coefficients).reshape(-1) + ridge * point
        curvature = loss.hessian(rows, coefficients) + np.diag(ridge)
        # a direction without curvature (an unpenalised bias of a class without rows) stays where it is
        curvature += (_TINY * np.trace(curvature) / len(point) + 1e-30) * np.eye(len(point))
        step = np.linalg.solve(curvature, gradient)
        decrease, length = float(gradient @ step), 1.0
        if decrease <= 1e-12 * (1 + abs(now)):
            break
        # Armijo's rule: far from its optimum a log loss is flat, and a whole Newton step would jump beyond it
        while length > 1e-6 and value(point - length * step) > now - 0.25 * length * decrease:
            length /= 2
        if length <= 1e-6:
            break
        point = point - length * step
        now = value(point)
        if loss.criterion == "squared":
            break  # one step is exact
    return point
