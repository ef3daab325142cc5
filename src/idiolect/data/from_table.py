# SPDX-License-Identifier: Apache-2.0
"""From a table to a federation: choose columns, drop unusable rows, split, fit and apply preprocessing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from idiolect.core.checks import RequestError
from idiolect.data.columns import as_numbers, as_texts, is_text, kind_of
from idiolect.data.doubtful import client_copy_warnings, doubt_features, settling_warnings
from idiolect.data.feature_columns import CategoryColumn, NumberColumn
from idiolect.data.federation import Federation, Owned, assemble
from idiolect.data.kinds import TEXT
from idiolect.data.names import encode_names, lookalike_warnings
from idiolect.data.preparation import FEDERATED, GIVEN, Preparation, small_client_warnings
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.row_weights import check_weights, read_weights, weight_notes
from idiolect.data.split import TEST, TRAIN, HeldOut, Plan, Split, plan
from idiolect.data.tables import Reading, check_roles, read, require_columns
from idiolect.data.target_columns import prepare_targets
from idiolect.data.task import check_kind

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class TableRequest:
    """What `Federation.from_table` is asked: the roles of columns, the split, the scaling."""

    client: str
    targets: tuple[str, ...]
    features: tuple[str, ...] | None
    drop: tuple[str, ...]
    categorical: tuple[str, ...]
    weight: str | None
    task: str | None
    split: Split
    held_out: HeldOut
    seed: int
    scaling: str
    target_scaling: str
    preparation: str = FEDERATED
    recipe: Preprocessing | None = None  # that is given; None: it is fitted

    @property
    def columns_with_roles(self) -> dict[str, str]:
        """Columns that are no inputs, by what they are."""
        split = self.split
        named = {split.split_column: "split", split.group_column: "group", split.time_column: "time"}
        named |= {self.weight: "weight"}
        roles = {self.client: "client"} | dict.fromkeys(self.targets, "target")
        return roles | {name: role for name, role in named.items() if name is not None}

    @property
    def named(self) -> tuple[str, ...]:
        """Inputs that the user asked for by name: never left out without an error."""
        return (*(self.features or ()), *self.categorical)

    @property
    def kinds(self) -> dict[str, str]:
        """Columns whose kind is known: texts are read exactly as written, whatever they hold."""
        names = (self.client, self.split.group_column, self.split.split_column, *self.categorical)
        given = {} if self.recipe is None else self.recipe.kinds
        return given | {name: TEXT for name in names if name is not None}


def federation_from_table(cls: type[Federation], source: object, request: TableRequest, dtype: DTypeLike) -> Federation:
    """What `Federation.from_table` documents."""
    check_kind(request.task)
    request.split.check()
    reading = read(source, request.kinds)
    chosen = _choose_features(reading.table, request)
    table, kept, notes = _drop_incomplete(reading.table, request)
    weights = _weights(reading.table, request, kept)
    doubts = doubt_features(table, chosen, request.named)
    if not doubts.kept:
        reasons = " ".join(doubts.left_out.values())
        raise RequestError(f"No column is left to be a feature; the table needs more than client and target. {reasons}")
    table, task, task_notes = prepare_targets(table, request.targets, request.task)
    names, owner = encode_names(table.column(request.client), request.client)
    if weights is not None:
        word = f"The weight column {request.weight!r}"
        check_weights(weights, word, lambda row: f"row {kept[row]}", owner, names)
        notes += weight_notes(weights, f"Column {request.weight!r}")
    planned, groups = _plan(table, request, owner, names)
    training = (planned.parts == TRAIN) & ~planned.held_out[owner]
    with np.errstate(over="ignore", invalid="ignore"):  # refused next, with the column's name
        fitted, preparation = _fit(table, request, doubts.kept, task, training, owner, names)
        inputs, values = fitted.apply(table, dtype), fitted.apply_targets(table, dtype)
    _refuse_too_large(fitted, inputs, values)
    used = [column.name for column in fitted.columns]
    warnings = [
        *_reading_warnings(reading, {*chosen, *request.targets}),
        *lookalike_warnings(names, request.client),
        *_lookalike_levels(fitted),
        *doubts.left_out.values(),
        *fitted.warnings,
        *doubts.warnings,
        *client_copy_warnings(table, used, owner),
        *_time_ties(table, request.split, owner, planned),
        *_settled(table, used, values, training, fitted),
    ]
    told = [reading.column_notes[name] for name in (*request.columns_with_roles, *used) if name in reading.column_notes]
    every_note = (*reading.notes, *told, *notes, *_time_note(request.split), *task_notes, *fitted.notes)
    total = reading.table.num_rows
    rows = Owned(inputs, values, owner, names, fitted.task, groups, weights, kept, total)
    sent = preparation.only(np.flatnonzero(~planned.held_out))
    training_names = [name for name, out in zip(names, planned.held_out) if not out]
    every_warning = [*warnings, *small_client_warnings(sent, training_names)]
    made = assemble(cls, rows, planned, every_note, every_warning, fitted)
    return dataclasses.replace(made, preparation=sent)


def _choose_features(table: pa.Table, request: TableRequest) -> list[str]:
    """The feature columns: those named, or all that have no other role and are not dropped."""
    split = request.split
    others = {"split": split.split_column, "group": split.group_column, "time": split.time_column}
    roles = check_roles(table, request.client, request.targets, others | {"weight": request.weight})
    for option, names in (("feature", request.features or ()), ("dropped", request.drop)):
        require_columns(table, names, option)
    require_columns(table, request.categorical, "categorical")
    categorical = tuple(name for name in request.categorical if name not in request.targets)
    for option, names in (
        ("--features", request.features or ()),
        ("--drop", request.drop),
        ("--categorical", categorical),
    ):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise RequestError(f"{option} must name different columns, got {twice!r} more than once; name it once.")
        taken = next((name for name in names if name in roles), None)
        if taken is not None:
            raise RequestError(f"Column {taken!r} already has another role, {roles[taken]}; take it out of {option}.")
    both = set(request.drop).intersection((*(request.features or ()), *request.categorical))
    if both:
        raise RequestError(f"Column {min(both)!r} is both used and dropped; take it out of --drop or of the others.")
    if request.features is None:
        chosen = [name for name in table.column_names if name not in roles and name not in request.drop]
    else:
        chosen = list(request.features)
    if not chosen:
        raise RequestError(
            "No column is left to be a feature; the table needs more than client and target, or --drop fewer."
        )
    unused = next((name for name in request.categorical if name not in (*chosen, *request.targets)), None)
    if unused is not None:
        raise RequestError(f"The categorical column {unused!r} is not among the features; add it to --features.")
    return chosen


def _drop_incomplete(table: pa.Table, request: TableRequest) -> tuple[pa.Table, np.ndarray, list[str]]:
    """Without the rows that miss a value in a column with a role, which rows are left, and what to say."""
    import pyarrow.compute as pc

    notes, kept = [], np.arange(table.num_rows)
    for name in dataclasses.replace(request, weight=None).columns_with_roles:  # a missing weight is refused
        missing = pc.is_null(table.column(name), nan_is_null=True)
        amount = pc.sum(missing).as_py() or 0
        if amount:
            present = pc.invert(missing)
            table, kept = table.filter(present), kept[present.to_numpy()]
            rows = (
                "1 row without a value in {!r} was" if amount == 1 else f"{amount} rows without a value in {{!r}} were"
            )
            notes.append(f"{rows.format(name)} dropped.")
    if table.num_rows == 0:
        raise RequestError("No row has both a client and a target; fill these columns.")
    return table, kept, notes


def _weights(table: pa.Table, request: TableRequest, kept: np.ndarray) -> np.ndarray | None:
    """The weights of the rows that are kept."""
    return None if request.weight is None else read_weights(table.column(request.weight), request.weight)[kept]


def _plan(
    table: pa.Table, request: TableRequest, owner: np.ndarray, names: tuple[str, ...]
) -> tuple[Plan, np.ndarray | None]:
    split = request.split
    group, given, time = split.group_column, split.split_column, split.time_column
    groups = None if group is None else encode_names(table.column(group), group)[1]
    planned = plan(
        owner,
        names,
        split,
        request.seed,
        request.held_out,
        groups=groups,
        given=None if given is None else np.array(as_texts(table.column(given), given), dtype=str),
        times=None if time is None else _times(table.column(time), time),
    )
    return planned, groups


def _times(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """A number per row that grows with time."""
    if is_text(column) or kind_of(column) is None:
        what = f"holds {as_texts(column, name)[0]!r}" if is_text(column) else f"has the type {column.type}"
        raise RequestError(
            f"The time column {name!r} must hold numbers or dates such as 2024-01-31 or 2024-01-31 09:30, but {what}; "
            "write its times so."
        )
    return as_numbers(column, name)


def _fit(
    table: pa.Table,
    request: TableRequest,
    features: list[str],
    task: str,
    training: np.ndarray,
    owner: np.ndarray,
    names: tuple[str, ...],
) -> tuple[Preprocessing, Preparation]:
    """The recipe, fitted or given, and what was sent for it."""
    if request.recipe is not None:
        learned = np.bincount(owner[training], minlength=len(names))
        return _given(request.recipe, request, features, task), Preparation(GIVEN, len(names), learned)
    return Preprocessing.fit(
        table,
        features=features,
        target=request.targets,
        kind=task,
        training=training,
        owner=owner,
        clients=names,
        scaling=request.scaling,
        target_scaling=request.target_scaling,
        client=request.client,
        named=request.named,
        way=request.preparation,
    )


def _given(recipe: Preprocessing, request: TableRequest, features: list[str], task: str) -> Preprocessing:
    """The recipe for this client column; RequestError where it is about another task or other columns."""
    if recipe.own is not None:
        raise RequestError("The recipe scales each client by its own rows; give one that holds for all clients.")
    if recipe.target.names != request.targets or recipe.task.kind != task:
        raise RequestError(
            f"The recipe is about {' and '.join(map(repr, recipe.target.names))} ({recipe.task.kind}), the request "
            f"about {' and '.join(map(repr, request.targets))} ({task}); give the recipe of the same target and --task."
        )
    lacking = next((column.name for column in recipe.columns if column.name not in features), None)
    if lacking is not None:
        raise RequestError(f"The recipe needs the feature column {lacking!r}, which is not among the features.")
    return dataclasses.replace(recipe, client=request.client, notes=(), warnings=())


def _refuse_too_large(fitted: Preprocessing, inputs: np.ndarray, values: np.ndarray) -> None:
    """A number that overflows when it is scaled would silently erase its whole column."""
    scales = {column.name: column.scale for column in fitted.columns if isinstance(column, NumberColumn)}
    scales |= dict(zip(fitted.target.names, fitted.target.scales))
    wide = [name for name, scale in scales.items() if not np.isfinite(scale)]
    wide += [name for name, kept in zip(fitted.feature_names, np.isfinite(inputs).all(axis=0)) if not kept]
    wide += fitted.target.names[:1] if not np.isfinite(values).all() else ()
    if wide:
        raise RequestError(
            f"Column {wide[0]!r} holds a number too large for {8 * inputs.dtype.itemsize}-bit arithmetic; correct it, "
            "or change the column's unit."
        )


def _time_note(split: Split) -> list[str]:
    if split.time_column is None:
        return []
    return [f"Column {split.time_column!r} splits each client's rows by time, newest rows test; it is no input."]


def _time_ties(table: pa.Table, split: Split, owner: np.ndarray, planned: Plan) -> list[str]:
    """Clients whose oldest test row is no newer than a row before it: there is no telling the newest rows."""
    if split.time_column is None:
        return []
    times, tests = _times(table.column(split.time_column), split.time_column), planned.parts == TEST
    before, after = np.full(owner.max() + 1, -np.inf), np.full(owner.max() + 1, np.inf)
    np.maximum.at(before, owner[~tests], times[~tests])
    np.minimum.at(after, owner[tests], times[tests])
    tied = int((before >= after).sum())
    if not tied:
        return []
    whose = "1 client has" if tied == 1 else f"{tied} clients have"
    return [
        f"{whose} test rows of the same time in {split.time_column!r} as rows before them: the order of the table "
        "decided between these."
    ]


def _reading_warnings(reading: Reading, used: set[str]) -> list[str]:
    return [text for name, text in reading.column_warnings.items() if name in used]


def _lookalike_levels(fitted: Preprocessing) -> list[str]:
    levels = {column.name: column.levels for column in fitted.columns if isinstance(column, CategoryColumn)}
    if fitted.target.kinds == (TEXT,):
        levels[fitted.target.names[0]] = fitted.target.classes
    return [text for name, values in levels.items() for text in lookalike_warnings(values, name)]


def _settled(
    table: pa.Table, used: Sequence[str], values: np.ndarray, training: np.ndarray, fitted: Preprocessing
) -> list[str]:
    import pyarrow as pa

    if values.ndim != 1:
        return []
    return settling_warnings(table.filter(pa.array(training)), list(used), values[training], len(fitted.task.classes))
