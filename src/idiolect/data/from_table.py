# SPDX-License-Identifier: Apache-2.0
"""From a table to a federation: choose columns, drop unusable rows, split, fit and apply preprocessing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from idiolect.core.checks import RequestError
from idiolect.data.columns import Column, columns_of
from idiolect.data.doubtful import client_copy_warnings, doubt_features, settling_warnings
from idiolect.data.feature_columns import CategoryColumn, NumberColumn
from idiolect.data.federation import Federation, Owned, assemble
from idiolect.data.kinds import NUMBER, TEXT, TRUTH, is_number
from idiolect.data.names import encode_names, lookalike_warnings
from idiolect.data.preparation import GIVEN, Learners, Preparation, small_client_warnings
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.row_weights import check_weights, weight_notes
from idiolect.data.split import TEST, TRAIN, Plan, Split, plan
from idiolect.data.table_request import TableRequest
from idiolect.data.tables import check_roles, read, require_columns
from idiolect.data.target_columns import prepare_targets
from idiolect.record.words import counted, nth_row


def federation_from_table(cls: type[Federation], source: object, request: TableRequest, dtype: DTypeLike) -> Federation:
    """What `Federation.from_table` documents."""
    reading = read(source, request.kinds)
    roles = check_roles(reading.table, request.client, request.targets, request.other_roles)
    chosen = choose_features(reading.table, request, roles)
    table, kept, notes = drop_incomplete(reading.table, roles)
    columns = columns_of(table)
    doubts = doubt_features(columns, chosen, request.named)
    if not doubts.kept:
        reasons = " ".join(doubts.left_out.values())
        raise RequestError(f"No column is left to be a feature; the table needs more than client and target. {reasons}")
    columns, task, task_notes = prepare_targets(columns, request.targets, request.task)
    names, owner = encode_names(columns[request.client])
    weights = None
    if request.weight is not None:
        # from the whole table, so that a refusal names rows as they stand there
        weights = _read_weights(Column(request.weight, reading.table.column(request.weight)))[kept]
        check_weights(weights, f"The weight column {request.weight!r}", lambda row: nth_row(kept[row]), owner, names)
        notes += weight_notes(weights, f"Column {request.weight!r}")
    planned, groups = plan_rows(columns, request, owner, names)
    # held-out clients do not train, so that nothing may be learnt from them, not even a mean
    learners = Learners(owner, names, (planned.parts == TRAIN) & ~planned.held_out[owner])
    with np.errstate(over="ignore", invalid="ignore"):  # refused next, with the column's name
        fitted, preparation = _fit(columns, request, doubts.kept, task, learners)
        fitted = fitted.with_dates(reading.dates)
        inputs, values = fitted.encode(columns, dtype), fitted.encode_targets(columns, dtype)
    _refuse_too_large(fitted, inputs, values)
    # doubts are about columns that became inputs: what was left out has been said already
    used = [columns[column.name] for column in fitted.columns]
    training = np.flatnonzero(~planned.held_out)
    sent = preparation.only(training)
    warnings = [
        *(one.warning for name, one in reading.decisions.items() if name in (*chosen, *request.targets)),
        *lookalike_warnings(names, request.client),
        *_lookalike_levels(fitted),
        *doubts.left_out.values(),
        *fitted.warnings,
        *doubts.warnings,
        *client_copy_warnings(used, owner),
        *_time_ties(columns, request.split.time_column, owner, planned),
        *settling_warnings(used, values, learners.training, len(fitted.task.classes)),
        *small_client_warnings(sent, [names[client] for client in training]),
    ]
    shown = (*roles, *(column.name for column in used))
    told = (reading.decisions[name].note for name in shown if name in reading.decisions)
    every_note = (*reading.notes, *told, *notes, *_split_notes(request.split), *task_notes, *fitted.notes)
    rows = Owned(inputs, values, owner, names, fitted.task, groups, weights, kept, reading.table.num_rows)
    made = assemble(cls, rows, planned, [*filter(None, every_note)], [*filter(None, warnings)], fitted)
    return dataclasses.replace(made, preparation=sent)


def choose_features(table: pa.Table, request: TableRequest, roles: Mapping[str, str]) -> list[str]:
    """The feature columns: those named, or all that have no other role and are not dropped."""
    _check_named(table, request, roles)
    chosen = [name for name in table.column_names if name not in roles and name not in request.drop]
    chosen = chosen if request.features is None else list(request.features)
    if not chosen:
        raise RequestError(
            "No column is left to be a feature; the table needs more than client and target, or --drop fewer."
        )
    unused = next((name for name in request.categorical if name not in (*chosen, *request.targets)), None)
    if unused is not None:
        raise RequestError(f"The categorical column {unused!r} is not among the features; add it to --features.")
    return chosen


def _check_named(table: pa.Table, request: TableRequest, roles: Mapping[str, str]) -> None:
    """RequestError for a column that options name twice, or that has another role; a target may be categorical."""
    # a target may be categorical: its labels are then read as texts
    categorical = tuple(name for name in request.categorical if name not in request.targets)
    _check_option(table, request.features or (), "features", "feature", roles)
    _check_option(table, request.drop, "drop", "dropped", roles)
    _check_option(table, categorical, "categorical", "categorical", roles)
    both = set(request.drop).intersection(request.named)
    if both:
        raise RequestError(f"Column {min(both)!r} is both used and dropped; take it out of --drop or of the others.")


def _check_option(table: pa.Table, names: tuple[str, ...], option: str, purpose: str, roles: Mapping[str, str]) -> None:
    require_columns(table, names, purpose)
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"--{option} must name different columns, got {name!r} more than once; name it once.")
        if name in roles:
            raise RequestError(f"Column {name!r} already has another role, {roles[name]}; take it out of --{option}.")


def drop_incomplete(table: pa.Table, roles: Mapping[str, str]) -> tuple[pa.Table, np.ndarray, list[str]]:
    """Without the rows that miss a value in a column with a role, which rows are left, and what to say."""
    notes, kept = [], np.arange(table.num_rows)
    for name in (name for name, role in roles.items() if role != "weight"):  # a missing weight is refused
        missing = pc.is_null(table.column(name), nan_is_null=True)
        amount = pc.sum(missing).as_py() or 0
        if amount:
            present = pc.invert(missing)
            table, kept = table.filter(present), kept[present.to_numpy()]
            rows, were = counted(amount, "row"), "was" if amount == 1 else "were"
            notes.append(f"{rows} without a value in {name!r} {were} dropped.")
    if table.num_rows == 0:
        raise RequestError("No row has both a client and a target; fill these columns.")
    return table, kept, notes


def _read_weights(column: Column) -> np.ndarray:
    """(rows,) float64, not-a-number where missing; RequestError for a column of something else."""
    if column.kind not in (NUMBER, TRUTH):
        what = f"has the type {column.data.type}"
        if column.kind == TEXT:
            texts = list(enumerate(column.texts))
            row, text = next((pair for pair in texts if not is_number((pair[1] or "0").strip())), texts[0])
            what = f"{nth_row(row)} has {text!r}"
        raise RequestError(
            f"The weight column {column.name!r} must hold finite numbers of at least 0, but {what}; correct it, or "
            "name another column."
        )
    return column.numbers


def plan_rows(
    columns: Mapping[str, Column], request: TableRequest, owner: np.ndarray, names: tuple[str, ...]
) -> tuple[Plan, np.ndarray | None]:
    """Which rows train, validate and test, and the group of each row where a column says it."""
    split = request.split
    group, given, time = split.group_column, split.split_column, split.time_column
    groups = None if group is None else encode_names(columns[group])[1]
    parts = None if given is None else np.array(columns[given].texts, dtype=str)
    times = None if time is None else _times(columns[time])
    least = 1 if request.alone else 2
    return plan(owner, names, split, request.seed, request.held_out, groups, parts, times, least), groups


def _times(column: Column) -> np.ndarray:
    """A number per row that grows with time."""
    if column.kind is None or column.kind == TEXT:
        what = f"holds {column.texts[0]!r}" if column.kind == TEXT else f"has the type {column.data.type}"
        raise RequestError(
            f"The time column {column.name!r} must hold numbers or dates such as 2024-01-31 or 2024-01-31 09:30, but "
            f"{what}; write its times so."
        )
    return column.numbers


def _fit(
    columns: Mapping[str, Column], request: TableRequest, features: list[str], task: str, rows: Learners
) -> tuple[Preprocessing, Preparation]:
    """The recipe, fitted or given, and what was sent for it."""
    if request.recipe is None:
        return Preprocessing.fit(columns, features, request, task, rows)
    learned = np.bincount(rows.owner[rows.training], minlength=len(rows.names))
    return _given(request.recipe, request, features, task), Preparation(GIVEN, learned)


def _given(recipe: Preprocessing, request: TableRequest, features: list[str], task: str) -> Preprocessing:
    """The recipe for this client column; RequestError where it is about another task or other columns."""
    if recipe.own is not None and not request.alone:
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
    # float64 scales may overflow as well as values in the precision of the run
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


def _split_notes(split: Split) -> list[str]:
    """What the columns that decide the split do: none of them is an input."""
    group, time = split.group_column, split.time_column
    together = (
        f"Rows of a client with equal values in column {group!r} stay together in training, validation or test rows; "
        "it is no input."
    )
    by_time = f"Column {time!r} splits each client's rows by time, newest rows test; it is no input."
    return [note for column, note in ((group, together), (time, by_time)) if column is not None]


def _time_ties(columns: Mapping[str, Column], time: str | None, owner: np.ndarray, planned: Plan) -> list[str]:
    """Clients whose oldest test row is no newer than a row before it: there is no telling the newest rows."""
    if time is None:
        return []
    times, tests = columns[time].numbers, planned.parts == TEST
    before, after = np.full(owner.max() + 1, -np.inf), np.full(owner.max() + 1, np.inf)
    np.maximum.at(before, owner[~tests], times[~tests])
    np.minimum.at(after, owner[tests], times[tests])
    tied = int((before >= after).sum())
    if not tied:
        return []
    return [
        f"{counted(tied, 'client has', 'clients have')} test rows of the same time in {time!r} as rows before "
        "them: the order of the table decided between these."
    ]


def _lookalike_levels(fitted: Preprocessing) -> list[str]:
    levels = {column.name: column.levels for column in fitted.columns if isinstance(column, CategoryColumn)}
    if fitted.target.kinds == (TEXT,):
        levels[fitted.target.names[0]] = fitted.target.classes
    return [text for name, values in levels.items() for text in lookalike_warnings(values, name)]
