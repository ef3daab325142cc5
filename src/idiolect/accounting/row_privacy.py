# SPDX-License-Identifier: Apache-2.0
"""Epsilon of the rows of one client: its noisy gradients, counted as rounds of clients are.

| batches | mechanism of a gradient |
|---|---|
| all rows, or an epoch, whose batches hold each row once | Gaussian, multiplier z; one for each pass |
| each row by a coin of its own, with chance batch_size / rows | sampled Gaussian, multiplier z |

Neighbours are a client's rows and the same with one of them emptied: then its gradient is zero. How many rows there are
is no secret. A row that is replaced by another one is emptied and filled: two such steps.
"""

from __future__ import annotations

from typing import NamedTuple

from idiolect.accounting.client_privacy import Rounds, noise_for, spent_epsilon


class RowReading(NamedTuple):
    """How a client's gradients read its rows."""

    batch_size: int  # expected rows of a batch by coins; 0: every gradient, or every epoch, reads all rows
    gradients: int  # of a round; where batches are an epoch's, passes
    accountant: str


def spent_on_rows(reading: RowReading, rows: int, rounds: int, noise_multiplier: float, delta: float) -> float:
    """What so many rounds spend of a client with so many rows, at `delta`."""
    return spent_epsilon(_mechanism(reading, rows), rounds * reading.gradients, noise_multiplier, delta)


def noise_for_rows(reading: RowReading, rows: int, rounds: int, epsilon: float, delta: float) -> float:
    """The smallest noise multiplier, to one part in a thousand, with which so many rounds spend no more."""
    return noise_for(_mechanism(reading, rows), rounds * reading.gradients, epsilon, delta)


def _mechanism(reading: RowReading, rows: int) -> Rounds:
    chance = min(1.0, reading.batch_size / rows) if reading.batch_size else 1.0
    return Rounds(1, 1, chance, chance < 1, reading.accountant)
