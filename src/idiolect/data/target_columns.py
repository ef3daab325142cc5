# SPDX-License-Identifier: Apache-2.0
"""The columns to predict: which task they suggest, their classes or their scale, and their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import Column
from idiolect.data.kinds import DATE, NUMBER, TEXT, convert, is_number
from idiolect.data.preparation import Learners, Numbers, Texts, add_numbers, summarise_numbers, summarise_texts
from idiolect.data.task import FEW_VALUES, check_counts, encode_labels, infer_kind


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


def prepare_targets(
    columns: dict[str, Column], targets: tuple[str, ...], task: str | None
) -> tuple[dict[str, Column], str, list[str]]:
    """The columns with targets of the task's kind, the task, decided where it is not given, and what was done."""
    notes: list[str] = []
    if task is None:
        task, *notes = _infer_task(columns, targets)
    return columns | {name: _as_target(columns[name], task, notes) for name in targets}, task, notes


def _as_target(column: Column, task: str, notes: list[str]) -> Column:
    """The column as the task needs it; what was done about it is added to the notes."""
    name = column.name
    if column.kind is None:
        raise RequestError(f"The target {name!r} has the type {column.data.type}; choose a column of numbers or texts.")
    # texts that are all numbers, such as quoted ones; as classes they keep their spelling
    if task != "classification" and _holds_numbers(column):
        notes.append(f"The texts of the target {name!r} are read as numbers, because the task is {task}.")
        column = Column(name, convert(column.data, NUMBER, name))
    if task == "regression" and column.has_long_integers:
        notes.append(f"The target {name!r} holds whole numbers beyond 2^53: about 16 of their digits are kept.")
    if task == "classification" and column.kind == DATE:
        raise RequestError(
            f"The target {name!r} holds dates, which are not classes; choose another column, or use "
            "--task regression to predict days."
        )
    return column


def _holds_numbers(column: Column) -> bool:
    """Whether all texts of a column of texts are numbers."""
    return column.kind == TEXT and all(is_number((text or "").strip()) for text in set(column.texts))


def _infer_task(columns: Mapping[str, Column], targets: tuple[str, ...]) -> tuple[str, str]:
    if len(targets) > 1:
        return infer_kind(np.zeros((1, len(targets))))
    column = columns[targets[0]]
    if column.kind == DATE:
        raise RequestError(
            f"The target {column.name!r} holds dates; choose another column, or use --task regression to predict days."
        )
    if column.kind != TEXT:
        return infer_kind(column.labels)
    # names or free text: nearly every row would be a class of its own
    if column.distinct > max(FEW_VALUES, len(column) / 2):
        raise RequestError(
            f"The target {column.name!r} holds {column.distinct} different texts in {len(column)} rows, too many to be "
            "classes; choose another column, or use --task classification, or --task regression if they are numbers."
        )
    return infer_kind(np.empty(0, str))


class FittedTargets(NamedTuple):
    """The fitted target columns, what each client sent for them, and the sentences about them."""

    column: TargetColumns
    sent: Mapping[str, Numbers | Texts]
    notes: list[str]


def fit_targets(columns: Sequence[Column], learners: Learners, task: str, scaling: str) -> FittedTargets:
    """Classes of all rows, or centres and scales of the training rows, by what each client says of its own."""
    names = tuple(column.name for column in columns)
    kinds = tuple(column.kind or TEXT for column in columns)
    if task != "regression" and len(names) != 1:
        what = {"classification": "Classification needs", "counts": "Counts need"}[task]
        raise RequestError(f"{what} one target column, got {len(names)}; use --task regression.")
    if task == "classification":
        return _fit_classes(columns[0], learners)
    every_value = target_values(columns)
    if task == "counts":
        check_counts(every_value, f"the target {names[0]!r}")
    values, owner = every_value[learners.training], learners.owner[learners.training]
    sent = {name: summarise_numbers(own, owner, len(learners.names)) for name, own in zip(names, values.T)}
    return scale_targets(names, kinds, task, sent, scaling)


def _fit_classes(column: Column, learners: Learners) -> FittedTargets:
    classes, codes = encode_labels(column.labels)
    if len(classes) < 2:
        raise RequestError(f"The target {column.name!r} is always {classes[0]!r}; choose a column that varies.")
    each = summarise_texts([classes[code] for code in codes.tolist()], learners.owner, len(learners.names))
    return FittedTargets(TargetColumns((column.name,), classes, kinds=(column.kind or TEXT,)), {column.name: each}, [])


def scale_targets(
    names: tuple[str, ...], kinds: tuple[str, ...], task: str, sent: Mapping[str, Numbers], scaling: str
) -> FittedTargets:
    """Centres and scales by what clients sent; where all targets keep their units nothing needs to be sent."""
    found = TargetColumns(names, (), (0.0,) * len(names), (1.0,) * len(names), kinds, task == "counts")
    together = [add_numbers(each) for each in sent.values()]
    for name, every in zip(names, together):
        if every.lowest[0] == every.highest[0]:
            raise RequestError(f"The target {name!r} is always {every.lowest[0]:g}; choose a column that varies.")
    if scaling == "none":
        return FittedTargets(found, {}, [])
    means = tuple(float(every.mean[0]) for every in together)
    if found.counts:
        # counts must stay at or above 0, so they are not centred
        note = f"Target {names[0]!r} was divided by its mean {means[0]:g} for training."
        return FittedTargets(dataclasses.replace(found, scales=means), sent, [note])
    scales = tuple(float(np.sqrt(every.squares[0] / every.present[0])) for every in together)
    notes = [
        f"Target {name!r} was centred at {centre:g} and divided by {scale:g} for training."
        for name, centre, scale in zip(names, means, scales)
    ]
    return FittedTargets(dataclasses.replace(found, centres=means, scales=scales), sent, notes)


def target_values(columns: Sequence[Column]) -> np.ndarray:
    """(rows, targets), float64."""
    for column in columns:
        if column.kind == TEXT:
            raise RequestError(
                f"Regression needs a numeric target, but {column.name!r} holds texts such as {column.texts[0]!r}; use "
                "--task classification or another column."
            )
    return np.stack([column.numbers for column in columns], axis=1)
