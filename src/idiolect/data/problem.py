# SPDX-License-Identifier: Apache-2.0
"""A synthetic problem: its rows and what is known about it, for tests of truth and of rates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from idiolect.core.data import Rows
from idiolect.data.federation import Federation, no_rows
from idiolect.data.task import Task

Each: TypeAlias = np.ndarray | Sequence[np.ndarray]  # client by client


@dataclasses.dataclass(frozen=True)
class Problem:
    """f_m(v) = mean over client m's rows of criterion(model(v, x), y) + (l2 / 2) |v|^2, and its known facts.

    Facts are float64 whatever the rows' precision; what is not known is None.
    """

    federation: Federation
    model: str  # "linear" (no bias, one plain output) or "location"
    criterion: str  # "squared" or "logistic"
    dimension: int  # length of v
    smoothness: np.ndarray  # (clients,): L_m, an upper bound on f_m's curvature
    strong_convexity: np.ndarray  # (clients,): mu_m, a lower bound
    l2: float = 0.0
    optimum: np.ndarray | None = None  # (clients, dimension): v*_m = argmin f_m
    shared_optimum: np.ndarray | None = None  # (dimension,): argmin mean_m f_m
    hessians: np.ndarray | None = None  # (clients, dimension, dimension), where quadratic
    constants: np.ndarray | None = None  # (clients,): what the stated f_m adds to the loss of the rows
    noise_variance: float = 0.0  # E|grad of one row - grad f_m|^2, where it does not depend on v
    component_smoothness: np.ndarray | None = None  # (clients,): largest curvature of a single row's loss
    truth: np.ndarray | None = None  # (clients, k): what the personal part of the rows was drawn from
    shared_truth: np.ndarray | None = None  # (dimension - k or dimension,): the same for the shared part
    curvature_at_truth: float | None = None  # smallest eigenvalue of the mean Hessian at the truth

    @property
    def clients(self) -> int:
        """Number of clients."""
        return self.federation.clients


def stack(inputs: Each, targets: Each, dtype: DTypeLike) -> Rows:
    """Rows from one array of inputs and targets per client; whole-number targets become class numbers."""
    offsets = np.concatenate([[0], np.cumsum([len(values) for values in targets])]).astype(np.int64)
    values = np.concatenate(targets)
    kind = np.int32 if values.dtype.kind in "iu" else dtype
    return Rows(np.concatenate(inputs).astype(dtype), values.astype(kind), offsets)


def federate(train: Rows, task: Task, note: str, test: Rows | None = None) -> Federation:
    """A federation of training rows, with test rows where given and no validation rows."""
    names = tuple(str(client) for client in range(train.clients))
    nothing = no_rows(train)
    return Federation(train, nothing, nothing if test is None else test, names, task, notes=(note,))
