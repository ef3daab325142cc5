# SPDX-License-Identifier: Apache-2.0
"""A finished run folder as `predict` finds it: its spec, its summary, and the method that it announced."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idiolect.core.checks import RequestError, nearest
from idiolect.experiments.kept_models import read_json
from idiolect.experiments.spec import Resolved, Spec, from_table
from idiolect.record.manifest import COPY_AGAIN, check_files

OTHERS = {  # files that tell folders apart which have no models to predict with
    "advise.json": "`idiolect advise` keeps no models; train with `idiolect compare` and predict from its folder",
    "numbers.json": "`idiolect reproduce` keeps no models for new rows; predict from a run on a table",
}


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run folder, what was asked and what came of it."""

    folder: Path
    spec: Spec
    summary: Mapping[str, Any]  # empty for a dial


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
    summary = read_json(folder / "summary.json") if (folder / "summary.json").is_file() else {"methods": []}
    if not (isinstance(summary, dict) and _is_lines(summary.get("methods"))):
        raise RequestError(f"{folder / 'summary.json'} is damaged; {COPY_AGAIN}.")
    return Finished(folder, spec, summary)


def _without_old_choices(table: dict[str, Any]) -> dict[str, Any]:
    """A spec without what an earlier version resolved and this one does not know: that was for training alone."""
    known = {field.name for field in dataclasses.fields(Resolved)}
    entries = table.get("resolved")
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        return table
    kept = {label: {key: value for key, value in entry.items() if key in known} for label, entry in entries.items()}
    return table | {"resolved": kept}


def _is_lines(lines: Any) -> bool:
    return isinstance(lines, list) and all(isinstance(line, dict) and "method" in line for line in lines)


def choose_method(run: Finished, method: str | None) -> tuple[str, str]:
    """The label of the method that answers, and why it is this one."""
    labels = [entry.label for entry in run.spec.methods]
    if method is not None and method not in labels:
        raise RequestError(f"--method must name one of the run's methods, got {method!r}.{nearest(method, labels)}")
    lost = {str(line["method"]) for line in run.summary["methods"] if line.get("diverged")}
    if lost.issuperset(labels):
        raise RequestError(
            f"Every method of the run in {run.folder} diverged, so that no model can answer; train again with smaller "
            "steps: --step-sizes of compare, or step_size of each method in a spec."
        )
    chosen, reason = (method, "as --method asks") if method is not None else _announced_of(run, labels)
    if chosen in lost:  # its models are those from before it went wrong
        line = next(line for line in run.summary["methods"] if line["method"] == chosen)
        others = ", ".join(label for label in labels if label not in lost)
        raise RequestError(
            f"{chosen!r} has no answers: {str(line['diverged']).rstrip('.')}; train it again with a smaller step, or "
            f"take another method: {others}."
        )
    return chosen, reason


def _announced_of(run: Finished, labels: list[str]) -> tuple[str, str]:
    if len(labels) == 1:
        return labels[0], "the run's only method"
    label = announced_method(run.summary)
    if label in labels:
        return label, "the method that the run announced"
    lost = {line["method"] for line in run.summary["methods"] if line.get("diverged")}
    able = ", ".join(name for name in labels if name not in lost)
    raise RequestError(f"The run announces no best method; name one with --method: {able}.")


def announced_method(summary: Mapping[str, Any]) -> str | None:
    """The method that a run's summary announces: chosen on validation rows, never on test rows."""
    announced = summary.get("announced")
    if isinstance(announced, Mapping) and isinstance(announced.get("method"), str):
        return str(announced["method"])
    scores, higher = summary.get("scores"), summary.get("higher_is_better")
    if not (isinstance(scores, list) and scores and isinstance(higher, Mapping)):
        return None
    sign = 1 if higher.get(scores[0], True) else -1
    known = [line for line in summary["methods"] if isinstance(line.get("validation_mean"), int | float)]
    sound = [line for line in known if not line.get("diverged")]
    best = max(sound, key=lambda line: sign * line["validation_mean"], default=None)
    return None if best is None else str(best["method"])
