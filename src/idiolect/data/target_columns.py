# SPDX-License-Identifier: Apache-2.0
"""The columns to predict: which task they suggest, their classes or their scale, and their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import as_labels, as_numbers, as_texts, has_long_integers, is_text, kind_of
from idiolect.data.kinds import DATE, NUMBER, TEXT, convert, is_number
from idiolect.data.summaries import Numbers, Texts, add_numbers, summarise_numbers, summarise_texts
from idiolect.data.task import FEW_VALUES, check_counts, encode_labels, infer_kind

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class TargetColumns:
    """Class names, or the centre and scale of each target column: target = (value - centre) / scale.

    Counts are divided by their mean alone: a Poisson model of y / s is that of y with every rate divided by s.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...] = ()
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    kinds: tuple[str, ...] = ()  # of each column; () in recipes from before they were kept
    counts: bool = False


class Prepared(NamedTuple):
    """The table with targets of the task's kind, the task, and how it was found."""

    table: pa.Table
    task: str
    notes: list[str]


def prepare_targets(table: pa.Table, targets: tuple[str, ...], task: str | None) -> Prepared:
    """Decide the task where it is not given; texts that are numbers become numbers for a regression."""
    notes: list[str] = []
    if task is None:
        task, reason = _infer_task(table, targets)
        notes.append(reason)
    for name in targets:
        column = table.column(name)
        if kind_of(column) is None:
            raise RequestError(f"The target {name!r} has the type {column.type}; choose a column of numbers or texts.")
        if task != "classification" and is_text(column):
            distinct = [str(value).strip() for value in column.unique().to_pylist()]
            if all(is_number(value) for value in distinct):
                notes.append(f"The texts of the target {name!r} are read as numbers, because the task is {task}.")
                column = convert(column, NUMBER, name)
                table = table.set_column(table.column_names.index(name), name, column)
        if task == "regression" and has_long_integers(column):
            notes.append(f"The target {name!r} holds whole numbers beyond 2^53: about 16 of their digits are kept.")
        if task == "classification" and kind_of(column) == DATE:
            raise RequestError(
                f"The target {name!r} holds dates, which are not classes; choose another column, or use "
                "--task regression to predict days."
            )
    return Prepared(table, task, notes)


def _infer_task(table: pa.Table, targets: tuple[str, ...]) -> tuple[str, str]:
    if len(targets) > 1:
        return infer_kind(np.zeros((1, len(targets))))
    name, column = targets[0], table.column(targets[0])
    kind = kind_of(column)
    if kind == DATE:
        raise RequestError(
            f"The target {name!r} holds dates; choose another column, or use --task regression to predict days."
        )
    if kind != TEXT:
        return infer_kind(as_labels(column, name))
    distinct = len(column.unique())
    if distinct > max(FEW_VALUES, len(column) / 2):
        raise RequestError(
            f"The target {name!r} holds {distinct} different texts in {len(column)} rows, too many to be classes; "
            "choose another column, or use --task classification, or --task regression if they are numbers."
        )
    return infer_kind(np.empty(0, str))


class FittedTargets(NamedTuple):
    """The fitted target columns, what each client sent for them, and the sentences about them."""

    column: TargetColumns
    sent: dict[str, Numbers | Texts]
    notes: list[str]


def fit_targets(
    table: pa.Table,
    owner: np.ndarray,
    training: np.ndarray,
    clients: int,
    names: tuple[str, ...],
    task: str,
    scaling: str,
) -> FittedTargets:
    """Classes of all rows, or centres and scales of the `training` rows, by what each client says of its own."""
    kinds = tuple(kind_of(table.column(name)) or TEXT for name in names)
    if task == "classification":
        if len(names) != 1:
            raise RequestError(f"Classification needs one target column, got {len(names)}; use --task regression.")
        classes, codes = encode_labels(as_labels(table.column(names[0]), names[0]))
        if len(classes) < 2:
            raise RequestError(f"The target {names[0]!r} is always {classes[0]!r}; choose a column that varies.")
        each = summarise_texts([classes[code] for code in codes.tolist()], owner, clients)
        return FittedTargets(TargetColumns(names, classes, kinds=kinds), {names[0]: each}, [])
    if task == "counts":
        if len(names) != 1:
            raise RequestError(f"Counts need one target column, got {len(names)}; use --task regression.")
        check_counts(target_values(table, names), f"the target {names[0]!r}")
    values = target_values(table, names)[training]
    sent = {name: summarise_numbers(values[:, place], owner[training], clients) for place, name in enumerate(names)}
    together = [add_numbers(each) for each in sent.values()]
    for name, every in zip(names, together):
        if every.lowest[0] == every.highest[0]:
            raise RequestError(f"The target {name!r} is always {every.lowest[0]:g}; choose a column that varies.")
    if scaling == "none":
        plain = TargetColumns(names, (), (0.0,) * len(names), (1.0,) * len(names), kinds, task == "counts")
        return FittedTargets(plain, {}, [])
    centres = [float(every.mean[0]) for every in together]
    if task == "counts":
        note = f"Target {names[0]!r} was divided by its mean {centres[0]:g} for training."
        return FittedTargets(TargetColumns(names, (), (0.0,), (centres[0],), kinds, counts=True), {**sent}, [note])
    scales = [float(np.sqrt(every.squares[0] / every.present[0])) for every in together]
    notes = [
        f"Target {name!r} was centred at {centre:g} and divided by {scale:g} for training."
        for name, centre, scale in zip(names, centres, scales)
    ]
    return FittedTargets(TargetColumns(names, (), tuple(centres), tuple(scales), kinds), {**sent}, notes)


def target_values(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """(rows, targets), float64."""
    for name in names:
        if is_text(table.column(name)):
            raise RequestError(
                f"Regression needs a numeric target, but {name!r} holds texts such as "
                f"{as_texts(table.column(name), name)[0]!r}; use --task classification or another column."
            )
    return np.stack([as_numbers(table.column(name), name) for name in names], axis=1)
