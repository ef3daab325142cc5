# SPDX-License-Identifier: Apache-2.0
"""Columns that are rarely meant as inputs: row numbers, ids, splits, dates, and those that settle the target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from idiolect.data.columns import Column
from idiolect.data.kinds import DATE, NUMBER, TEXT, TRUTH
from idiolect.data.split import SPELLINGS
from idiolect.record.words import option

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


def doubt_features(columns: Mapping[str, Column], features: list[str], named: Sequence[str]) -> Doubts:
    """Row numbers, ids of one row each and splits are left out unless they are among `named`; dates stay.

    A row number that is the only input stays, because without it there would be nothing to predict from.
    """
    first = next(iter(columns))
    doubts = Doubts([], {}, [])
    for name in features:
        reason = None if name in named else _reason(columns[name], name == first)
        if reason is None:
            doubts.kept.append(name)
        else:
            doubts.left_out[name] = reason
    # nothing is left: better a row number than no input, and the warning says so
    for name in () if doubts.kept else features:
        if _is_row_number(columns[name], name == first):
            doubts.kept.append(name)
            del doubts.left_out[name]
            doubts.warnings.append(f"Column {name!r} numbers the rows; it was kept because no other input is left.")
    dates = [name for name in doubts.kept if columns[name].kind == DATE]
    doubts.warnings.extend(
        f"Column {name!r} holds dates, read as days since 1970; {option('--time', name)} splits by time instead, "
        f"{option('--drop', name)} leaves it out."
        for name in dates
    )
    return doubts


def _reason(column: Column, first: bool) -> str | None:
    """Why a column is left out, if it is."""
    name = column.name
    if column.kind is None:
        return None  # cannot be an input at all, which is said when the column is fitted
    keep = f"keep it by naming the inputs with --features, {name!r} among them"
    if _is_split(column):
        return (
            f"Column {name!r} looks like a split into training and test rows and was left out; use it with "
            f"{option('--split-column', name)}, or {keep}."
        )
    if _is_row_number(column, first):
        return f"Column {name!r} has another whole number in every row, as an index has, and was left out; {keep}."
    named = column.kind == TEXT or column.has_long_integers
    if named and column.present >= max(FEWEST_ROWS, len(column) / 2) and column.distinct == column.present:
        return f"Column {name!r} has another value in every row, as an id has, and was left out; {keep}."
    return None


def _is_split(column: Column) -> bool:
    if not 2 <= column.distinct <= len(SPELLINGS):
        return False
    if column.kind == TEXT:
        return {text.strip().lower() for text in set(column.texts) if text is not None} <= set(SPELLINGS)
    return column.distinct == 2 and _SPLIT_NAME.fullmatch(column.name.strip().lower()) is not None


def _is_row_number(column: Column, first: bool) -> bool:
    """Different whole numbers in every row that are 0 or 1 and on, or whose name or place says index."""
    values = column.numbers if column.kind == NUMBER else np.zeros(0)
    if not _all_different(values):  # nor where one is missing
        return False
    if first and (column.name == "column 1" or column.name.lower().startswith("unnamed:")):
        return True
    counts_up = values.min() in (0, 1) and values.max() - values.min() == len(values) - 1
    says_id = any(pattern.search(column.name.strip()) for pattern in (_ID_WORD, _ID_CAMEL))
    return len(values) >= FEWEST_ROWS and bool(counts_up or says_id)


def _all_different(values: np.ndarray) -> bool:
    """Whether there are two whole numbers or more, each of them once."""
    whole = np.array_equal(values, np.round(values))
    return len(values) > 1 and whole and len(np.unique(values)) == len(values)


def client_copy_warnings(columns: Sequence[Column], owner: np.ndarray) -> list[str]:
    """A warning for each column that names the clients in another way: one value per client, each of one client."""
    clients = int(owner.max()) + 1
    # between two clients a column of two values may fall so by chance, among clients of one row any id does
    if clients < 3 or len(owner) < 2 * clients:
        return []
    return [
        f"Column {column.name!r} has one value per client, so that it names the client in another way: one model for "
        f"all can tell clients apart by it; leave it out with {option('--drop', column.name)} if that is not meant."
        for column in columns
        if column.codes.max() + 1 == clients
        and len(np.unique(owner.astype(np.int64) * clients + column.codes)) == clients
    ]


def settling_warnings(columns: Sequence[Column], targets: np.ndarray, training: np.ndarray, classes: int) -> list[str]:
    """A warning for each column that alone gives nearly every training target; `classes` is 0 for a regression."""
    rows = np.flatnonzero(training)
    if targets.ndim != 1 or len(rows) < SETTLING_ROWS:
        return []
    if len(rows) > MOST_ROWS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_ROWS).astype(np.int64)]
    settles = _settles_classes if classes else _settles_numbers
    chosen = np.isin(np.arange(len(training)), rows)
    found = [(column.name, settles(column.take(chosen), targets[chosen])) for column in columns]
    return [
        f"Column {name!r} alone settles the target ({how}): is it known before the target is? "
        f"If not, leave it out with {option('--drop', name)}."
        for name, how in found
        if how
    ]


def _settles_classes(column: Column, targets: np.ndarray) -> str:
    """Most rows have the commonest class of their level, or of their interval of a number column."""
    codes = targets.astype(np.int64)
    # where one class is nearly everything, any column gives nearly every target
    if np.bincount(codes).max() > TRIVIAL * len(codes):
        return ""
    if _has_levels(column):
        counts = np.zeros((column.distinct + 1, codes.max() + 1), np.int64)
        np.add.at(counts, (column.codes, codes), 1)
        right = int(counts.max(axis=1).sum())
    elif column.kind in (TEXT, TRUTH):
        return ""
    else:
        right = _right_by_intervals(codes[np.argsort(column.numbers, kind="stable")])
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


def _settles_numbers(column: Column, targets: np.ndarray) -> str:
    if column.kind != TEXT:
        values = column.numbers
        present = ~np.isnan(values)
        if present.sum() >= SETTLED * len(values) and values[present].std() > 0 and targets[present].std() > 0:
            correlation = abs(float(np.corrcoef(values[present], targets[present])[0, 1]))
            if correlation > CORRELATED:
                return f"correlation {correlation:.4f}"
    if not _has_levels(column) or targets.std() == 0:
        return ""
    means = np.bincount(column.codes, targets) / np.maximum(1, np.bincount(column.codes))
    explained = 1 - float(((targets - means[column.codes]) ** 2).mean()) / float(targets.std()) ** 2
    return f"{explained:.2%} of its variance" if explained > CORRELATED else ""


def _has_levels(column: Column) -> bool:
    """Whether each different value has five rows on average."""
    return column.distinct <= len(column) / 5
