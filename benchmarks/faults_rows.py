# SPDX-License-Identifier: Apache-2.0
"""How many rows attacks recover from what leaves a client: uploads, preparation, distances of rows, sums over folds."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.rows_folds import CRITERIA, attack_folds
from benchmarks.rows_sliced import attack_order_statistics, attack_sliced, luck
from benchmarks.rows_uploads import recovered
from idiolect.algorithms import ALGORITHMS
from idiolect.data.summaries import Numbers, summarise_numbers

ROWS = (1, 2, 5, 20, 100)
SOME = ("fedavg", "l2gd", "minibatch_sgd")  # a short look


def row_recovery(quick: bool) -> dict[str, Any]:
    """Parts of a client's rows recovered, by what was attacked and the number of rows; None: nothing is sent."""
    sizes = ROWS[:3] if quick else ROWS
    starts = 1 if quick else 10
    found: dict[str, Any] = {
        "preparation, values of a column": {count: attack_preparation(count) for count in sizes},
        "distances of rows, as before": {count: attack_order_statistics(count) for count in sizes},
        "distances of rows": {count: attack_sliced(count, quick) for count in sizes},
        "distances of rows, by luck": {count: luck(count) for count in sizes},
    }
    for criterion in CRITERIA:
        for guarded in (False, True):
            name = f"sums over folds, {criterion}" + ("" if guarded else ", as before")
            found[name] = {count: attack_folds(count, criterion, guarded, starts) for count in sizes}
    for name in SOME if quick else ALGORITHMS:
        found[f"uploads of {name}"] = {count: recovered(name, count, quick)._asdict() for count in sizes}
    return found


def attack_preparation(count: int) -> float:
    """Part of the values of one column that its mean, squares, lowest and highest tell."""
    values = np.random.default_rng(count).normal(size=count)
    guesses = _values_of(summarise_numbers(values, np.zeros(count, np.int64), 1))
    return float((np.abs(values[:, None] - guesses).min(axis=1) < 1e-9).mean())


def _values_of(sums: Numbers) -> np.ndarray:
    """Values that have these sums: both ends, and one or two between them."""
    count, ends = int(sums.present[0]), np.array([sums.lowest[0], sums.highest[0]])
    rest = count * sums.mean[0] - ends.sum()
    if count == 3:
        return np.append(ends, rest)
    if count != 4:
        return ends
    middle = rest / 2  # the two others lie as far from it as the squares say
    squares = sums.squares[0] - ((ends - sums.mean[0]) ** 2).sum() - 2 * (middle - sums.mean[0]) ** 2
    return np.concatenate([ends, middle + np.sqrt(max(squares, 0.0) / 2) * np.array([-1, 1])])
