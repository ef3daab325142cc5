# SPDX-License-Identifier: Apache-2.0
"""Columns of a table into numbers for a model, fitted on training rows only and kept as plain JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import as_labels, as_texts
from idiolect.data.feature_columns import CategoryColumn, Fitted, NumberColumn, fit_column, own_scales
from idiolect.data.kinds import TEXT
from idiolect.data.preparation import FEDERATED, LOCAL, Preparation, sent_for
from idiolect.data.summaries import Numbers
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
    # client -> (fill, centre, scale) of each number column in turn; None: all clients are scaled alike
    own: Mapping[str, tuple[tuple[float, float, float], ...]] | None = None

    @classmethod
    def fit(
        cls,
        table: pa.Table,
        *,
        features: Sequence[str],
        target: Sequence[str],
        kind: str,
        training: np.ndarray,
        owner: np.ndarray,
        clients: Sequence[str],
        scaling: str = "standard",
        target_scaling: str = "standard",
        client: str | None = None,
        named: Sequence[str] = (),
        way: str = FEDERATED,
    ) -> tuple[Preprocessing, Preparation]:
        """Learn fills, scales, levels and target scales from the rows where `training` is set, and say what was sent.

        `owner` is the number of each row's client among the names `clients`. Clients send summaries, never rows
        (`summaries`). Only the set of class names is read from all rows: which labels exist is part of the task, not
        learnt. Features that cannot be inputs are left out with a warning, but refused if they are among `named`.
        """
        for word, value in (("scaling", scaling), ("target_scaling", target_scaling)):
            if value not in SCALINGS:
                raise RequestError(f"{word} must be one of {', '.join(SCALINGS)}, got {value!r}.")
        seen, whose = table.filter(_mask(training)), owner[training]
        fitted = {
            name: fit_column(name, seen.column(name), whose, len(clients), scaling, name in named) for name in features
        }
        columns = tuple(found.column for found in fitted.values() if found.column is not None)
        warnings = tuple(found.warning for found in fitted.values() if found.warning)
        if not columns:
            said = f" {warnings[0]}" if warnings else ""
            raise RequestError(
                f"No feature column can be an input: none of {', '.join(map(repr, features[:4]))} holds a value to "
                f"learn from in the training rows; name others with --features.{said}"
            )
        rows = fit_targets(
            table, owner, training, len(clients), tuple(target), kind, _target_scaling(target_scaling, way)
        )
        notes = (*(found.note for found in fitted.values() if found.note), *rows.notes)
        summaries = {name: found.sent for name, found in fitted.items() if found.sent is not None} | rows.sent
        own = None
        if way == LOCAL:
            own = _own(fitted, clients, scaling)
            columns, notes = tuple(map(_without_numbers, columns)), (*_local_notes(fitted), *rows.notes)
        learned = np.bincount(whose, minlength=len(clients))
        preparation = Preparation(way, len(clients), learned, sent_for(summaries, way))
        return cls(columns, rows.column, notes, client, warnings, own), preparation

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
        numbers = [column for column in self.columns if isinstance(column, NumberColumn)]
        scales = None if self.own is None else self._own_scales(table)
        encoded = [
            column.encode(table.column(column.name), None if scales is None else scales[:, numbers.index(column)])
            if isinstance(column, NumberColumn)
            else column.encode(table.column(column.name))
            for column in self.columns
        ]
        return np.concatenate(encoded, axis=1).astype(dtype)

    def _own_scales(self, table: pa.Table) -> np.ndarray:
        """(rows, number columns, 3): fill, centre and scale of each row's client."""
        assert self.own is not None
        assert self.client is not None
        require_columns(table, [self.client], "client")
        names = as_texts(table.column(self.client), self.client)
        new = next((name for name in names if name not in self.own), None)
        if new is not None:
            raise RequestError(
                f"Client {new!r} is new, and in this run each client is scaled by its own training rows; only clients "
                'that trained can be answered, or train with preparation = "federated".'
            )
        numbered = {name: place for place, name in enumerate(self.own)}
        each = np.array(list(self.own.values()), np.float64).reshape(len(self.own), -1, 3)
        return each[[numbered[str(name)] for name in names]]

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
            "own": None if self.own is None else dict(self.own),
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
                _frozen_scales(content.get("own")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RequestError(f"This is not a preprocessing recipe ({error}); read what to_json wrote.") from error


def _column(entry: dict[str, Any]) -> NumberColumn | CategoryColumn:
    kind = {kind.__name__: kind for kind in (NumberColumn, CategoryColumn)}[entry["kind"]]
    # earlier versions wrote the column's fields beside its kind
    fields = entry.get("column") or {key: value for key, value in entry.items() if key != "kind"}
    return kind(**_frozen(fields))


def _own(
    fitted: Mapping[str, Fitted], clients: Sequence[str], scaling: str
) -> dict[str, tuple[tuple[float, float, float], ...]]:
    """(fill, centre, scale) of each number column, by client."""
    sent = [found.sent for found in fitted.values() if isinstance(found.column, NumberColumn)]
    each = [own_scales(numbers, scaling).tolist() for numbers in sent if isinstance(numbers, Numbers)]
    return {name: tuple(tuple(column[place]) for column in each) for place, name in enumerate(clients)}


def _without_numbers(column: NumberColumn | CategoryColumn) -> NumberColumn | CategoryColumn:
    """What clients have in common where each is scaled by its own rows: no number of all of them."""
    if isinstance(column, CategoryColumn):
        return column
    return dataclasses.replace(column, fill=0.0, centre=0.0, scale=1.0, lowest=None, highest=None)


def _local_notes(fitted: Mapping[str, Fitted]) -> list[str]:
    notes = ["Each client's numbers are centred and scaled by its own training rows; numeric targets keep their units."]
    for name, found in fitted.items():
        if not isinstance(found.column, NumberColumn):
            notes += [found.note] if found.note else []
        elif found.column.indicator:
            notes.append(f"Column {name!r} misses values: filled with each client's own mean, marked.")
    return notes


def _target_scaling(asked: str, way: str) -> str:
    """Where nothing about numbers is exchanged, targets keep their units."""
    return "none" if way == LOCAL else asked


def _frozen_scales(own: Any) -> dict[str, tuple[tuple[float, float, float], ...]] | None:
    if own is None:
        return None
    return {str(name): tuple((float(a), float(b), float(c)) for a, b, c in columns) for name, columns in own.items()}


def _frozen(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}


def _mask(chosen: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.array(chosen)
