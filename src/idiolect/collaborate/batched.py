# SPDX-License-Identifier: Apache-2.0
"""Newton's method for many models at once: every client's own, or weighted models of a block of clients."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from idiolect.theory.convex import ConvexLoss

NUMBERS_AT_ONCE = 4_000_000  # held in memory while rows are turned into Hessians
MOST_STEPS = 50
_SMALLEST = 1e-6  # length of a step below which the search ends
_TINY = 1e-10  # fraction of the curvature that keeps an undetermined direction where it starts


def sums_of_groups(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Rows that stand group by group, added up; group g holds the rows starts[g] to starts[g + 1], perhaps none."""
    found = np.zeros((len(starts) - 1, *values.shape[1:]))
    filled = np.flatnonzero(np.diff(starts))
    if len(filled):
        # of a group without rows `reduceat` would return the next group's first row, not 0
        found[filled] = np.add.reduceat(values, starts[filled], axis=0)
    return found


def derivatives(
    loss: ConvexLoss, design: np.ndarray, goals: np.ndarray, answers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(rows, size) gradients and (rows, size, size) Hessians of every row's loss, by the coefficients."""
    by_output = loss.row_gradients(answers, goals)
    rows, (columns, outputs) = len(design), loss.shape
    if loss.diagonal:
        return design * by_output, np.einsum("rc,cd->rcd", design**2, np.eye(columns))
    gradients = (design[:, :, None] * by_output[:, None, :]).reshape(rows, columns * outputs)  # also without a row
    squares = design[:, :, None] * design[:, None, :]
    # gradients by the outputs are predictions less goals, for all three losses
    curved = output_curvature(loss, by_output + goals)
    if outputs == 1:
        return gradients, squares * curved
    hessians = np.einsum("rcd,rkl->rckdl", squares, curved)
    return gradients, hessians.reshape(rows, columns * outputs, columns * outputs)


def output_curvature(loss: ConvexLoss, chances: np.ndarray) -> np.ndarray:
    """(rows, outputs, outputs) second derivative of every row's loss by its outputs; `chances` are predicted."""
    outputs = chances.shape[1]
    if loss.criterion == "squared":
        return np.broadcast_to(np.eye(outputs), (len(chances), outputs, outputs))
    if loss.criterion == "logistic":
        return (chances * (1 - chances))[:, :, None]
    return chances[:, :, None] * np.eye(outputs) - chances[:, :, None] * chances[:, None, :]


def own_answers(loss: ConvexLoss, design: np.ndarray, models: np.ndarray) -> np.ndarray:
    """(rows, outputs): every row's answer from the model beside it, (rows, size)."""
    if loss.diagonal:
        return design * models
    return np.einsum("rc,rco->ro", design, models.reshape(-1, *loss.shape))


@dataclasses.dataclass(frozen=True)
class Groups:
    """Rows that stand group by group, each group with a model of its own; group g holds starts[g] to starts[g + 1]."""

    loss: ConvexLoss
    design: np.ndarray
    goals: np.ndarray
    starts: np.ndarray

    @functools.cached_property
    def owner(self) -> np.ndarray:
        """(rows,) the group of each."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def pieces(self) -> Iterator[tuple[slice, slice, Groups]]:
        """Some groups at a time with their rows, so few that memory is bounded; a group that is larger stands alone."""
        most, first = max(NUMBERS_AT_ONCE // self.loss.size**2, 1), 0
        while first < len(self.starts) - 1:
            last = int(np.searchsorted(self.starts, self.starts[first] + most, side="right")) - 1
            last = min(max(last, first + 1), len(self.starts) - 1)
            rows, here = (
                slice(self.starts[first], self.starts[last]),
                self.starts[first : last + 1] - self.starts[first],
            )
            yield slice(first, last), rows, Groups(self.loss, self.design[rows], self.goals[rows], here)
            first = last

    def values(self, models: np.ndarray) -> np.ndarray:
        """(groups,) sums of losses."""
        answers = own_answers(self.loss, self.design, models[self.owner])
        return sums_of_groups(self.loss.row_losses(answers, self.goals), self.starts)

    def derivatives(self, models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(groups, size) gradients and (groups, size, size) Hessians."""
        return self.derivatives_at(own_answers(self.loss, self.design, models[self.owner]))

    def derivatives_at(self, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same where the rows' answers are known."""
        size, groups = self.loss.size, len(self.starts) - 1
        gradients, hessians = np.zeros((groups, size)), np.zeros((groups, size, size))
        for place, rows, part in self.pieces():
            gradient, curve = derivatives(self.loss, part.design, part.goals, answers[rows])
            gradients[place], hessians[place] = (sums_of_groups(one, part.starts) for one in (gradient, curve))
        return gradients, hessians

    def optima(self, ridge: np.ndarray, start: np.ndarray) -> np.ndarray:
        """(groups, size) minimisers of each group's summed losses + (ridge/2) v^2; zero for a group without rows."""
        found = np.zeros_like(start)
        for place, _, part in self.pieces():
            found[place] = _newton(part, ridge, start[place])
        found[np.diff(self.starts) == 0] = 0.0
        return found


@dataclasses.dataclass(frozen=True)
class Weighted:
    """The same rows under several models, each with its own weight of every row."""

    loss: ConvexLoss
    design: np.ndarray
    goals: np.ndarray
    per_row: np.ndarray  # (models, rows)

    @functools.cached_property
    def squares(self) -> np.ndarray:
        """x x^T of every row, once for all models and steps: a Hessian is then one product of matrices."""
        return (self.design[:, :, None] * self.design[:, None, :]).reshape(len(self.design), -1)

    def pieces(self) -> Iterator[tuple[slice, Weighted]]:
        """Few enough models at a time: each holds a square of outputs per row."""
        step = max(1, NUMBERS_AT_ONCE // max(len(self.design) * self.loss.shape[1] ** 2, 1))
        for first in range(0, len(self.per_row), step):
            place = slice(first, first + step)
            yield place, dataclasses.replace(self, per_row=self.per_row[place])

    def _answers(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(models x rows, outputs) answers and goals."""
        coefficients = points.reshape(len(points), *self.loss.shape)
        answers = np.einsum("rc,mco->mro", self.design, coefficients, optimize=True)
        return answers.reshape(-1, self.loss.shape[1]), np.tile(self.goals, (len(points), 1))

    def values(self, points: np.ndarray) -> np.ndarray:
        """(models,) weighted sums of losses."""
        losses = self.loss.row_losses(*self._answers(points)).reshape(self.per_row.shape)
        return np.einsum("mr,mr->m", self.per_row, losses)

    def derivatives(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(models, size) gradients and (models, size, size) Hessians."""
        models, (columns, outputs) = len(points), self.loss.shape
        answers, goals = self._answers(points)
        by_output = self.loss.row_gradients(answers, goals)
        curved = output_curvature(self.loss, by_output + goals).reshape(*self.per_row.shape, outputs, outputs)
        by_output = by_output.reshape(*self.per_row.shape, outputs)
        gradients = np.stack([(self.per_row * by_output[..., k]) @ self.design for k in range(outputs)], axis=-1)
        hessians = np.empty((models, columns, outputs, columns, outputs))
        for one, other in np.ndindex(outputs, outputs):
            # output by output, each a product of matrices: as one einsum it would not go to BLAS
            mixed = (self.per_row * curved[..., one, other]) @ self.squares
            hessians[:, :, one, :, other] = mixed.reshape(models, columns, columns)
        return gradients.reshape(models, -1), hessians.reshape(models, columns * outputs, -1)

    def optima(self, ridge: np.ndarray, start: np.ndarray) -> np.ndarray:
        """(models, size) minimisers of sum_r per_row[m, r] loss_r + (ridge/2) v^2."""
        found = np.empty_like(start)
        for place, part in self.pieces():
            found[place] = _newton(part, ridge, start[place])
        return found

    def hessians(self, models: np.ndarray) -> np.ndarray:
        """(models, size, size) of the weighted losses."""
        return np.concatenate([part.derivatives(models[place])[1] for place, part in self.pieces()])


def newton_steps(gradient: np.ndarray, curvature: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """(models, size) (curvature + ridge)^-1 gradient; the curvature is changed."""
    places = np.arange(len(ridge))
    curvature[:, places, places] += ridge
    scale = np.trace(curvature, axis1=1, axis2=2) / len(ridge)
    # a direction without curvature, such as the bias of a class without rows, would make the system singular
    curvature[:, places, places] += (_TINY * scale + 1e-30)[:, None]
    return np.linalg.solve(curvature, gradient[..., None])[..., 0]


def _newton(problem: Groups | Weighted, ridge: np.ndarray, start: np.ndarray) -> np.ndarray:
    """(models, size) minimisers: Newton steps, halved until the value falls; one step is exact for squares."""

    def value(points: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return problem.values(points) + 0.5 * (points**2) @ ridge

    point, now = start.copy(), value(start)
    for _ in range(MOST_STEPS):
        gradient, curvature = problem.derivatives(point)
        gradient = gradient + ridge * point
        step = newton_steps(gradient, curvature, ridge)
        decrease = (gradient * step).sum(axis=1)
        # all models step together in one batched solve; one that has arrived waits with a step of length 0
        moving = decrease > 1e-12 * (1 + np.abs(now))
        if not moving.any():
            break
        length = np.where(moving, 1.0, 0.0)
        # Armijo's rule: far from its optimum a log loss is flat, and a whole Newton step would jump beyond it
        for _ in range(20):
            tried = value(point - length[:, None] * step)
            short = moving & (tried > now - 0.25 * length * decrease) & (length > 0)
            if not short.any():
                break
            length = np.where(short, length / 2, length)
            length = np.where(length <= _SMALLEST, 0.0, length)
        point = point - length[:, None] * step
        now = value(point)
        if problem.loss.criterion == "squared" or not (length > 0).any():
            break
    return point
