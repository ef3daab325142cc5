# SPDX-License-Identifier: Apache-2.0
"""A client of few test rows that decides a mean over clients: what is said of the mean names it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from idiolect.record.words import counted
from idiolect.report.wording import ScoreWords

_FEWEST = 4  # clients, for one of them to be told from the others
_FEW_ROWS = 5  # times as many test rows has the median client
_DECIDES = 0.3  # of half the interval of the mean
_ROUNDING = 1e-9  # of the largest gain: equal gains have a mean that differs by no more


def difference(value: float | None, other: float | None) -> float:
    """Of two scores; not-a-number where one is missing."""
    return np.nan if value is None or other is None else value - other


def decider(
    words: ScoreWords,
    what: str,
    names: Sequence[str] | np.ndarray,
    gains: Sequence[float] | np.ndarray,
    test_rows: Sequence[float] | np.ndarray,
    interval: Sequence[float | None] = (),
) -> str:
    """' Client a has 1 test row and decides WHAT: without it +0.1.', or nothing where no client decides the mean gain.

    Without an `interval` of the mean, one by the spread of the gains counts.
    """
    values, rows = np.asarray(gains, float), np.asarray(test_rows, float)
    used = np.isfinite(values)
    values, rows, kept = values[used], rows[used], np.asarray(names)[used]
    if len(values) < _FEWEST:
        return ""
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    if interval:
        low, high = interval
        if low is None or high is None:
            return ""
        half = (high - low) / 2
    without = (values.sum() - values) / (len(values) - 1)
    moved = np.abs(values.mean() - without)
    one = int(moved.argmax())
    # of clients with as many rows none is more than a part of the noise that the interval states
    noise = _DECIDES * half + _ROUNDING * np.abs(values).max()
    if rows[one] * _FEW_ROWS > np.median(rows) or moved[one] <= noise:
        return ""
    has = counted(int(rows[one]), "test row")
    return f" Client {kept[one]} has {has} and decides {what}: without it {words.signed(float(without[one]))}."
