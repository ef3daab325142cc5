# SPDX-License-Identifier: Apache-2.0
"""A finished run as `predict` finds it: spec, announced method, how a table becomes inputs, and models to apply."""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from idiolect.core import Algorithm, RequestError, keys, tree
from idiolect.core.addressing import address, axes
from idiolect.core.checks import nearest
from idiolect.core.tree import Params
from idiolect.data.feature_columns import NumberColumn
from idiolect.data.preprocessing import Preprocessing
from idiolect.engines.door import PRECISIONS, run_precision
from idiolect.experiments.run_folder import safe_name
from idiolect.experiments.spec import Spec, from_table
from idiolect.record.choices import Choice
from idiolect.record.codec import MisfitError, decode, to_json
from idiolect.record.manifest import COPY_AGAIN, check_files
from idiolect.record.reading import read_record, read_summary
from idiolect.record.schema import RunSummary

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
    summary: RunSummary | None  # None of a dial


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
    check_files(folder, ("spec.toml", "summary.json", "dial.json"))
    # first: another version's spec may have settings that this one does not know
    summary = read_summary(folder) if (folder / "summary.json").is_file() else None
    if (folder / "dial.json").is_file():
        read_record(Choice, folder / "dial.json")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read ({error}); {COPY_AGAIN}.") from None
    return Finished(folder, from_table(table), summary)


def choose_method(run: Finished, method: str | None) -> tuple[str, str]:
    """The label of the method that answers, and why it is this one."""
    labels = [entry.label for entry in run.spec.methods]
    lines = () if run.summary is None else run.summary.methods
    lost = {line.method: line.diverged for line in lines if line.diverged}
    able = ", ".join(label for label in labels if label not in lost)
    chosen, reason = _named_or_announced(run, labels, method)
    if not able:
        raise RequestError(
            f"Every method of the run in {run.folder} diverged, so that no model can answer; train again with smaller "
            "steps: --step-sizes of compare, or step_size of each method in a spec."
        )
    if chosen is None:
        raise RequestError(f"The run announces no best method; name one with --method: {able}.")
    if chosen in lost:  # its models are those from before it went wrong
        raise RequestError(
            f"{chosen!r} has no answers: {lost[chosen]}; train it again with a smaller step, or take another method: "
            f"{able}."
        )
    return chosen, reason


def _named_or_announced(run: Finished, labels: list[str], method: str | None) -> tuple[str | None, str]:
    if method is not None and method not in labels:
        raise RequestError(f"--method must name one of the run's methods, got {method!r}.{nearest(method, labels)}")
    if method is not None:
        return method, "as --method asks"
    if len(labels) == 1:
        return labels[0], "the run's only method"
    announced = None if run.summary is None or run.summary.announced is None else run.summary.announced.method
    return (announced, "the method that the run announced") if announced in labels else (None, "")


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


BLOCK = 256  # rows of one model that are answered together
MOST_NUMBERS = 1 << 24  # held at once: what one call answers is bounded by it, whatever the table's size


class Kept(NamedTuple):
    """What a run kept of one method and seed; None for what it did not."""

    shared: Params | None
    personal: Params | None  # leaves stacked over clients
    names: tuple[str, ...]  # of the clients, in that order


def read_models(folder: Path, label: str, seed: int, algorithm: Algorithm, precision: str) -> Kept:
    """The models in `models/LABEL-seedN`; RequestError for files that are damaged or of another method."""
    names = read_clients(folder)
    models = folder / "models" / f"{safe_name(label)}-seed{seed}"
    files = {kind: models / f"{kind}.safetensors" for kind in ("shared", "personal")}
    check_files(folder, [path.relative_to(folder).as_posix() for path in files.values()])
    shared, personal = (load_model(path) if path.is_file() else None for path in files.values())
    if shared is not None:
        _check_shared(shared, algorithm, precision, files["shared"])
    for leaf in jax.tree.leaves(personal):
        if leaf.shape[:1] != (len(names),):
            raise RequestError(
                f"{files['personal']} must hold a model for each of the {len(names)} clients of clients.json, got "
                f"an array of shape {leaf.shape}; {COPY_AGAIN}."
            )
    return Kept(shared, personal, names)


def read_clients(folder: Path) -> tuple[str, ...]:
    """The clients that trained, in the order of their models."""
    check_files(folder, ["models/clients.json"])
    path = folder / "models" / "clients.json"
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{path} cannot be read ({error.strerror}); {COPY_AGAIN}.") from None
    except ValueError as error:
        raise RequestError(f"{path} is damaged ({error}); {COPY_AGAIN}.") from None
    if not isinstance(names, list) or len(set(map(str, names))) != len(names):
        raise RequestError(f"{path} must be a list of different names; {COPY_AGAIN}.")
    return tuple(map(str, names))


