# SPDX-License-Identifier: Apache-2.0
"""Rows as the classical fits take them: numbers, with the client of each row."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Side:
    """Rows that are learned from, or tested on."""

    inputs: np.ndarray
    targets: np.ndarray
    owner: np.ndarray
    groups: np.ndarray | None = None  # rows that stay together

    def of(self, client: int) -> Side:
        """One client's rows."""
        kept = self.owner == client
        groups = None if self.groups is None else self.groups[kept]
        return Side(self.inputs[kept], self.targets[kept], self.owner[kept], groups)

    def with_inputs(self, inputs: np.ndarray) -> Side:
        """The same rows with other inputs."""
        return dataclasses.replace(self, inputs=inputs)


@dataclasses.dataclass(frozen=True)
class Sides:
    """Both sides of a split, the clients' names, and the number of classes (0: the target is a number)."""

    learn: Side
    test: Side
    names: list[str]
    classes: int

    def per_client(self, values: np.ndarray) -> list[float | None]:
        """Mean of a value per test row over each client's rows; None for a client without any."""
        amount = len(self.names)
        rows = np.bincount(self.test.owner, minlength=amount)
        sums = np.bincount(self.test.owner, values, minlength=amount)
        return [float(total / count) if count else None for total, count in zip(sums, rows)]
