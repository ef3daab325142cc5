# SPDX-License-Identifier: Apache-2.0
"""Columns that are rarely meant as inputs: row numbers, ids, splits, dates, and those that settle the target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from idiolect.data.columns import as_numbers, has_long_integers, is_text, kind_of
from idiolect.data.kinds import DATE, NUMBER, TEXT, TRUTH
from idiolect.data.split import SPELLINGS

if TYPE_CHECKING:
    import pyarrow as pa

FEWEST_ROWS = 10  # with fewer rows, values that are all different say nothing
SETTLING_ROWS = 30  # with fewer training rows, a column may settle the target by chance
MOST_ROWS = 20_000  # enough to see it
SETTLED = 0.995  # of the rows, by a column's levels or intervals
CORRELATED = 0.999
TRIVIAL = 0.95  # a class with more of the rows is nearly always right, whatever the inputs
_ID_WORD = re.compile(r"(?:^|[_\W])(?:ids?|index|idx|uuid|guid|key|row(?:_?(?:id|names?|number|num))?)$", re.IGNORECASE)
_ID_CAMEL = re.compile(r"[a-z](?:Id|ID)$")
_SPLIT_NAME = re.compile(r"(?:is|in|for)?[_ ]?(?:train|training|test|testing|validation|holdout)(?:[_ ]?set)?")


class Doubts(NamedTuple):
    """Features that remain, those left out with the sentence why, and warnings about those that remain."""

    kept: list[str]
    left_out: dict[str, str]
    warnings: list[str]


def doubt_features(table: pa.Table, features: list[str], named: Sequence[str]) -> Doubts:
    """Row numbers, ids of one row each and splits are left out unless they are among `named`; dates stay.

    A row number that is the only input stays, because without it there would be nothing to predict from.
    """
    left_out = {name: text for name in features if name not in named and (text := _reason(table, name))}
    warnings = []
    if features and len(left_out) == len(features):
        only = [name for name in features if _is_row_number(table, name)]
        left_out = {name: text for name, text in left_out.items() if name not in only}
        warnings += [f"Column {name!r} numbers the rows; it was kept because no other input is left." for name in only]
    kept = [name for name in features if name not in left_out]
    warnings += [
        f"Column {name!r} holds dates, read as days since 1970; --time {name} splits by time instead, "
        f"--drop {name} leaves it out."
        for name in kept
        if kind_of(table.column(name)) == DATE
    ]
    return Doubts(kept, left_out, warnings)


def _reason(table: pa.Table, name: str) -> str:
    """Why a column is left out, or nothing."""
    column = table.column(name)
    if kind_of(column) is None:
        return ""  # cannot be an input at all, which is said when the column is fitted
    keep = f"keep it by naming the inputs with --features, {name} among them"
    if _is_split(column, name):
        return (
            f"Column {name!r} looks like a split into training and test rows and was left out; use it with "
            f"--split-column {name}, or {keep}."
        )
    if _is_row_number(table, name):
        return f"Column {name!r} has another whole number in every row, as an index has, and was left out; {keep}."
    if _is_one_per_row(column):
        return f"Column {name!r} has another value in every row, as an id has, and was left out; {keep}."
    return ""


def _is_split(column: pa.ChunkedArray, name: str) -> bool:
    distinct = column.drop_null().unique()
    if len(distinct) < 2 or len(distinct) > len(SPELLINGS):
        return False
    if is_text(column):
        words = {str(value).strip().lower() for value in distinct.to_pylist()}
        return words <= set(SPELLINGS)
    return len(distinct) == 2 and _SPLIT_NAME.fullmatch(name.strip().lower()) is not None


def _is_row_number(table: pa.Table, name: str) -> bool:
    """Different whole numbers in every row that are 0 or 1 and on, or whose name or place says index."""
    column, first = table.column(name), table.column_names[0] == name
    if kind_of(column) != NUMBER or column.null_count or len(column) < 2:
        return False
    values = as_numbers(column, name)
    if np.isnan(values).any() or not np.array_equal(values, np.round(values)) or len(np.unique(values)) < len(values):
        return False
    unnamed = first and (name == "column 1" or name.lower().startswith("unnamed:"))
    if unnamed:
        return True
    if len(values) < FEWEST_ROWS:
        return False
    counts_up = values.min() in (0, 1) and values.max() - values.min() == len(values) - 1
    return bool(counts_up) or _says_id(name)


def _says_id(name: str) -> bool:
    return any(pattern.search(name.strip()) for pattern in (_ID_WORD, _ID_CAMEL))


def _is_one_per_row(column: pa.ChunkedArray) -> bool:
    if kind_of(column) != TEXT and not has_long_integers(column):
        return False
    present = len(column) - column.null_count
    return present >= max(FEWEST_ROWS, len(column) / 2) and len(column.drop_null().unique()) == present


def client_copy_warnings(table: pa.Table, features: Sequence[str], owner: np.ndarray) -> list[str]:
    """A warning for each column that names the clients in another way: one value per client, each of one client."""
    clients, found = int(owner.max()) + 1, list[str]()
    if clients < 3 or len(owner) < 2 * clients:
        return found
    for name in features:
        levels = _levels(table.column(name), rows_each=1) if kind_of(table.column(name)) is not None else None
        if levels is None or levels.max() + 1 != clients:
            continue
        if len(np.unique(owner.astype(np.int64) * clients + levels)) == clients:
            found.append(
                f"Column {name!r} has one value per client, so that it names the client in another way: one model for "
                f"all can tell clients apart by it; leave it out with --drop {name} if that is not meant."
            )
    return found


def settling_warnings(table: pa.Table, features: list[str], targets: np.ndarray, classes: int) -> list[str]:
    """A warning for each column that alone gives nearly every target; `classes` is 0 for a regression.

    `targets` are one number per row of `table`, the training rows.
    """
    if len(targets) < SETTLING_ROWS:
        return []
    if len(targets) > MOST_ROWS:
        chosen = np.linspace(0, len(targets) - 1, MOST_ROWS).astype(np.int64)
        table, targets = table.take(chosen), targets[chosen]
    found = []
    for name in features:
        column = table.column(name)
        if kind_of(column) is None or column.null_count == len(column):
            continue
        how = _settles_classes(column, name, targets) if classes else _settles_numbers(column, name, targets)
        if how:
            found.append(
                f"Column {name!r} alone settles the target ({how}): is it known before the target is? "
                f"If not, leave it out with --drop {name}."
            )
    return found


def _settles_classes(column: pa.ChunkedArray, name: str, targets: np.ndarray) -> str:
    """Most rows have the commonest class of their level, or of their interval of a number column."""
    codes = targets.astype(np.int64)
    if np.bincount(codes).max() > TRIVIAL * len(codes):
        return ""
    levels = _levels(column)
    if levels is not None:
        counts = np.zeros((levels.max() + 1, codes.max() + 1), np.int64)
        np.add.at(counts, (levels, codes), 1)
        right = int(counts.max(axis=1).sum())
    elif kind_of(column) in (TEXT, TRUTH):
        return ""
    else:
        right = _right_by_intervals(codes[np.argsort(as_numbers(column, name), kind="stable")])
    return f"{right / len(codes):.1%} of the training rows" if right >= SETTLED * len(codes) else ""


def _right_by_intervals(codes: np.ndarray) -> int:
    """Rows with the commonest class of their interval, of classes in the order of a column's values.

    Intervals have ten rows or more; where two classes meet inside of one, it is cut once, for as many cuts as there
    are classes.
    """
    classes = int(codes.max()) + 1
    gains, right = [], 0
    for part in np.array_split(codes, max(1, min(50, len(codes) // 10))):
        found = np.eye(classes, dtype=np.int64)[part].cumsum(axis=0)
        uncut = int(found[-1].max())
        cut = int((found.max(axis=1) + (found[-1] - found).max(axis=1)).max())
        right += uncut
        gains.append(cut - uncut)
    return right + sum(sorted(gains, reverse=True)[:classes])


def _settles_numbers(column: pa.ChunkedArray, name: str, targets: np.ndarray) -> str:
    spread = targets.std()
    if kind_of(column) != TEXT:
        values = as_numbers(column, name)
        present = ~np.isnan(values)
        if present.sum() >= SETTLED * len(values) and values[present].std() > 0 and targets[present].std() > 0:
            correlation = abs(float(np.corrcoef(values[present], targets[present])[0, 1]))
            if correlation > CORRELATED:
                return f"correlation {correlation:.4f}"
    groups = _levels(column)
    if groups is None or spread == 0:
        return ""
    means = np.bincount(groups, targets) / np.maximum(1, np.bincount(groups))
    explained = 1 - float(((targets - means[groups]) ** 2).mean()) / float(spread) ** 2
    return f"{explained:.2%} of its variance" if explained > CORRELATED else ""


def _levels(column: pa.ChunkedArray, rows_each: int = 5) -> np.ndarray | None:
    """Numbers of the column's different values, where each has that many rows on average."""
    import pyarrow as pa

    whole = column.combine_chunks()
    encoded = (whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole).dictionary_encode()
    if len(encoded.dictionary) > len(column) / rows_each:
        return None
    return np.asarray(encoded.indices.fill_null(len(encoded.dictionary)), np.int64)