def load_model(path: str | Path) -> dict[str, Any]:
    """The parameters in a run's .safetensors file, as a model's `apply` takes them: {'dense_0': {'weights': ...}}.

    Those of personal.safetensors have a leading axis, one entry per client in the order of clients.json.
    """
    if not Path(path).is_file():
        raise RequestError(f"There is no model {path}; a run keeps them in models/LABEL-seedN, as output.models says.")
    try:
        arrays = load_file(path)
    except (SafetensorError, OSError) as error:
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


def _check_shared(params: Params, algorithm: Algorithm, precision: str, path: Path) -> None:
    """RequestError where the shared model is not one of this method."""
    with run_precision(precision):
        wanted = jax.eval_shape(lambda key: algorithm.shared_model(algorithm.init_server(key)), keys.root_key(0))
    found, declared = (jax.tree_util.tree_flatten_with_path(one)[0] for one in (params, wanted))
    if [path for path, _ in found] != [path for path, _ in declared]:
        raise RequestError(f"{path} is not a model of this run's method; {COPY_AGAIN}.")
    for (_, leaf), (_, like) in zip(found, declared):
        if leaf.shape != like.shape:
            raise RequestError(
                f"{path} holds an array of shape {leaf.shape} where this run's model has {like.shape}; {COPY_AGAIN}."
            )


def apply_models(algorithm: Algorithm, kept: Kept, inputs: np.ndarray, own: np.ndarray, precision: str) -> np.ndarray:
    """Every row's outputs: by the model of client number `own[row]`, or where that is -1 by the shared model.

    Rows are answered in blocks of one model each, blocks of equal size, so that one program serves all of them.
    """
    width = int(np.prod(inputs.shape[1:]))
    answers: np.ndarray | None = None
    for personal in (False, True):
        chosen = np.flatnonzero((own >= 0) == personal)
        if not chosen.size:
            continue
        params = kept.personal if personal else kept.shared
        numbers = sum(leaf[0].size if personal else leaf.size for leaf in jax.tree.leaves(params))
        owners, rows = _blocks(own[chosen])
        at_once = max(1, MOST_NUMBERS // (rows.shape[1] * (width + numbers)))
        for first in range(0, len(owners), at_once):
            part = slice(first, first + at_once)
            taken = _padded(rows[part], min(at_once, len(owners)))
            clients = _padded(owners[part], len(taken))
            outputs = _answer(algorithm, params, personal, clients, inputs[chosen[taken]], precision)
            if answers is None:
                answers = np.empty((len(inputs), *outputs.shape[2:]), outputs.dtype)
            answers[chosen[taken]] = outputs  # a row that pads its block is answered alike wherever it stands
    assert answers is not None  # a table has at least one row
    return answers


def _answer(
    algorithm: Algorithm, params: Params, personal: bool, clients: np.ndarray, inputs: np.ndarray, precision: str
) -> np.ndarray:
    """(blocks, rows, ...): outputs of blocks of rows, each by its client's model or all by the shared one."""
    with run_precision(precision):
        rows, models = jnp.asarray(inputs, PRECISIONS[precision]), tree.take(params, clients) if personal else params
        return np.asarray(_answers(algorithm, models, jnp.asarray(clients), rows, personal))


@functools.partial(jax.jit, static_argnums=4)
def _answers(algorithm: Algorithm, models: Params, clients: jax.Array, inputs: jax.Array, personal: bool) -> jax.Array:
    own, mapped = (address(algorithm, clients), (axes(algorithm), 0, 0)) if personal else (algorithm, (None, None, 0))
    return jax.vmap(lambda one, model, rows: one.predict(model, rows), in_axes=mapped)(own, models, inputs)


def _blocks(own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(owners of blocks, their rows (blocks, size)); a block that is not full repeats its first row."""
    order = np.argsort(own, kind="stable")
    numbers, starts, counts = np.unique(own[order], return_index=True, return_counts=True)
    size = min(BLOCK, 1 << int(counts.max() - 1).bit_length())
    blocks = -(-counts // size)
    first = np.repeat(starts, blocks) + size * (np.arange(blocks.sum()) - np.repeat(np.cumsum(blocks) - blocks, blocks))
    end = np.repeat(starts + counts, blocks)
    places = first[:, None] + np.arange(size)
    places = np.where(places < end[:, None], places, first[:, None])
    return np.repeat(numbers, blocks), order[places]


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    """`length` entries, the first in place of those that are missing."""
    return np.concatenate([values, np.repeat(values[:1], length - len(values), axis=0)])
