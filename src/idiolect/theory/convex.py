# SPDX-License-Identifier: Apache-2.0
"""The convex client losses that theory knows, in matrix form and float64.

A row's outputs are linear in the coefficients V (columns, outputs): z V for `Linear` (z = the row, and 1
where there is a bias), x * v coordinate by coordinate for `Location`. So f'_m(V) = sum_i a_i
criterion(outputs_i, y_i) + (l2/2) |V|^2 with a_i = 1/n.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from idiolect.core.objective import Objective
from idiolect.core.tree import Params
from idiolect.models import Linear, Location
from idiolect.objectives import ClientLoss


class MatrixRows(NamedTuple):
    """Rows in matrix form with a weight each; the weights of one client sum to 1."""

    design: np.ndarray
    goals: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class ConvexLoss:
    """One client's loss as a function of a coefficient matrix."""

    criterion: str  # "squared", "logistic" or "cross_entropy"
    features: int
    width: int  # the model's `outputs`: 0 means one plain number
    bias: bool
    diagonal: bool  # Location: the design acts coordinate by coordinate
    l2: float

    @property
    def columns(self) -> int:
        """Rows of the coefficient matrix: features, and one for the bias."""
        return self.features + int(self.bias)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the coefficient matrix."""
        return self.columns, max(self.width, 1)

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return self.shape[0] * self.shape[1]

    def design(self, inputs: Any) -> np.ndarray:
        """(rows, columns) in float64; a bias is a column of ones."""
        flat = np.asarray(inputs, np.float64).reshape(len(inputs), self.features)
        return np.hstack([flat, np.ones((len(flat), 1))]) if self.bias else flat

    def goals(self, targets: Any) -> np.ndarray:
        """Targets as outputs should be: (rows, outputs); classes of a softmax as unit vectors."""
        if self.criterion == "cross_entropy":
            return np.eye(self.width)[np.asarray(targets, np.int64).reshape(-1)]
        width = self.features if self.diagonal else max(self.width, 1)
        return np.asarray(targets, np.float64).reshape(len(targets), width)

    def outputs(self, design: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """What the model answers, row by row."""
        return design * coefficients[:, 0] if self.diagonal else design @ coefficients

    def row_losses(self, outputs: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """(rows,) losses, without the l2 term."""
        if self.criterion == "squared":
            return 0.5 * ((outputs - goals) ** 2).sum(axis=1)
        if self.criterion == "logistic":
            # log(1 + exp(-margin)) in both tails: by hand it overflows on one side and loses its digits on the other
            return np.logaddexp(0.0, outputs - 2 * goals * outputs)[:, 0]
        return logsumexp(outputs, axis=1) - (outputs * goals).sum(axis=1)

    def row_gradients(self, outputs: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Derivative of every row's loss by its outputs."""
        if self.criterion == "squared":
            return outputs - goals
        if self.criterion == "logistic":
            return np.exp(-np.logaddexp(0.0, -outputs)) - goals
        return softmax(outputs, axis=1) - goals

    def curved(self, outputs: np.ndarray, goals: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """Second derivative of every row's loss by its outputs, times each of its moves, (rows, moves, outputs)."""
        if self.criterion == "squared":
            return moves
        chances = (self.row_gradients(outputs, goals) + goals)[:, None]  # predicted probabilities
        weighed = chances * moves
        others = weighed if self.criterion == "logistic" else weighed.sum(axis=2, keepdims=True)
        return weighed - chances * others

    def pull_back(self, design: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Output gradients, already weighted, as a gradient by the coefficients."""
        return (design * gradients).sum(axis=0)[:, None] if self.diagonal else design.T @ gradients

    def value(self, rows: MatrixRows, coefficients: np.ndarray) -> float:
        """sum_i a_i loss_i + (l2/2) |V|^2."""
        losses = self.row_losses(self.outputs(rows.design, coefficients), rows.goals)
        return float(rows.weights @ losses + 0.5 * self.l2 * np.sum(coefficients**2))

    def gradient(self, rows: MatrixRows, coefficients: np.ndarray) -> np.ndarray:
        """Its gradient, in the coefficients' shape."""
        gradients = self.row_gradients(self.outputs(rows.design, coefficients), rows.goals)
        return self.pull_back(rows.design, rows.weights[:, None] * gradients) + self.l2 * coefficients

    def hessian_product(self, rows: MatrixRows, coefficients: np.ndarray, along: np.ndarray) -> np.ndarray:
        """Its Hessian times a direction, both in the coefficients' shape."""
        design, goals, weights = rows
        moves = self.outputs(design, along)[:, None]
        curved = self.curved(self.outputs(design, coefficients), goals, moves)[:, 0]
        return self.pull_back(design, weights[:, None] * curved) + self.l2 * along

    def hessian(self, rows: MatrixRows, coefficients: np.ndarray) -> np.ndarray:
        """Its Hessian, by the coefficients one after another."""
        design, goals, weights = rows
        columns, outputs = self.shape
        if self.diagonal:
            return np.diag(weights @ design**2 + self.l2)
        ridge = self.l2 * np.eye(columns * outputs)
        if self.criterion == "squared":
            return np.kron(design.T @ (weights[:, None] * design), np.eye(outputs)) + ridge
        chances = self.row_gradients(self.outputs(design, coefficients), goals) + goals
        if self.criterion == "logistic":
            curvature = (weights * chances[:, 0] * (1 - chances[:, 0]))[:, None]
            return design.T @ (curvature * design) + ridge
        blocks = np.empty((columns, outputs, columns, outputs))
        for one, other in np.ndindex(outputs, outputs):
            mixed = chances[:, one] * ((one == other) - chances[:, other])
            blocks[:, one, :, other] = design.T @ ((weights * mixed)[:, None] * design)
        return blocks.reshape(columns * outputs, -1) + ridge

    def to_params(self, coefficients: np.ndarray) -> Params:
        """The coefficients as the model's own parameters."""
        if self.diagonal:
            return {"location": coefficients[:, 0]}
        shaped = coefficients[:, 0] if self.width == 0 else coefficients
        params = {"weights": shaped[: self.features].T}
        return params | {"bias": shaped[self.features]} if self.bias else params

    def stack_params(self, several: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
        """The coefficients of several clients as stacked parameters."""
        parts = [self.to_params(coefficients) for coefficients in several]
        return {name: np.stack([part[name] for part in parts]) for name in parts[0]}

    def from_params(self, params: Params) -> np.ndarray:
        """The model's own parameters as coefficients."""
        if self.diagonal:
            return np.asarray(params["location"], np.float64).reshape(self.shape)
        weights = np.asarray(params["weights"], np.float64).reshape(self.shape[1], self.features).T
        return np.vstack([weights, np.reshape(params["bias"], (1, -1))]) if self.bias else weights


def convex_loss(objective: Objective | ClientLoss) -> ConvexLoss | None:
    """The matrix form of the objective's client loss; None where theory does not know it (an MLP, say)."""
    client_loss = objective if isinstance(objective, ClientLoss) else getattr(objective, "client_loss", None)
    if not isinstance(client_loss, ClientLoss):
        return None
    model, criterion = client_loss.model, client_loss.criterion
    l2 = float(client_loss.l2 or 0.0)
    if isinstance(model, Location) and criterion == "squared":
        return ConvexLoss(criterion, model.features, 0, bias=False, diagonal=True, l2=l2)
    if not isinstance(model, Linear):
        return None
    # the logistic loss wants one plain output, the softmax at least one column of scores
    fits = {"squared": True, "logistic": model.outputs == 0, "cross_entropy": model.outputs > 0}
    if not fits.get(criterion, False):  # poisson has no largest curvature, pinball none at all
        return None
    return ConvexLoss(criterion, model.features, model.outputs, model.bias, diagonal=False, l2=l2)
