# SPDX-License-Identifier: Apache-2.0
"""What a client says of its rows along common directions: means of neighbouring rows, too few to give a row away.

Single values along more directions than a row has features give the rows themselves away, each where its values meet,
and so do means of two or five rows if there are enough of them (`benchmarks.rows_sliced` does both). Therefore every
number is a mean over at least ROWS_PER_MEAN rows, and a client sends at most PART as many numbers as its rows hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows

ROWS_PER_MEAN = 10
LEAST_ROWS = 2 * ROWS_PER_MEAN  # two means: fewer describe no distribution
PART = 0.25  # numbers sent per number held, at most
GRID = (np.arange(64) + 0.5) / 64  # where the steps of two clients are compared


class Shadow(NamedTuple):
    """What one client sends."""

    means: np.ndarray  # (bins, directions) of rows that are neighbours along a direction, in rising order
    halves: float  # how far apart two random halves of its rows are: the noise of its means
    rows: int

    @property
    def numbers(self) -> int:
        """Sent in all."""
        return self.means.size + 2


def refuse_few_rows(counts: np.ndarray, least: int, names: Sequence[str] | None = None) -> None:
    """RequestError for a client whose summary would be its rows."""
    client = int(counts.argmin())
    if counts[client] >= least:
        return
    who = f"client {names[client]!r}" if names is not None else f"client {client}"
    raise RequestError(
        f"Distances of rows need at least {least} rows of every client, so that what it sends is a summary and not its "
        f"rows, and {who} has {counts[client]}; leave it out, or give [collaboration] source = "
        '"models", "mixture" or "file".'
    )


def count_directions(counts: np.ndarray, features: int, most: int) -> int:
    """Common directions, so few that the smallest client stays within PART; one where there is one feature."""
    if features == 1:
        return 1
    allowed = PART * counts * features / _bins(counts)
    return int(max(min(most, allowed.min()), 1))


def describe(rows: Rows, shadows: np.ndarray, draws: np.random.Generator) -> list[Shadow]:
    """Every client's summary of its (rows, directions) values; `refuse_few_rows` comes first."""
    found = []
    for first, last in zip(rows.offsets[:-1], rows.offsets[1:]):
        own = shadows[first:last]
        bins = int(_bins(len(own)))
        order = draws.permutation(len(own))
        one, other = (steps(_bin_means(own[part], bins)) for part in (order[::2], order[1::2]))
        found.append(Shadow(_bin_means(own, bins), float(np.abs(one - other).mean()), len(own)))
    return found


def _bins(counts: np.ndarray | int) -> np.ndarray:
    return np.minimum(np.asarray(counts) // ROWS_PER_MEAN, len(GRID))


def _bin_means(values: np.ndarray, bins: int) -> np.ndarray:
    """(bins, directions): means of the sorted values, bin by bin, all bins of nearly one size."""
    return np.stack([part.mean(axis=0) for part in np.array_split(np.sort(values, axis=0), bins)])


def steps(means: np.ndarray) -> np.ndarray:
    """The means as a step function on the common grid, all directions one after the other."""
    return means[(GRID * len(means)).astype(int)].reshape(-1)
