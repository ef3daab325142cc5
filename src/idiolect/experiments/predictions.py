# SPDX-License-Identifier: Apache-2.0
"""predictions.parquet and split.parquet: what every method answered on the test rows, and which rows did what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from scipy.special import softmax

from idiolect.data.federation import Federation
from idiolect.engines.simulate import Run
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.trained import Trained

PREDICTIONS, SPLIT = "predictions.parquet", "split.parquet"
MOST_ROWS = 5_000_000  # of predictions.parquet; beyond, the announced method's alone are kept
MOST_CLASSES = 20  # with a column of probabilities each; beyond, the predicted class's alone
PARTS = ("train", "validation", "test", "unused", "dropped")


def write_predictions(
    folder: RunFolder, trained: Sequence[Trained], federation: Federation, announced: str | None
) -> list[str]:
    """Write both files, as far as the data have what is in them, and say what was left out."""
    if federation.places is not None:
        folder.write_table(SPLIT, split_table(federation))
    runs = [(one.method.label, run) for one in trained for run in one.runs if run.recorder.diverged is None]
    kept, notes = _kept(runs, federation, announced)
    if kept:
        folder.write_table(PREDICTIONS, (prediction_table(label, run, federation) for label, run in kept))
    return notes


def _kept(
    runs: list[tuple[str, Run]], federation: Federation, announced: str | None
) -> tuple[list[tuple[str, Run]], list[str]]:
    """The runs whose answers are kept, and sentences about the others."""
    rows = len(federation.test.targets)
    total = rows * len(runs)
    if not total:
        return [], []
    if federation.task.kind == "classification" and federation.test.targets.ndim > 1:
        return [], [f"{PREDICTIONS} was not written: every row has a sequence of answers."]
    if total <= MOST_ROWS:
        return runs, []
    chosen = ([pair for pair in runs if pair[0] == announced] or runs)[: max(1, MOST_ROWS // rows)]
    seeds = ", ".join(str(run.seed) for _, run in chosen)
    return chosen, [
        f"{PREDICTIONS} holds the answers of {chosen[0][0]} with seed {seeds} alone: those of every method would be "
        f"{total} rows, more than {MOST_ROWS}."
    ]


def prediction_table(label: str, run: Run, federation: Federation) -> pa.Table:
    """One row per test row: its client, its number in the source, the target and both models' answers."""
    test, places = federation.test, federation.places
    found = run.outputs(run.selected)
    real = np.arange(found["personal"].shape[1]) < test.counts[:, None]
    personal, shared = found["personal"][real], found["shared"][real] if "shared" in found else None
    owner = np.repeat(np.arange(federation.clients), test.counts)
    columns = {
        "method": _texts([label], np.zeros(len(owner))),
        "seed": pa.array(np.full(len(owner), run.seed, np.int64)),
        "client": _texts(federation.names, owner),
        "row": pa.nulls(len(owner), pa.int64()) if places is None else pa.array(places.test.astype(np.int64)),
    }
    if test.weights is not None:
        columns["weight"] = pa.array(np.asarray(test.weights, np.float64))
    answered = _classes if federation.task.kind == "classification" else _numbers
    return pa.table(columns | answered(federation, personal, shared))


def _classes(federation: Federation, personal: np.ndarray, shared: np.ndarray | None) -> dict[str, pa.Array]:
    names = federation.task.classes
    columns = {"target": _texts(names, federation.test.targets), "prediction": _texts(names, personal.argmax(axis=1))}
    chances = softmax(np.asarray(personal, np.float64), axis=1)
    if len(names) <= MOST_CLASSES:
        columns |= {f"probability_{name}": pa.array(chances[:, place]) for place, name in enumerate(names)}
    else:
        columns["probability"] = pa.array(chances.max(axis=1))
    best = np.full(len(personal), -1) if shared is None else shared.argmax(axis=1)
    return columns | {"shared_prediction": _texts(names, best)}


def _numbers(federation: Federation, personal: np.ndarray, shared: np.ndarray | None) -> dict[str, pa.Array]:
    answers = {"target": federation.test.targets, "prediction": personal}
    answers["shared_prediction"] = np.full_like(personal, np.nan) if shared is None else shared
    recipe, columns = federation.preprocessing, {}
    for name, values in answers.items():
        shown = np.asarray(values, np.float64)
        shown = (shown if recipe is None else recipe.original_units(shown)).reshape(len(shown), -1)
        several = shown.shape[1] > 1
        for place in range(shown.shape[1]):
            column = f"{name}_{place + 1}" if several else name
            columns[column] = pa.array(shown[:, place], mask=np.isnan(shown[:, place]))
    return columns


def split_table(federation: Federation) -> pa.Table:
    """One row per row of the source: its client and the part it played; a dropped row has no client."""
    assert federation.places is not None  # asked before
    total = federation.places.total
    client, part, held_out = np.full(total, -1), np.full(total, PARTS.index("dropped")), np.zeros(total, bool)
    names: list[str] = []
    for own in (federation, federation.held_out):
        if own is None or own.places is None:
            continue
        owners = [np.repeat(np.arange(own.clients), getattr(own, name).counts) for name in PARTS[:3]]
        for number, owner in enumerate([*owners, own.places.unused_clients]):
            places = getattr(own.places, PARTS[number])
            client[places] = len(names) + owner
            part[places] = number
            held_out[places] = own is not federation
        names += own.names
    return pa.table(
        {
            "row": pa.array(np.arange(total)),
            "client": _texts(names, client),
            "part": _texts(PARTS, part),
            "held_out": pa.array(held_out),
        }
    )


def _texts(names: Sequence[str], codes: np.ndarray) -> pa.Array:
    """Texts by their numbers, null where a number is below 0; quick for millions of rows."""
    numbers = pa.array(np.asarray(codes, np.int64), mask=np.asarray(codes) < 0)
    return pa.array(list(names), pa.string()).take(numbers)
