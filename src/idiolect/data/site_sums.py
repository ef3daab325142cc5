# SPDX-License-Identifier: Apache-2.0
"""Preparation over real machines: what a site says of its own columns, and the recipe that all sites' words make.

The very sums that `Preprocessing.fit` adds up in a simulation, but each site computes its own where its rows are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import Column, columns_of
from idiolect.data.doubtful import doubt_features
from idiolect.data.feature_columns import Fitted, NumberColumn, fit_category, fit_number, own_scales, summarise
from idiolect.data.from_table import choose_features, drop_incomplete, plan_rows
from idiolect.data.kinds import NUMBER, TEXT
from idiolect.data.names import encode_names
from idiolect.data.preparation import LOCAL, Numbers, Preparation, Texts, summarise_numbers
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.split import PARTS, TRAIN
from idiolect.data.table_request import TableRequest
from idiolect.data.tables import check_roles, read
from idiolect.data.target_columns import FittedTargets, TargetColumns, prepare_targets, scale_targets, target_values
from idiolect.data.task import check_counts, encode_labels

Summary = Numbers | Texts  # of one site


class SiteSums(NamedTuple):
    """What one site says of its rows; the whole of it is sent."""

    task: str
    rows: dict[str, int]  # of each split
    kinds: dict[str, str]  # of each column that holds a value
    features: dict[str, Summary]
    targets: dict[str, Summary]
    class_counts: dict[str, int]  # of the training rows; empty where no score is to be chosen by them


def site_sums(source: object, request: TableRequest, count_classes: bool) -> SiteSums:
    """Summaries of a site's training rows, and the names of its classes."""
    reading = read(source, request.kinds)
    roles = check_roles(reading.table, request.client, request.targets, request.other_roles)
    chosen = choose_features(reading.table, request, roles)
    table, _, _ = drop_incomplete(reading.table, roles)
    columns = columns_of(table)
    doubts = doubt_features(columns, chosen, request.named)
    columns, task, _ = prepare_targets(columns, request.targets, request.task)
    names, owner = encode_names(columns[request.client])
    planned, _ = plan_rows(columns, request, owner, names)
    training = planned.parts == TRAIN
    found = {name: _summary(columns[name].take(training)) for name in doubts.kept}
    targets, counts = _sums_of_targets(columns, request.targets, task, training)
    there = [name for name in (*found, *request.targets) if columns[name].present]
    kinds = {name: reading.dates.get(name, columns[name].kind or TEXT) for name in there}
    rows = {word: int((planned.parts == part).sum()) for part, word in enumerate(PARTS)}
    return SiteSums(task, rows, kinds, found, targets, counts if count_classes else {})


def _summary(column: Column) -> Summary:
    if column.kind is None:
        raise RequestError(f"Column {column.name!r} must hold numbers or texts; convert it, or name it in data.drop.")
    return summarise(column, np.zeros(len(column), np.int64), 1)


def _sums_of_targets(
    columns: Mapping[str, Column], names: tuple[str, ...], task: str, training: np.ndarray
) -> tuple[dict[str, Summary], dict[str, int]]:
    """What is said of the targets, and the training rows of each class."""
    if task == "classification":
        classes, codes = encode_labels(columns[names[0]].labels)
        counts = np.bincount(codes[training], minlength=len(classes))
        return {names[0]: Texts((classes,), np.zeros(1, np.int64))}, dict(zip(classes, counts.tolist()))
    values = target_values([columns[name] for name in names])
    if task == "counts":
        check_counts(values, f"the target {names[0]!r}")
    owner = np.zeros(int(training.sum()), np.int64)
    return {name: summarise_numbers(own, owner, 1) for name, own in zip(names, values[training].T)}, {}


def to_facts(sums: SiteSums) -> dict[str, Any]:
    """Plain values of JSON, in which no number is infinite."""
    parts = {part: {name: _plain(one) for name, one in getattr(sums, part).items()} for part in ("features", "targets")}
    return {**sums._asdict(), **parts}


def _plain(summary: Summary) -> dict[str, Any]:
    if isinstance(summary, Texts):
        return {"levels": list(summary.levels[0]), "missing": int(summary.missing[0])}
    # a site without a value has infinite ends, and JSON has no infinity
    return {name: float(part[0]) if np.isfinite(part[0]) else None for name, part in summary._asdict().items()}


def from_facts(facts: Mapping[str, Any], sender: str) -> SiteSums:
    """What `to_facts` made; RequestError for anything else."""
    try:
        parts = {
            part: {str(name): _restored(one) for name, one in facts[part].items()} for part in ("features", "targets")
        }
        rows = {word: int(facts["rows"][word]) for word in PARTS}
        counts = {str(name): int(count) for name, count in facts["class_counts"].items()}
        kinds = {str(name): str(kind) for name, kind in facts["kinds"].items()}
        made = SiteSums(str(facts["task"]), rows, kinds, parts["features"], parts["targets"], counts)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RequestError(f"{sender} sent sums that cannot be read.") from None
    if min(rows.values()) < 0 or rows["train"] < 1:
        raise RequestError(f"{sender} has no training row.")
    return made


def _restored(one: Mapping[str, Any]) -> Summary:
    if "levels" in one:
        return Texts((tuple(map(str, one["levels"])),), np.array([int(one["missing"])]))
    ends = {"lowest": np.inf, "highest": -np.inf}
    values = {name: ends.get(name, 0.0) if one[name] is None else float(one[name]) for name in Numbers._fields}
    whole = ("present", "missing", "others")
    return Numbers(**{name: np.array([int(value) if name in whole else value]) for name, value in values.items()})


