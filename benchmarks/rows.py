# SPDX-License-Identifier: Apache-2.0
"""How many rows attacks recover from what leaves a client: uploads, preparation, distances of rows, sums over folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Result
from benchmarks.rows_folds import CRITERIA, attack_folds
from benchmarks.rows_sliced import attack_order_statistics, attack_sliced, luck
from benchmarks.rows_uploads import recovered
from idiolect.algorithms import ALGORITHMS
from idiolect.data.preparation import Numbers, summarise_numbers

ROWS = (1, 2, 5, 20, 100)
SOME = ("fedavg", "l2gd", "minibatch_sgd")  # a short look
LEGEND = """\
columns: rows of the attacked client; entries: parts of them recovered, within 1 % of a standard deviation per feature
uploads: written down from the uploads alone, then: picked out of 200 candidates that were not trained on
-: nothing is sent, it is refused, or no layer that takes a row is sent"""


def parts(quick: bool) -> Iterator[Result]:
    """One attack after another, at all sizes; each result holds those before it."""
    found: dict[str, Any] = {}
    for name, attack in _attacks(quick):
        found[name] = {str(count): attack(count) for count in (ROWS[:3] if quick else ROWS)}
        yield Result(found, text=_table(found))


def _attacks(quick: bool) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """What is attacked, and the attack: a number of rows -> parts of them recovered; None: nothing to attack."""
    starts = 1 if quick else 30
    yield "preparation, values of a column", attack_preparation
    yield "distances of rows, as before", attack_order_statistics
    yield "distances of rows", partial(attack_sliced, quick=quick)
    yield "distances of rows, by luck", luck
    for criterion in CRITERIA:
        for guarded in (False, True):
            name = f"sums over folds, {criterion}" + ("" if guarded else ", as before")
            yield name, partial(attack_folds, criterion=criterion, guarded=guarded, starts=starts)
    for name in SOME if quick else ALGORITHMS:
        yield f"uploads of {name}", partial(_attack_uploads, name, quick=quick)


def _attack_uploads(name: str, count: int, quick: bool) -> dict[str, float] | None:
    found = recovered(name, count, quick)
    return None if found is None else found._asdict()


def _table(found: dict[str, Any]) -> str:
    """The tables of docs/reliability.md: parts of a client's rows that were recovered, in percent."""
    sizes = list(next(iter(found.values())))
    lines = [f"| what leaves a client | {' | '.join(sizes)} |", "|---" * (len(sizes) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(map(_words, by_size.values()))} |" for name, by_size in found.items()]
    return "\n".join([*lines, "", LEGEND])


def _words(found: Any) -> str:
    if found is None:
        return "-"
    if isinstance(found, dict):
        return f"{_words(found['blind'])}, {_words(found['known'])}"
    return f"{100 * found:.0f} %" if found else "0"


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
