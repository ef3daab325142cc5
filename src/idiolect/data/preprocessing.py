# SPDX-License-Identifier: Apache-2.0
"""Columns of a table into numbers for a model, fitted on training rows only and kept as plain JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import as_labels, as_numbers, as_texts, is_text
from idiolect.data.tables import read_table, require_columns
from idiolect.data.task import Task, check_counts, encode_labels, label_name

if TYPE_CHECKING:
    import pyarrow as pa

MOST_LEVELS = 200  # a text column with more different values is a name or free text, not a category
SCALINGS = ("standard", "none")


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """(value - centre) / scale, missing values read as `fill`; `indicator` adds a column that marks them."""

    name: str
    fill: float
    centre: float
    scale: float
    indicator: bool

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)

    def encode(self, column: pa.ChunkedArray) -> np.ndarray:
        """(rows, 1 or 2)."""
        values = as_numbers(column, self.name)
        missing = np.isnan(values)
        scaled = (np.where(missing, self.fill, values) - self.centre) / self.scale
        return np.stack([scaled, missing], axis=1) if self.indicator else scaled[:, None]


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """One column per text seen in the training rows, and a last one for any other text and for missing."""

    name: str
    levels: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return (*(f"{self.name} = {level}" for level in self.levels), f"{self.name} is missing or new")

    def encode(self, column: pa.ChunkedArray) -> np.ndarray:
        """(rows, levels + 1), one 1 in each row."""
        place = {level: number for number, level in enumerate(self.levels)}
        codes = [place.get(text or "", len(self.levels)) for text in as_texts(column)]
        return np.eye(len(self.levels) + 1)[codes]


@dataclasses.dataclass(frozen=True)
class TargetColumns:
    """Class names, or the centre and scale of each target column: target = (value - centre) / scale.

    Counts are divided by their mean alone: a Poisson model of y / s is that of y with every rate divided by s.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...] = ()
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    counts: bool = False


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """A fitted recipe from table rows to model inputs and targets; `apply` serves rows that come later."""

    columns: tuple[NumberColumn | CategoryColumn, ...]
    target: TargetColumns
    notes: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        table: pa.Table,
        *,
        features: Sequence[str],
        target: Sequence[str],
        kind: str,
        training: np.ndarray,
        scaling: str = "standard",
        target_scaling: str = "standard",
    ) -> Preprocessing:
        """Learn fills, scales, levels and target scales from the rows where `training` is set.

        Only the set of class names is read from all rows: which labels exist is part of the task, not learnt.
        """
        for word, value in (("scaling", scaling), ("target_scaling", target_scaling)):
            if value not in SCALINGS:
                raise RequestError(f"{word} must be one of {', '.join(SCALINGS)}, got {value!r}.")
        seen = table.filter(_mask(training))
        columns, notes = [], []
        for name in features:
            fitted, note = _fit_column(name, seen.column(name), scaling)
            columns += [fitted] if fitted is not None else []
            notes += [note] if note else []
        if not columns:
            raise RequestError("No feature column holds a value in the training rows; name others with features=.")
        fitted_target, target_notes = _fit_target(table, seen, tuple(target), kind, target_scaling)
        return cls(tuple(columns), fitted_target, (*notes, *target_notes))

    @property
    def task(self) -> Task:
        """The task that the targets define."""
        if self.target.classes:
            return Task.classification(self.target.classes)
        if self.target.counts:
            return Task.counts()
        return Task.regression(len(self.target.names))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the input columns, in order."""
        return tuple(output for column in self.columns for output in column.outputs)

    def apply(self, table: Any, dtype: Any = np.float32) -> np.ndarray:
        """Model inputs (rows, features) for rows of any table source; the target column is not needed."""
        table = read_table(table)
        require_columns(table, [column.name for column in self.columns], "feature")
        encoded = [column.encode(table.column(column.name)) for column in self.columns]
        return np.concatenate(encoded, axis=1).astype(dtype)

    def apply_targets(self, table: Any, dtype: Any = np.float32) -> np.ndarray:
        """Class numbers (rows,) int32, or scaled values (rows,) or (rows, k), of rows with a known target."""
        table = read_table(table)
        require_columns(table, self.target.names, "target")
        if self.target.classes:
            place = {name: number for number, name in enumerate(self.target.classes)}
            found = [label_name(value) for value in as_labels(table.column(self.target.names[0]))]
            unknown = next((name for name in found if name not in place), None)
            if unknown is not None:
                raise RequestError(f"The label {unknown!r} is not one of {', '.join(self.target.classes)}.")
            return np.array([place[name] for name in found], np.int32)
        values = _target_values(table, self.target.names)
        scaled = (values - np.array(self.target.centres)) / np.array(self.target.scales)
        return (scaled[:, 0] if len(self.target.names) == 1 else scaled).astype(dtype)

    def original_units(self, predictions: np.ndarray) -> np.ndarray:
        """Regression outputs in the units of the table."""
        if self.target.classes:
            raise RequestError("Class numbers have no units; read names off task.classes instead.")
        scales, centres = np.array(self.target.scales), np.array(self.target.centres)
        if np.ndim(predictions) == 1:
            return predictions * scales[0] + centres[0]
        return predictions * scales + centres

    def to_json(self) -> str:
        """Plain JSON that `from_json` reads back."""
        columns = [{"kind": type(column).__name__, **dataclasses.asdict(column)} for column in self.columns]
        content = {"columns": columns, "target": dataclasses.asdict(self.target), "notes": self.notes}
        return json.dumps(content, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Preprocessing:
        """The recipe that `to_json` wrote."""
        kinds = {kind.__name__: kind for kind in (NumberColumn, CategoryColumn)}
        try:
            content = json.loads(text)
            columns = [
                kinds[entry["kind"]](**{key: _frozen(value) for key, value in entry.items() if key != "kind"})
                for entry in content["columns"]
            ]
            target = TargetColumns(**{key: _frozen(value) for key, value in content["target"].items()})
            return cls(tuple(columns), target, tuple(content["notes"]))
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(f"This is not a preprocessing recipe ({error}); read what to_json wrote.") from error


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _mask(chosen: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.array(chosen)


def _fit_column(name: str, column: pa.ChunkedArray, scaling: str) -> tuple[NumberColumn | CategoryColumn | None, str]:
    if column.null_count == len(column):
        return None, f"Column {name!r} holds no value in the training rows and was left out."
    if is_text(column):
        texts = as_texts(column)
        levels = tuple(sorted({text for text in texts if text is not None}))
        if len(levels) > MOST_LEVELS:
            raise RequestError(
                f"Column {name!r} holds {len(levels)} different texts, more than the {MOST_LEVELS} "
                "allowed in a category; "
                "leave it out by naming the others with features=."
            )
        return CategoryColumn(name, levels), f"Column {name!r} is text: one input for each of {len(levels)} values."
    values = as_numbers(column, name)
    missing = np.isnan(values)
    observed = values[~missing]
    if observed.size == 0:
        return None, f"Column {name!r} holds no value in the training rows and was left out."
    centre, scale = (float(observed.mean()), float(observed.std())) if scaling == "standard" else (0.0, 1.0)
    constant = scale <= 1e-12 * max(1.0, abs(centre))
    fitted = NumberColumn(name, float(np.median(observed)), centre, 1.0 if constant else scale, bool(missing.any()))
    if missing.any():
        share = f"{missing.mean():.1%}"
        return (
            fitted,
            f"Column {name!r} misses {share} of its training values: filled with {fitted.fill:g}, marked.",
        )
    return fitted, f"Column {name!r} is constant in the training rows." if constant else ""


def _fit_target(
    table: pa.Table, seen: pa.Table, names: tuple[str, ...], kind: str, scaling: str
) -> tuple[TargetColumns, list[str]]:
    if kind == "classification":
        if len(names) != 1:
            raise RequestError(f"Classification needs one target column, got {len(names)}; use task='regression'.")
        classes, _ = encode_labels(as_labels(table.column(names[0])))
        if len(classes) < 2:
            raise RequestError(f"The target {names[0]!r} is always {classes[0]!r}; choose a column that varies.")
        return TargetColumns(names, classes), []
    if kind == "counts":
        if len(names) != 1:
            raise RequestError(f"Counts need one target column, got {len(names)}; use task='regression'.")
        check_counts(_target_values(table, names), f"the target {names[0]!r}")
    values = _target_values(seen, names)
    for position, name in enumerate(names):
        if np.ptp(values[:, position]) == 0:
            raise RequestError(f"The target {name!r} is always {values[0, position]:g}; choose a column that varies.")
    if scaling == "none":
        return TargetColumns(names, (), (0.0,) * len(names), (1.0,) * len(names), kind == "counts"), []
    if kind == "counts":
        mean = float(values.mean())
        note = f"Target {names[0]!r} was divided by its mean {mean:g} for training."
        return TargetColumns(names, (), (0.0,), (mean,), counts=True), [note]
    centres, scales = values.mean(axis=0).tolist(), values.std(axis=0).tolist()
    notes = [
        f"Target {name!r} was centred at {centre:g} and divided by {scale:g} for training."
        for name, centre, scale in zip(names, centres, scales)
    ]
    return TargetColumns(names, (), tuple(centres), tuple(scales)), notes


def _target_values(table: pa.Table, names: tuple[str, ...]) -> np.ndarray:
    for name in names:
        if is_text(table.column(name)):
            raise RequestError(
                f"Regression needs a numeric target, but {name!r} holds texts such as "
                f"{as_texts(table.column(name))[0]!r}; use task='classification' or another column."
            )
    return np.stack([as_numbers(table.column(name), name) for name in names], axis=1)