def recipe_of(sums: Mapping[str, SiteSums], request: TableRequest) -> tuple[Preprocessing, Preparation]:
    """The recipe that the sums of all sites make, and what was sent for it."""
    _check_alike(sums)
    first = next(iter(sums.values()))
    fitted = {name: _fit(name, sums, request) for name in first.features}
    nothing = "No feature column can be an input at all sites."
    rows = np.array([one.rows["train"] for one in sums.values()])
    recipe, preparation = Preprocessing.of_fitted(fitted, _fit_targets(sums, request), request, rows, nothing)
    if request.preparation == LOCAL:  # each site scales by its own numbers, which no other sees
        recipe = dataclasses.replace(recipe, notes=(_BY_OWN,))
    return recipe, preparation


_BY_OWN = "Each site's numbers are centred and scaled by its own training rows; numeric targets keep their units."


def without_numbers(sums: SiteSums) -> SiteSums:
    """What is said where each site is scaled by its own rows: of numbers only whether there are some, and gaps."""
    features = {name: _marks(one, 0.0) for name, one in sums.features.items()}
    return sums._replace(features=features, targets={name: _marks(one, 1.0) for name, one in sums.targets.items()})


def without_columns(sums: SiteSums, classes: bool) -> SiteSums:
    """What is said where the recipe is given: the task and numbers of rows; of classes too where that may be known."""
    return sums._replace(kinds={}, features={}, targets={}, class_counts=sums.class_counts if classes else {})


def _marks(summary: Summary, highest: float) -> Summary:
    if isinstance(summary, Texts):
        return summary
    # that there are some, not how many: the others need no more, to know the columns
    there, missing = (np.minimum(part, 1) for part in (summary.present, summary.missing))
    nothing = np.zeros(1)
    return Numbers(there, missing, nothing, nothing, nothing, np.full(1, highest), np.zeros(1, np.int64))


def _check_alike(sums: Mapping[str, SiteSums]) -> None:
    """RequestError where sites have other columns, kinds of values, or tasks."""
    first, *others = sums.items()
    for site, one in others:
        more = set(first[1].features) ^ set(one.features)
        if more:
            raise RequestError(
                f"Sites {first[0]!r} and {site!r} have other feature columns, such as {min(more)!r}; name the columns "
                "that all sites have in data.features."
            )
        if one.task != first[1].task:
            raise RequestError(
                f"Site {first[0]!r} has a task of {first[1].task} and site {site!r} one of {one.task}; set data.task."
            )
        shared = sorted(set(one.kinds) & set(first[1].kinds))
        other = next((name for name in shared if one.kinds[name] != first[1].kinds[name]), None)
        if other is not None:
            raise RequestError(
                f"Column {other!r} holds {first[1].kinds[other]} values at site {first[0]!r} and {one.kinds[other]} "
                f"values at site {site!r}; correct it, or name it in data.categorical."
            )


def _kind(name: str, sums: Mapping[str, SiteSums]) -> str:
    return next((one.kinds[name] for one in sums.values() if name in one.kinds), NUMBER)


def _fit(name: str, sums: Mapping[str, SiteSums], request: TableRequest) -> Fitted:
    each = [one.features[name] for one in sums.values()]
    numbers = [one for one in each if isinstance(one, Numbers)]
    if len(numbers) == len(each):
        return fit_number(name, _stacked(numbers), _kind(name, sums), request.scaling)
    return fit_category(name, _joined(each), name in request.named)


def _stacked(each: list[Numbers]) -> Numbers:
    return Numbers(*(np.concatenate(part) for part in zip(*each)))


def _joined(each: list[Any]) -> Texts:
    """Texts of all sites; a site without a value says so in numbers."""
    empty = Texts(((),), np.zeros(1, np.int64))
    texts = [one if isinstance(one, Texts) else empty._replace(missing=one.missing) for one in each]
    return Texts(tuple(one.levels[0] for one in texts), np.concatenate([one.missing for one in texts]))


def _fit_targets(sums: Mapping[str, SiteSums], request: TableRequest) -> FittedTargets:
    names, task = request.targets, next(iter(sums.values())).task
    each = {name: [one.targets[name] for one in sums.values()] for name in names}
    kinds = tuple(_kind(name, sums) for name in names)
    if task == "classification":
        texts = _joined(each[names[0]])
        # a site may lack a class; all sites number the same ones
        every = set[str]().union(*texts.levels)
        if len(every) < 2:
            raise RequestError(f"The target {names[0]!r} is the same at all sites; choose a column that varies.")
        classes = tuple(sorted(every, key=float if kinds[0] == NUMBER else None))
        return FittedTargets(TargetColumns(names, classes, kinds=kinds), {names[0]: texts}, [])
    numbers = {name: _stacked([one for one in parts if isinstance(one, Numbers)]) for name, parts in each.items()}
    return scale_targets(names, kinds, task, numbers, request.of_targets)


def scaled_by_own(recipe: Preprocessing, sums: SiteSums, site: str, scaling: str) -> Preprocessing:
    """The recipe where each site is scaled by its own rows: its numbers stay with it."""
    said = [sums.features[column.name] for column in recipe.columns if isinstance(column, NumberColumn)]
    each = [own_scales(one, scaling)[0].tolist() for one in said if isinstance(one, Numbers)]
    return dataclasses.replace(recipe, own={site: tuple(map(tuple, each))})
