# SPDX-License-Identifier: Apache-2.0
"""New rows through a finished run: its fitted preprocessing, its models, each client's own where it was kept."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load_file

from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError, nearest
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.tables import read_table
from idiolect.data.task import Task, label_name
from idiolect.experiments.build import assemble, client_loss_for
from idiolect.experiments.run_folder import safe_name
from idiolect.experiments.spec import Spec, from_table


def predict(folder: Path, source: Any, method: str | None = None, seed: int | None = None) -> pa.Table:
    """The rows of `source` with a column `prediction`, and for classes one column of probability each.

    A row goes to its client's own model where the run kept it (`output.models = "all"`), otherwise, and for clients the
    run does not know, to the shared model; the column `model` says which.
    """
    spec = _spec(folder)
    label = _label(spec, method)
    if seed is not None and seed not in spec.seeds:
        raise RequestError(f"--seed must be one of the run's, {', '.join(map(str, spec.seeds))}, got {seed}.")
    if spec.output.models == "none":
        raise RequestError(f"The run in {folder} kept no models; train again with --set \"output.models = 'all'\".")
    preprocessing = _preprocessing(folder)
    _refuse_diverged(folder, label)
    table = read_table(source)
    models = folder / "models" / f"{safe_name(label)}-seed{spec.seeds[0] if seed is None else seed}"
    files = (models / f"{kind}.safetensors" for kind in ("shared", "personal"))
    shared, personal = (load_model(path) if path.is_file() else None for path in files)
    if shared is None and personal is None:
        raise RequestError(
            f"The run kept no model of {label!r}; train again with --set \"output.models = 'all'\" to keep them all."
        )
    clients = _clients(spec, table)
    names = json.loads((folder / "models" / "clients.json").read_text(encoding="utf-8"))
    place = {name: number for number, name in enumerate(names)}
    own = np.asarray([place.get(client, -1) if personal is not None else -1 for client in clients])
    unknown = sorted({client for client, number in zip(clients, own) if number < 0})
    if unknown and shared is None:
        raise RequestError(
            f"{label!r} has no shared model and the run does not know client {unknown[0]!r}; "
            "predict for clients that trained."
        )
    inputs = preprocessing.apply(table)
    task = preprocessing.task
    plain = task.kind != "classification" and task.outputs == 1
    loss = client_loss_for(spec.model, task, inputs.shape[1:], plain_number=plain)
    entry = next(entry for entry in spec.methods if entry.label == label)
    algorithm = assemble(entry, loss, len(names), f"methods.{label}").algorithm
    outputs = _outputs(algorithm, inputs, own, shared, personal)
    return _with_answers(table, outputs, own, preprocessing, preprocessing.task)


def _outputs(algorithm: Algorithm, inputs: np.ndarray, own: np.ndarray, shared: Any, personal: Any) -> np.ndarray:
    """Every row's outputs, computed model by model."""
    answers: list[tuple[np.ndarray, np.ndarray]] = []
    for number in np.unique(own):
        rows = np.flatnonzero(own == number)
        params = shared if number < 0 else _row(personal, int(number))
        answers.append((rows, np.asarray(algorithm.predict(params, jnp.asarray(inputs[rows])))))
    outputs = np.empty((len(inputs), *answers[0][1].shape[1:]), answers[0][1].dtype)
    for rows, answer in answers:
        outputs[rows] = answer
    return outputs


def _with_answers(
    table: pa.Table, outputs: np.ndarray, own: np.ndarray, preprocessing: Preprocessing, task: Task
) -> pa.Table:
    taken = {"prediction", "model"}.intersection(table.column_names)
    if taken:
        raise RequestError(
            f"The table already has a column {min(taken)!r}; rename it, so that the answers can be added."
        )
    if task.kind != "classification":
        values = preprocessing.original_units(outputs)
        table = table.append_column("prediction", pa.array(np.asarray(values, np.float64).reshape(len(values))))
    else:
        table = table.append_column("prediction", pa.array([task.classes[best] for best in outputs.argmax(axis=1)]))
        shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        chances = shifted / shifted.sum(axis=1, keepdims=True)
        for number, name in enumerate(task.classes):
            table = table.append_column(f"probability of {name}", pa.array(chances[:, number].astype(np.float64)))
    return table.append_column("model", pa.array(["shared" if number < 0 else "personal" for number in own]))


def _spec(folder: Path) -> Spec:
    path = folder / "spec.toml"
    if not path.is_file():
        raise RequestError(f"{folder} is not a run folder: it has no spec.toml.")
    return from_table(tomllib.loads(path.read_text(encoding="utf-8")))


def _preprocessing(folder: Path) -> Preprocessing:
    path = folder / "models" / "preprocessing.json"
    if not path.is_file():
        raise RequestError(
            f"predict needs a run on a table (source = 'table'), and the one in {folder} has no fitted preprocessing; "
            "load its model in Python with idiolect.experiments.predict.load_model, as docs/networks.md shows."
        )
    return Preprocessing.from_json(path.read_text(encoding="utf-8"))


def _refuse_diverged(folder: Path, label: str) -> None:
    """RequestError for a method whose models are those from before it went wrong."""
    summary = folder / "summary.json"
    lines = json.loads(summary.read_text(encoding="utf-8"))["methods"] if summary.is_file() else []
    reason = next((line.get("diverged") for line in lines if line["method"] == label), None)
    if reason:
        raise RequestError(f"{label!r} has no answers: {str(reason).rstrip('.')}; train it again with a smaller step.")


def _label(spec: Spec, method: str | None) -> str:
    labels = [entry.label for entry in spec.methods]
    if method is None and len(labels) == 1:
        return labels[0]
    if method is None:
        raise RequestError(f"--method must name one of the run's methods, which are {', '.join(labels)}.")
    if method not in labels:
        raise RequestError(f"--method must name one of the run's methods, got {method!r}.{nearest(method, labels)}")
    return method


def _clients(spec: Spec, table: pa.Table) -> list[str]:
    column = spec.data.client
    if column is None or column not in table.column_names:
        return [""] * table.num_rows  # rows of nobody: the shared model answers
    return [label_name(value) for value in table[column].to_pylist()]


def load_model(path: str | Path) -> dict[str, Any]:
    """The parameters in a run's .safetensors file, as a model's `apply` takes them: {'dense_0': {'weights': ...}}.

    Those of personal.safetensors have a leading axis, one entry per client in the order of clients.json.
    """
    if not Path(path).is_file():
        raise RequestError(f"There is no model {path}; a run keeps them in models/LABEL-seedN, as output.models says.")
    try:
        arrays = load_file(path)
    except SafetensorError as error:
        raise RequestError(
            f"The file {path} is no model that can be read ({error}); copy it again, or rerun."
        ) from None
    nested: dict[str, Any] = {}
    for name, array in arrays.items():
        *places, last = name.split(".")
        inner = nested
        for part in places:
            inner = inner.setdefault(part, {})
        inner[last] = array
    return nested


def _row(params: Any, number: int) -> Any:
    return {key: _row(value, number) if isinstance(value, dict) else value[number] for key, value in params.items()}


def write_answers(answers: pa.Table, path: Path) -> None:
    """Write a CSV or Parquet file, by the name's ending."""
    from pyarrow import csv, parquet

    writers = {".csv": csv.write_csv, ".parquet": parquet.write_table}
    if path.suffix not in writers:
        raise RequestError(f"--out must end in .csv or .parquet, got {path.name!r}.")
    if path.exists():
        raise RequestError(f"--out must name a new file, and {path} is there already; choose another name.")
    writers[path.suffix](answers, path)
