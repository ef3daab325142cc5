# SPDX-License-Identifier: Apache-2.0
"""The history of a run as TensorBoard and MLflow show it, written from its folder; both are extras."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from idiolect.record.errors import RequestError
from idiolect.record.schema import MethodSummary
from idiolect.report.columns import method_row
from idiolect.report.folder import Run, of_method

KINDS = {"tensorboard": "tensorboardX", "mlflow": "mlflow"}  # and what is imported for them
_KEYS = ("method", "seed", "round")
_BATCH = 500  # metrics in one request; MLflow takes 1000


class Curve(NamedTuple):
    """The history of one method and seed, and what it ended with."""

    method: str
    seed: int
    points: list[tuple[int, dict[str, float]]]  # round, and what was recorded then
    end: dict[str, float]  # scores on test rows, gains and costs of the method, all seeds together
    settings: Mapping[str, object]


def parse_log(text: str) -> tuple[str, str]:
    """'tensorboard=DIR' as two words; RequestError for anything else."""
    kind, _, target = text.partition("=")
    if kind not in KINDS or not target:
        raise RequestError(f"--log must be tensorboard=DIR or mlflow=URI, got {text!r}.")
    return kind, target


def log_run(run: Run, kind: str, target: str) -> int:
    """Write the history of all methods and seeds; returns how many curves there were."""
    module = _import(kind)
    curves = list(_curves(run))
    if kind == "tensorboard":
        _to_tensorboard(module, run.name, curves, target)
        return len(curves)
    try:
        _to_mlflow(module, run.name, curves, target)
    except module.MlflowException as error:
        first = " ".join(str(error).split()).partition(". ")[0]
        raise RequestError(f"MLflow refused {target!r}: {first}. Give the URI of a server or a data base.") from None
    return len(curves)


def _import(kind: str) -> ModuleType:
    try:
        return importlib.import_module(KINDS[kind])
    except ImportError:
        raise RequestError(
            f"Logging to {kind} needs a package that is not installed; `pip install 'idiolect[{kind}]'` brings it."
        ) from None


def _curves(run: Run) -> Iterator[Curve]:
    for entry in run.methods:
        rows = of_method(run.history, entry.method).to_pylist()
        for seed in sorted({row["seed"] for row in rows}):
            own = sorted((row for row in rows if row["seed"] == seed), key=lambda row: row["round"])
            points = [(int(row["round"]), _numbers(row)) for row in own]
            yield Curve(entry.method, int(seed), points, _end(entry), entry.settings)


def _numbers(row: Mapping[str, object]) -> dict[str, float]:
    """What is a finite number in it, without the keys."""
    found = {name: value for name, value in row.items() if name not in _KEYS and isinstance(value, int | float)}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def _end(entry: MethodSummary) -> dict[str, float]:
    return {f"end/{name}": value for name, value in _numbers(method_row(entry).numbers).items()}


def _label(curve: Curve) -> str:
    return f"{curve.method}-seed{curve.seed}"


def _to_tensorboard(module: ModuleType, name: str, curves: list[Curve], target: str) -> None:
    """An event file per method and seed in DIR/NAME, with the rounds as steps."""
    for curve in curves:
        folder = Path(target) / _safe(name) / _safe(_label(curve))
        with module.SummaryWriter(str(folder)) as writer:
            for step, values in curve.points:
                for tag, value in values.items():
                    writer.add_scalar(tag, value, step)
            last = curve.points[-1][0]
            for tag, value in curve.end.items():
                writer.add_scalar(tag, value, last)
            settings = json.dumps(dict(curve.settings), default=str, sort_keys=True)
            writer.add_text("settings", settings, last)


def _safe(name: str) -> str:
    """A name as a folder of its own: no way up, no way down."""
    return "".join(letter if letter.isalnum() or letter in "-_.=," else "_" for letter in name).strip(".") or "_"


def _to_mlflow(module: ModuleType, name: str, curves: list[Curve], target: str) -> None:
    """A run per method and seed in the experiment NAME, with the rounds as steps and the settings as parameters."""
    client = module.MlflowClient(tracking_uri=target)
    known = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if known is None else known.experiment_id
    entities = importlib.import_module("mlflow.entities")
    for curve in curves:
        made = client.create_run(experiment, run_name=_label(curve)).info.run_id
        settings = {"method": curve.method, "seed": curve.seed, **curve.settings}
        for key, value in settings.items():
            client.log_param(made, _tag(key), str(value)[:500])
        # what the run ended with stands at its last round, beside the history
        last = curve.points[-1][0]
        points = [(tag, value, step) for step, values in curve.points for tag, value in values.items()]
        points += [(tag, value, last) for tag, value in curve.end.items()]
        metrics = [entities.Metric(_tag(tag), value, 0, step) for tag, value, step in points]
        for start in range(0, len(metrics), _BATCH):
            client.log_batch(made, metrics=metrics[start : start + _BATCH])
        client.set_terminated(made)


def _tag(name: str) -> str:
    """A name as MLflow takes it: letters, digits, and a few marks."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-. /") else "_" for letter in name)
