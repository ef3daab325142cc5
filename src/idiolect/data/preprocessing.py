# SPDX-License-Identifier: Apache-2.0
"""Columns of a table into numbers for a model, fitted on training rows only and kept as plain JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from idiolect.core.checks import RequestError, nearest
from idiolect.data.columns import Column, columns_of
from idiolect.data.feature_columns import CategoryColumn, Fitted, NumberColumn, fit_column, own_scales, unscaled
from idiolect.data.kinds import TEXT
from idiolect.data.preparation import LOCAL, Learners, Numbers, Preparation, sent_for
from idiolect.data.tables import read_table, require_columns
from idiolect.data.target_columns import FittedTargets, TargetColumns, fit_targets, target_values
from idiolect.data.task import Task, label_name

if TYPE_CHECKING:
    from idiolect.data.table_request import TableRequest


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
        cls, columns: Mapping[str, Column], features: Sequence[str], request: TableRequest, task: str, rows: Learners
    ) -> tuple[Preprocessing, Preparation]:
        """Learn fills, scales, levels and target scales from training rows, and say what was sent.

        Clients send summaries, never rows (`summaries`). Only the set of class names is read from all rows: which
        labels exist is part of the task, not learnt. Features that cannot be inputs are left out with a warning, but
        refused if the request names them.
        """
        owner, clients = rows.owner[rows.training], len(rows.names)
        fitted = {
            name: fit_column(columns[name].take(rows.training), owner, clients, request.scaling, name in request.named)
            for name in features
        }
        targets = fit_targets([columns[name] for name in request.targets], rows, task, request.of_targets)
        nothing = (
            f"No feature column can be an input: none of {', '.join(map(repr, features[:4]))} holds a value to learn "
            "from in the training rows; name others with --features."
        )
        learned = np.bincount(owner, minlength=clients)
        recipe, preparation = cls.of_fitted(fitted, targets, request, learned, nothing)
        if request.preparation == LOCAL:
            recipe = _localized(recipe, fitted, rows.names, request.scaling)
        return recipe, preparation

    @classmethod
    def of_fitted(
        cls, fitted: Mapping[str, Fitted], targets: FittedTargets, request: TableRequest, rows: np.ndarray, nothing: str
    ) -> tuple[Preprocessing, Preparation]:
        """The recipe of fitted columns, and what was sent for it; `nothing` refuses a table without an input.

        `rows` are the clients' training rows. Where each is scaled by its own, no number of all is in the recipe.
        """
        kept = tuple(found.column for found in fitted.values() if found.column is not None)
        warnings = tuple(filter(None, (found.warning for found in fitted.values())))
        if not kept:
            raise RequestError(f"{nothing} {' '.join(warnings[:1])}".rstrip())
        notes = (*filter(None, (found.note for found in fitted.values())), *targets.notes)
        summaries = {name: found.sent for name, found in fitted.items() if found.sent is not None}
        sent = sent_for({**summaries, **targets.sent}, request.preparation)
        columns = tuple(map(unscaled, kept)) if request.preparation == LOCAL else kept
        recipe = cls(columns, targets.column, notes, request.client, warnings)
        return recipe, Preparation(request.preparation, rows, sent)

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

    def with_dates(self, kinds: Mapping[str, str]) -> Preprocessing:
        """The same where columns of dates are written in these ways, so that new rows are read alike."""
        columns = tuple(
            dataclasses.replace(one, kind=kinds[one.name])
            if isinstance(one, NumberColumn) and one.name in kinds
            else one
            for one in self.columns
        )
        target = tuple(kinds.get(name, kind) for name, kind in zip(self.target.names, self.target.kinds))
        return dataclasses.replace(self, columns=columns, target=dataclasses.replace(self.target, kinds=target))

    def apply(self, table: object, dtype: DTypeLike = np.float32) -> np.ndarray:
        """Model inputs (rows, features) for rows of any table source; the target column is not needed."""
        return self.encode(self._read(table), dtype)

    def encode(self, columns: Mapping[str, Column], dtype: DTypeLike = np.float32) -> np.ndarray:
        """Model inputs of columns that were read as `kinds` says."""
        # each number column in turn takes the next scales; categories have none
        scales = iter(()) if self.own is None else iter(self._own_scales(columns).transpose(1, 0, 2))
        encoded = [
            column.encode(columns[column.name], next(scales, None) if isinstance(column, NumberColumn) else None)
            for column in self.columns
        ]
        return np.concatenate(encoded, axis=1).astype(dtype)

    def _own_scales(self, columns: Mapping[str, Column]) -> np.ndarray:
        """(rows, number columns, 3): fill, centre and scale of each row's client."""
        assert self.own is not None
        assert self.client is not None
        if self.client not in columns:
            raise RequestError(f"The client column {self.client!r} is not in the table.{nearest(self.client, columns)}")
        names = columns[self.client].texts
        new = [name for name in names if name not in self.own]
        if new:
            said = "A row has no client" if new[0] is None else f"Client {new[0]!r} is new"
            raise RequestError(
                f"{said}, and in this run each client is scaled by its own training rows; only clients that trained "
                "can be answered, or train with --set 'data.preparation = \"federated\"'."
            )
        numbered = {name: place for place, name in enumerate(self.own)}
        # from a dictionary to an array, so that rows take their scales by number
        each = np.array(list(self.own.values()), np.float64).reshape(len(self.own), -1, 3)
        return each[[numbered[str(name)] for name in names]]

    def doubts(self, table: object) -> list[str]:
        """Sentences about new rows: categories never seen, numbers far outside the training range, new gaps.

        A text in a column of numbers is refused, as in `apply`: it is neither a number nor missing.
        """
        columns = self._read(table)
        return [text for column in self.columns for text in column.doubts(columns[column.name])]

    def _read(self, table: object) -> dict[str, Column]:
        found = read_table(table, self.kinds)
        require_columns(found, [column.name for column in self.columns], "feature")
        return columns_of(found)

    def encode_targets(self, columns: Mapping[str, Column], dtype: DTypeLike = np.float32) -> np.ndarray:
        """Class numbers (rows,) int32, or scaled values (rows,) or (rows, k), of columns read as `kinds` says."""
        wanted = [columns[name] for name in self.target.names]
        if self.target.classes:
            place = {name: number for number, name in enumerate(self.target.classes)}
            # by name and not by number: new rows may hold labels in another type
            found = [label_name(value) for value in wanted[0].labels]
            unknown = next((name for name in found if name not in place), None)
            if unknown is not None:
                raise RequestError(f"The label {unknown!r} is not one of {', '.join(self.target.classes)}.")
            return np.array([place[name] for name in found], np.int32)
        scaled = (target_values(wanted) - np.array(self.target.centres)) / np.array(self.target.scales)
        return (scaled[:, 0] if len(wanted) == 1 else scaled).astype(dtype)

    def original_units(self, predictions: np.ndarray) -> np.ndarray:
        """Regression outputs in the units of the table."""
        if self.target.classes:
            raise RequestError("Class numbers have no units; read names off task.classes instead.")
        return predictions * np.array(self.target.scales) + np.array(self.target.centres)

    def to_json(self) -> str:
        """Plain JSON that `from_json` reads back."""
        columns = [{"kind": type(column).__name__, "column": dataclasses.asdict(column)} for column in self.columns]
        return json.dumps(dataclasses.asdict(self) | {"columns": columns}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Preprocessing:
        """The recipe that `to_json` wrote."""
        try:
            content = json.loads(text)
            own, kinds = content["own"], {kind.__name__: kind for kind in (NumberColumn, CategoryColumn)}
            return cls(
                tuple(kinds[entry["kind"]](**_frozen(entry["column"])) for entry in content["columns"]),
                TargetColumns(**_frozen(content["target"])),
                tuple(content["notes"]),
                content["client"],
                tuple(content["warnings"]),
                None if own is None else {str(name): _triples(scales) for name, scales in own.items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RequestError(f"This is not a preprocessing recipe ({error}); read what to_json wrote.") from error


def _frozen(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass from JSON, which has lists for tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}


def _triples(scales: Iterable[Iterable[float]]) -> tuple[tuple[float, float, float], ...]:
    return tuple((float(fill), float(centre), float(scale)) for fill, centre, scale in scales)


def _localized(
    recipe: Preprocessing, fitted: Mapping[str, Fitted], clients: Sequence[str], scaling: str
) -> Preprocessing:
    """The recipe where each client is scaled by its own rows, without a number of all clients."""
    said = ["Each client's numbers are centred and scaled by its own training rows; numeric targets keep their units."]
    each = []
    for name, found in fitted.items():
        note = found.note
        if isinstance(found.column, NumberColumn):
            assert isinstance(found.sent, Numbers)
            each.append(own_scales(found.sent, scaling).tolist())
            filled = f"Column {name!r} misses values: filled with each client's own mean, marked."
            note = filled if found.column.indicator else ""
        said += [note] if note else []
    own = {name: tuple(tuple(scales[place]) for scales in each) for place, name in enumerate(clients)}
    return dataclasses.replace(recipe, own=own, notes=tuple(said))
