# SPDX-License-Identifier: Apache-2.0
"""A finished run folder as `predict` finds it: spec, summary, announced method, and how a table becomes inputs."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from idiolect.core.checks import RequestError, nearest
from idiolect.data.feature_columns import NumberColumn
from idiolect.data.preprocessing import Preprocessing
from idiolect.experiments.spec import Resolved, Spec, from_table
from idiolect.record.codec import MisfitError, decode, to_json
from idiolect.record.manifest import COPY_AGAIN, check_files
from idiolect.record.reading import read_summary
from idiolect.record.schema import MethodSummary

KEEP_ALL = "train again with --set \"output.models = 'all'\""
OTHERS = {  # files that tell folders apart which have no models to predict with
    "advise.json": "`idiolect advise` keeps no models; train with `idiolect compare` and predict from its folder",
    "numbers.json": "`idiolect reproduce` keeps no models for new rows; predict from a run on a table",
}


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run folder, what was asked and what came of it."""

    folder: Path
    spec: Spec
    methods: tuple[MethodSummary, ...]  # none for a dial
    announced: str | None


def open_finished(folder: Path) -> Finished:
    """The finished run in a folder; RequestError for anything else."""
    path = folder / "spec.toml"
    if (folder / "split-01").is_dir():
        raise RequestError(
            f"{folder} holds a run for each of several splits of the rows; predict from one of them, such as "
            f"{folder / 'split-01'}."
        )
    for name, reason in OTHERS.items():
        if (folder / name).is_file():
            raise RequestError(f"There is nothing to predict with in {folder}: {reason}.")
    if not path.is_file():
        raise RequestError(f"{folder} is not a run folder: it has no spec.toml.")
    if not (folder / "done").is_file():
        raise RequestError(f"The run in {folder} is not finished; go on with it by --resume, then predict.")
    check_files(folder, ("spec.toml", "summary.json"))
    try:
        spec = from_table(_without_old_choices(tomllib.loads(path.read_text(encoding="utf-8"))))
    except RequestError:
        raise
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read ({error}); {COPY_AGAIN}.") from None
    if not (folder / "summary.json").is_file():
        return Finished(folder, spec, (), None)
    summary = read_summary(folder)
    return Finished(folder, spec, summary.methods, None if summary.announced is None else summary.announced.method)


def _without_old_choices(table: dict[str, Any]) -> dict[str, Any]:
    """A spec without what an earlier version resolved and this one does not know: that was for training alone."""
    known = {field.name for field in dataclasses.fields(Resolved)}
    entries = table.get("resolved")
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        return table
    kept = {label: {key: value for key, value in entry.items() if key in known} for label, entry in entries.items()}
    return table | {"resolved": kept}


def choose_method(run: Finished, method: str | None) -> tuple[str, str]:
    """The label of the method that answers, and why it is this one."""
    labels = [entry.label for entry in run.spec.methods]
    lost = {line.method: line.diverged for line in run.methods if line.diverged}
    able = ", ".join(label for label in labels if label not in lost)
    if method is not None and method not in labels:
        raise RequestError(f"--method must name one of the run's methods, got {method!r}.{nearest(method, labels)}")
    if not able:
        raise RequestError(
            f"Every method of the run in {run.folder} diverged, so that no model can answer; train again with smaller "
            "steps: --step-sizes of compare, or step_size of each method in a spec."
        )
    announced = (run.announced, "the method that the run announced") if run.announced in labels else (None, "")
    only = (labels[0], "the run's only method") if len(labels) == 1 else announced
    chosen, reason = only if method is None else (method, "as --method asks")
    if chosen is None:
        raise RequestError(f"The run announces no best method; name one with --method: {able}.")
    if chosen in lost:  # its models are those from before it went wrong
        raise RequestError(
            f"{chosen!r} has no answers: {lost[chosen]}; train it again with a smaller step, or take another method: "
            f"{able}."
        )
    return chosen, reason


def read_recipe(run: Finished) -> Preprocessing:
    """How the run's table became inputs; RequestError where that was not kept or is damaged."""
    check_files(run.folder, ["models/preprocessing.json"])
    path = run.folder / "models" / "preprocessing.json"
    if run.spec.output.models == "none":
        raise RequestError(f"The run in {run.folder} kept no models; {KEEP_ALL}.")
    if not path.is_file() and run.spec.data.source == "table":
        raise RequestError(f"There is no {path}, which says how a table becomes inputs; copy it too, or {KEEP_ALL}.")
    if not path.is_file():
        raise RequestError(
            f"predict needs a run on a table (source = 'table'), and the one in {run.folder} has no fitted "
            "preprocessing; load its model in Python with idiolect.experiments.predict.load_model, as docs/networks.md "
            "shows."
        )
    try:
        recipe = Preprocessing.from_json(path.read_text(encoding="utf-8"))
        _check_recipe(recipe)
    except (OSError, ValueError, MisfitError) as error:
        raise RequestError(f"{path} is damaged ({error}); {COPY_AGAIN}.") from None
    return recipe


def _check_recipe(recipe: Preprocessing) -> None:
    """MisfitError where a part of it is not of the type that it is declared with, or makes no sense."""
    for part in (*recipe.columns, recipe.target):
        decode(type(part), to_json(part), getattr(part, "name", "target"))
    decode(str | None, recipe.client, "client")
    target = recipe.target
    if any(isinstance(column, NumberColumn) and column.scale <= 0 for column in recipe.columns):
        raise MisfitError("a scale must be above 0")
    scales = (target.names, target.centres, target.scales)
    if not recipe.columns or not target.names or not (target.classes or len(set(map(len, scales))) == 1):
        raise MisfitError("columns, target.names, target.centres or target.scales are missing")
