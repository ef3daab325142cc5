# SPDX-License-Identifier: Apache-2.0
"""The history of a run as TensorBoard and MLflow show it, written from its folder; both are extras."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from idiolect.record.errors import RequestError
from idiolect.report.columns import method_row
from idiolect.report.folder import Run, of_method

KINDS = {"tensorboard": "tensorboardX", "mlflow": "mlflow"}  # and what is imported for them
_KEYS = ("method", "seed", "round")
_BATCH = 500  # metrics in one request; MLflow takes 1000


class Curve(NamedTuple):
    """The history of one method and seed, and what it ended with."""

    method: str
    seed: int
    metrics: list[tuple[str, float, int]]  # name, value, round; at the last, scores on test rows, gains and costs
    last: int
    settings: Mapping[str, object]


def parse_log(text: str) -> tuple[str, str]:
    """'tensorboard=DIR' as two words; RequestError for anything else."""
    kind, _, target = text.partition("=")
    if kind not in KINDS or not target:
        raise RequestError(f"--log must be tensorboard=DIR or mlflow=URI, got {text!r}.")
    return kind, target


def log_run(run: Run, kind: str, target: str) -> int:
    """Write the history of all methods and seeds; returns how many curves there were."""
    try:
        module = importlib.import_module(KINDS[kind])
    except ImportError:
        raise RequestError(
            f"Logging to {kind} needs a package that is not installed; `pip install 'idiolect[{kind}]'` brings it."
        ) from None
    curves = list(_curves(run))
    if kind == "tensorboard":
        _to_tensorboard(module, Path(target) / _safe(run.name), curves)
        return len(curves)
    try:
        _to_mlflow(module.MlflowClient(tracking_uri=target), run.name, curves)
    except module.MlflowException as error:
        first = " ".join(str(error).split()).partition(". ")[0]
        raise RequestError(f"MLflow refused {target!r}: {first}. Give the URI of a server or a data base.") from None
    return len(curves)


def _curves(run: Run) -> Iterator[Curve]:
    for entry in run.methods:
        rows = of_method(run.history, entry.method).to_pylist()
        rows.sort(key=lambda row: (row["seed"], row["round"]))
        # of the method, all seeds together
        end = {f"end/{name}": value for name, value in _numbers(method_row(entry).numbers).items()}
        for seed, group in itertools.groupby(rows, key=lambda row: int(row["seed"])):
            own = list(group)
            last = int(own[-1]["round"])
            metrics = [(tag, value, int(row["round"])) for row in own for tag, value in _numbers(row).items()]
            metrics += [(tag, value, last) for tag, value in end.items()]
            yield Curve(entry.method, seed, metrics, last, entry.settings)


def _numbers(row: Mapping[str, object]) -> dict[str, float]:
    """What is a finite number in it, without the keys."""
    found = {name: value for name, value in row.items() if name not in _KEYS and isinstance(value, int | float)}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def _to_tensorboard(module: ModuleType, folder: Path, curves: list[Curve]) -> None:
    """An event file per method and seed, with the rounds as steps."""
    for curve in curves:
        with module.SummaryWriter(str(folder / _safe(f"{curve.method}-seed{curve.seed}"))) as writer:
            for tag, value, step in curve.metrics:
                writer.add_scalar(tag, value, step)
            settings = json.dumps(dict(curve.settings), default=str, sort_keys=True)
            writer.add_text("settings", settings, curve.last)


def _safe(name: str) -> str:
    """A name as a folder of its own: no way up, no way down."""
    return re.sub(r"[^\w.=,-]", "_", name).strip(".") or "_"


def _to_mlflow(client: Any, name: str, curves: list[Curve]) -> None:
    """A run per method and seed in the experiment NAME, with the rounds as steps and the settings as parameters."""
    known = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if known is None else known.experiment_id
    entities = importlib.import_module("mlflow.entities")
    for curve in curves:
        made = client.create_run(experiment, run_name=f"{curve.method}-seed{curve.seed}").info.run_id
        for key, value in {"method": curve.method, "seed": curve.seed, **curve.settings}.items():
            client.log_param(made, _tag(key), str(value)[:500])
        metrics = [entities.Metric(_tag(tag), value, 0, step) for tag, value, step in curve.metrics]
        for start in range(0, len(metrics), _BATCH):
            client.log_batch(made, metrics=metrics[start : start + _BATCH])
        client.set_terminated(made)


def _tag(name: str) -> str:
    """A name as MLflow takes it: letters, digits, and a few marks."""
    return re.sub(r"[^\w. /-]", "_", name, flags=re.ASCII)
