# SPDX-License-Identifier: Apache-2.0
"""Columns of a table into numbers for a model, fitted on training rows only and kept as plain JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import as_labels
from idiolect.data.feature_columns import CategoryColumn, NumberColumn, fit_column
from idiolect.data.kinds import TEXT
from idiolect.data.tables import read_table, require_columns
from idiolect.data.target_columns import TargetColumns, fit_targets, target_values
from idiolect.data.task import Task, label_name

if TYPE_CHECKING:
    import pyarrow as pa

SCALINGS = ("standard", "none")


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """A fitted recipe from table rows to model inputs and targets; `apply` serves rows that come later."""

    columns: tuple[NumberColumn | CategoryColumn, ...]
    target: TargetColumns
    notes: tuple[str, ...] = ()
    client: str | None = None  # the column that names the client; None in recipes from before it was kept
    warnings: tuple[str, ...] = ()

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
        client: str | None = None,
        named: Sequence[str] = (),
    ) -> Preprocessing:
        """Learn fills, scales, levels and target scales from the rows where `training` is set.

        Only the set of class names is read from all rows: which labels exist is part of the task, not learnt.
        Features that cannot be inputs are left out with a warning, but refused if they are among `named`.
        """
        for word, value in (("scaling", scaling), ("target_scaling", target_scaling)):
            if value not in SCALINGS:
                raise RequestError(f"{word} must be one of {', '.join(SCALINGS)}, got {value!r}.")
        seen = table.filter(_mask(training))
        fitted = [fit_column(name, seen.column(name), scaling, name in named) for name in features]
        columns = tuple(found.column for found in fitted if found.column is not None)
        warnings = tuple(found.warning for found in fitted if found.warning)
        if not columns:
            said = f" {warnings[0]}" if warnings else ""
            raise RequestError(
                f"No feature column can be an input: none of {', '.join(map(repr, features[:4]))} holds a value to "
                f"learn from in the training rows; name others with --features.{said}"
            )
        fitted_target, target_notes = fit_targets(table, seen, tuple(target), kind, target_scaling)
        notes = (*(found.note for found in fitted if found.note), *target_notes)
        return cls(columns, fitted_target, notes, client, warnings)

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

    @property
    def kinds(self) -> dict[str, str]:
        """What each column held in training: "number", "truth", "date" or "text"; for `read_table`."""
        client = {} if self.client is None else {self.client: TEXT}
        return {
            **dict(zip(self.target.names, self.target.kinds)),
            **{column.name: column.kind for column in self.columns},
            **client,
        }

    def apply(self, table: Any, dtype: Any = np.float32) -> np.ndarray:
        """Model inputs (rows, features) for rows of any table source; the target column is not needed."""
        table = self._read_features(table)
        encoded = [column.encode(table.column(column.name)) for column in self.columns]
        return np.concatenate(encoded, axis=1).astype(dtype)

    def doubts(self, table: Any) -> list[str]:
        """Sentences about new rows: categories never seen, numbers far outside the training range, new gaps.

        A text in a column of numbers is refused, as in `apply`: it is neither a number nor missing.
        """
        table = self._read_features(table)
        return [text for column in self.columns for text in column.doubts(table.column(column.name))]

    def _read_features(self, table: Any) -> pa.Table:
        table = read_table(table, self.kinds)
        require_columns(table, [column.name for column in self.columns], "feature")
        return table

    def apply_targets(self, table: Any, dtype: Any = np.float32) -> np.ndarray:
        """Class numbers (rows,) int32, or scaled values (rows,) or (rows, k), of rows with a known target."""
        table = read_table(table, self.kinds)
        require_columns(table, self.target.names, "target")
        if self.target.classes:
            place = {name: number for number, name in enumerate(self.target.classes)}
            name = self.target.names[0]
            found = [label_name(value) for value in as_labels(table.column(name), name)]
            unknown = next((name for name in found if name not in place), None)
            if unknown is not None:
                raise RequestError(f"The label {unknown!r} is not one of {', '.join(self.target.classes)}.")
            return np.array([place[name] for name in found], np.int32)
        values = target_values(table, self.target.names)
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
        columns = [{"kind": type(column).__name__, "column": dataclasses.asdict(column)} for column in self.columns]
        content = {
            "columns": columns,
            "target": dataclasses.asdict(self.target),
            "notes": self.notes,
            "client": self.client,
            "warnings": self.warnings,
        }
        return json.dumps(content, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Preprocessing:
        """The recipe that `to_json` wrote, now or in an earlier version."""
        try:
            content = json.loads(text)
            return cls(
                tuple(_column(entry) for entry in content["columns"]),
                TargetColumns(**_frozen(content["target"])),
                tuple(content["notes"]),
                content.get("client"),
                tuple(content.get("warnings", ())),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RequestError(f"This is not a preprocessing recipe ({error}); read what to_json wrote.") from error


def _column(entry: dict[str, Any]) -> NumberColumn | CategoryColumn:
    kind = {kind.__name__: kind for kind in (NumberColumn, CategoryColumn)}[entry["kind"]]
    # earlier versions wrote the column's fields beside its kind
    fields = entry.get("column") or {key: value for key, value in entry.items() if key != "kind"}
    return kind(**_frozen(fields))


def _frozen(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}


def _mask(chosen: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.array(chosen)
