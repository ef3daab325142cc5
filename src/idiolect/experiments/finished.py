# SPDX-License-Identifier: Apache-2.0
"""A finished run folder as `predict` finds it: its spec, its summary, and the method that it announced."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from idiolect.core.checks import RequestError, nearest
from idiolect.experiments.spec import Resolved, Spec, from_table
from idiolect.record.manifest import COPY_AGAIN, check_files
from idiolect.record.reading import read_summary
from idiolect.record.schema import MethodSummary

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
    if method is not None and method not in labels:
        raise RequestError(f"--method must name one of the run's methods, got {method!r}.{nearest(method, labels)}")
    lost = {line.method for line in run.methods if line.diverged}
    if lost.issuperset(labels):
        raise RequestError(
            f"Every method of the run in {run.folder} diverged, so that no model can answer; train again with smaller "
            "steps: --step-sizes of compare, or step_size of each method in a spec."
        )
    chosen, reason = (method, "as --method asks") if method is not None else _announced_of(run, labels)
    if chosen in lost:  # its models are those from before it went wrong
        line = next(line for line in run.methods if line.method == chosen)
        others = ", ".join(label for label in labels if label not in lost)
        raise RequestError(
            f"{chosen!r} has no answers: {line.diverged}; train it again with a smaller step, or "
            f"take another method: {others}."
        )
    return chosen, reason


def _announced_of(run: Finished, labels: list[str]) -> tuple[str, str]:
    if len(labels) == 1:
        return labels[0], "the run's only method"
    if run.announced in labels:
        return run.announced, "the method that the run announced"
    lost = {line.method for line in run.methods if line.diverged}
    able = ", ".join(name for name in labels if name not in lost)
    raise RequestError(f"The run announces no best method; name one with --method: {able}.")
