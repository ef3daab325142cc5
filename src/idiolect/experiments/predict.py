# SPDX-License-Identifier: Apache-2.0
"""New rows through a finished run: its fitted preprocessing, its models, each client's own where it was kept.

No row is answered by another model than its caller hears of.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.special import softmax

from idiolect.core import Algorithm, RequestError, own_code
from idiolect.core.checks import nearest
from idiolect.core.order import natural_key
from idiolect.core.settings import in_precision
from idiolect.data.columns import Column
from idiolect.data.kinds import DATE, TEXT
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.tables import Reading, read, require_columns
from idiolect.engines.door import PRECISIONS, run_precision
from idiolect.experiments import finished
from idiolect.experiments.build import addressed, assemble, client_loss_for
from idiolect.experiments.finished import load_model as load_model
from idiolect.record.files import whole, write_whole
from idiolect.record.manifest import COPY_AGAIN, MANIFEST, blame_folder
from idiolect.record.memory import check_address_space
from idiolect.record.words import counted, excerpt, nth_row

Say = Callable[[str], None]
MODELS = ("auto", "personal", "shared")
NAMED = 10  # clients in a sentence


def predict(
    folder: Path,
    source: Any,
    method: str | None = None,
    seed: int | None = None,
    *,
    model: str = "auto",
    strict: bool = False,
    as_written: bool = False,
    trust: Collection[str] = (),
    say: Say | None = None,
) -> pa.Table:
    """The rows of `source` with a column `prediction`, and for classes one column of probability each.

    Without `method` the one answers that the run announced as best on validation rows. `model` is "personal" (each
    client's own; RequestError where one has none), "shared" (one model for all rows) or "auto": a client's own where
    the run kept it, otherwise the shared one. The column `model` says which. `say` hears, in sentences, who answers
    and what is doubtful about the rows: these begin with "Warning: ", and without `say` become Python warnings. With
    `strict` a doubt is a RequestError. Columns of a typed file or a frame come out as they are; of a text file, numbers
    are numbers and the rest texts as written, with `as_written` every cell. The folder may come from another user: of
    the code that it names, only the paths in `trust` are imported.
    """
    check_address_space()
    with blame_folder(Path(folder)), own_code(only=trust):
        run = finished.open_finished(Path(folder))
        label, reason = finished.choose_method(run, method)
        if seed is not None and seed not in run.spec.seeds:
            raise RequestError(f"--seed must be one of the run's, {', '.join(map(str, run.spec.seeds))}, got {seed}.")
        seed = run.spec.seeds[0] if seed is None else seed
        recipe = finished.read_recipe(run)
        # the method is built anew from the spec: stored are numbers alone, and nothing that could run
        algorithm = _algorithm(run, label, recipe)
        kept = finished.read_models(run.folder, label, seed, algorithm, run.spec.training.precision)
    column = recipe.client or run.spec.data.client
    reading = _read_rows(source, recipe, column)
    owners, unowned = _owners(reading.table, column, kept, model)
    routed = route_rows(label, kept, owners, model)
    inputs, doubts = _inputs(recipe, reading.table, owners)
    doubts = [*_unchecked(run), *unowned, *routed.doubts, *doubts]
    if strict and doubts:
        raise RequestError(f"--strict refuses doubtful rows: {' '.join(doubts)}")
    outputs = _outputs(run, label, algorithm, kept, inputs, routed.own)
    tell = say or _warn
    tell(f"Answered by {label}, {reason}, seed {seed}: {routed.counted}.")
    for doubt in doubts:
        tell(f"Warning: {doubt}")
    return _with_answers(_passed_through(reading, as_written), outputs, routed.own, recipe)


def _warn(text: str) -> None:
    if text.startswith("Warning: "):
        warnings.warn(text.removeprefix("Warning: "), stacklevel=4)


def _unchecked(run: finished.Finished) -> list[str]:
    """What to say of a folder without hashes."""
    if (run.folder / MANIFEST).is_file():
        return []
    return [f"{run.folder} was written by an earlier version and has no {MANIFEST}: its files could not be checked."]


def _owners(table: pa.Table, column: str | None, kept: finished.Kept, model: str) -> tuple[list[str | None], list[str]]:
    """Each row's client as it is written, None where it has none; and what to say where the column is not there."""
    if column is None:
        return [None] * table.num_rows, []
    if column in table.column_names:
        return Column(column, table.column(column)).texts, []
    if len(kept.names) == 1:  # a site's own folder: its rows are its own
        return [*kept.names] * table.num_rows, []
    missing = f"The table has no client column {column!r}.{nearest(column, table.column_names)}"
    return [None] * table.num_rows, [] if model == "shared" else [missing]


def _algorithm(run: finished.Finished, label: str, recipe: Preprocessing) -> Algorithm:
    """The method as it was trained, with what was tuned or chosen by theory, in the run's precision."""
    spec, task = run.spec, recipe.task
    plain = task.kind != "classification" and task.outputs == 1
    loss = client_loss_for(spec.model, task, (len(recipe.feature_names),), plain_number=plain)
    resolved = spec.resolved.get(label)
    tuned, chosen = (resolved.tuned or {}, resolved.chosen or {}) if resolved else ({}, {})
    entry = next(entry for entry in spec.methods if entry.label == label)
    entry = dataclasses.replace(entry, settings=entry.settings | tuned)
    # as many clients as trained: settings with a row per client have that many
    algorithm = assemble(entry, loss, len(finished.read_clients(run.folder)), f"methods.{label}").algorithm
    values: dict[str, Any] = {name: addressed(one) for name, one in chosen.items()}
    with run_precision(spec.training.precision):
        return in_precision(dataclasses.replace(algorithm, **values), PRECISIONS[spec.training.precision])


def _read_rows(source: Any, recipe: Preprocessing, client: str | None) -> Reading:
    """The new rows, each column read as it was in training, so that a row's answer depends on no other row."""
    # a column of new rows may look like another kind, all whole numbers for instance: its kind in training decides
    kinds = {name: kind for name, kind in recipe.kinds.items() if name not in recipe.target.names}  # not needed
    reading = read(source, kinds if client is None else kinds | {client: TEXT})
    new = ["prediction", "model", *(f"probability of {name}" for name in recipe.task.classes)]
    taken = [name for name in new if name in reading.table.column_names]
    if taken:
        raise RequestError(f"The table already has a column {taken[0]!r}; rename it, so that the answers can be added.")
    return reading


def _passed_through(reading: Reading, as_written: bool) -> pa.Table:
    """The table's own columns beside the answers: a date is never written in another way than it was."""
    if as_written or not reading.of_text:
        return reading.written
    table = reading.table
    for place, name in enumerate(table.column_names):
        if Column(name, table.column(place)).kind == DATE:
            table = table.set_column(place, name, reading.written.column(place))
    return table


def _inputs(recipe: Preprocessing, table: pa.Table, owners: Sequence[str | None]) -> tuple[np.ndarray, list[str]]:
    """What the models read, and what is doubtful about it; RequestError for a number that 32 bits cannot hold."""
    names = [column.name for column in recipe.columns]
    require_columns(table, names, "feature")
    features = table.select(names)
    if recipe.own is not None and recipe.client is not None:  # each client's rows are scaled by its own numbers
        features = features.append_column(recipe.client, pa.array(owners, pa.string()))
    with np.errstate(over="ignore", invalid="ignore"):
        inputs, doubts = recipe.apply(features), recipe.doubts(features)
    wrong = np.argwhere(~np.isfinite(inputs))
    if len(wrong):
        row, column = wrong[0]
        raise RequestError(
            f"The number in {recipe.feature_names[column]!r} of {nth_row(row)} is too large for 32-bit arithmetic; fix "
            "it, or mark it as missing."
        )
    return inputs, doubts


def _outputs(
    run: finished.Finished, label: str, algorithm: Algorithm, kept: finished.Kept, inputs: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """Every row's outputs, of which all must be finite."""
    try:
        outputs = finished.apply_models(algorithm, kept, inputs, own, run.spec.training.precision)
    except RequestError:
        raise
    except (TypeError, ValueError, KeyError) as error:  # how arrays that do not fit show, whatever the model
        first = str(error).partition("\n")[0]
        raise RequestError(
            f"The models of {label!r} in {run.folder} do not fit its spec ({first}); {COPY_AGAIN}."
        ) from None
    if not np.isfinite(outputs).all():
        row = np.argwhere(~np.isfinite(outputs))[0][0]
        raise RequestError(
            f"{label!r} has no finite answer for {nth_row(row)}; fix that row if its numbers are out of all "
            "proportion, or train again."
        )
    return outputs


def _with_answers(table: pa.Table, outputs: np.ndarray, own: np.ndarray, recipe: Preprocessing) -> pa.Table:
    task = recipe.task
    if task.kind != "classification":
        values = np.asarray(recipe.original_units(outputs), np.float64)
        table = table.append_column("prediction", pa.array(values.reshape(len(values))))
    else:
        names = pa.array(list(task.classes), pa.string())
        table = table.append_column("prediction", names.take(pa.array(outputs.argmax(axis=1))))
        chances = softmax(np.asarray(outputs, np.float64), axis=1)
        for number, name in enumerate(task.classes):
            table = table.append_column(f"probability of {name}", pa.array(chances[:, number]))
    kinds = pa.array(["personal", "shared"])
    return table.append_column("model", kinds.take(pa.array((own < 0).astype(np.int64))))


class Routed(NamedTuple):
    """Each row's model, a client's number or -1 for the shared one; who answers, in words, and what is doubtful."""

    own: np.ndarray
    counted: str
    doubts: list[str]


def route_rows(label: str, kept: finished.Kept, clients: Sequence[str | None], model: str) -> Routed:
    """Send each row to a model, or raise RequestError: none is answered by another model than its caller hears of.

    `clients` has each row's client, None where it has none. `model` is one of MODELS.
    """
    place = {name: number for number, name in enumerate(kept.names)}
    own = np.array([-1 if client is None else place.get(client, -1) for client in clients], np.int64)
    others = _others(clients, place)
    _check_kept(label, kept, model, others)
    doubts = [f"The shared model answers {others}."] if others else []
    if model == "shared":
        own[:] = -1
        doubts = []
    elif kept.personal is None:
        also = f", also for {others}" if others else ""
        own[:] = -1
        doubts = [f"The run kept no personal models of {label!r}: the shared one answers for every client{also}."]
    return Routed(own, _counted(own, kept.names), doubts)


def _counted(own: np.ndarray, names: Sequence[str]) -> str:
    """Who answers how many rows."""
    numbers, by_shared, parts = np.unique(own[own >= 0]), int((own < 0).sum()), []
    if len(numbers):
        models = f"model of {names[numbers[0]]!r}" if len(numbers) == 1 else f"models of {len(numbers):,} clients"
        parts.append(f"{counted(len(own) - by_shared, 'row')} by the personal {models}")
    if by_shared:
        parts.append(f"{counted(by_shared, 'row')} by the shared model")
    return ", ".join(parts)


def _check_kept(label: str, kept: finished.Kept, model: str, others: str) -> None:
    """RequestError where a row would have no model to answer it."""
    personal, shared = kept.personal is not None, kept.shared is not None
    refused = {
        f"--model must be one of {', '.join(MODELS)}, got {model!r}.": model not in MODELS,
        f"The run kept no model of {label!r}; {finished.KEEP_ALL} to keep them all.": not personal and not shared,
        f"The run has no shared model of {label!r}; use --model personal.": model == "shared" and not shared,
        f"The run kept no personal models of {label!r}; {finished.KEEP_ALL}, or use --model shared.": (
            model == "personal" and not personal
        ),
        f"--model personal needs rows of clients that trained, got {others}; leave these rows out, or use --model "
        "auto.": model == "personal" and bool(others),
        f"The run has no shared model of {label!r} that could answer {others}; predict for clients that trained, or "
        "choose another --method.": bool(others) and not shared,
    }
    # the first that holds, from what the caller can change to what only another run can
    sentence = next((text for text, holds in refused.items() if holds), None)
    if sentence is not None:
        raise RequestError(sentence)


def _others(clients: Sequence[str | None], place: dict[str, int]) -> str:
    """Rows of clients that did not train and of no client, counted and named; empty where there are none."""
    new = Counter(client for client in clients if client is not None and client not in place)
    parts = []
    if new:
        who = f"{counted(len(new), 'client')} that did not train ({_names(list(new), place)})"
        parts.append(f"{counted(new.total(), 'row')} of {who}")
    unnamed = sum(client is None for client in clients)
    if unnamed:
        parts.append(f"{counted(unnamed, 'row')} without a client")
    return " and ".join(parts)


def _names(names: list[str], known: Iterable[str]) -> str:
    """Some of the names, each beside the known one that it may be a slip of."""
    alike = {natural_key(name.strip())[0]: name for name in known}
    slips = [alike.get(natural_key(name.strip())[0]) for name in names[:NAMED]]
    written = [repr(excerpt(name)) for name in names[:NAMED]]
    shown = ", ".join(name if slip is None else f"{name}, not {slip!r}" for name, slip in zip(written, slips))
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def check_out(path: Path) -> None:
    """RequestError unless the answers can go into a new file of this name."""
    if path.suffix not in (".csv", ".parquet"):
        raise RequestError(f"--out must end in .csv or .parquet, got {path.name!r}.")
    if path.exists():
        raise RequestError(f"--out must name a new file, and {path} is there already; choose another name.")


def write_answers(answers: pa.Table, path: Path) -> None:
    """Write a CSV or Parquet file, by the name's ending, whole or not at all."""
    check_out(path)
    if path.suffix == ".csv":
        write_whole(path, _csv(answers, str(path)))
    else:
        with whole(path) as unfinished:
            pq.write_table(answers, unfinished)


def print_answers(answers: pa.Table, stream: Any) -> None:
    """CSV into a stream of bytes."""
    stream.write(_csv(answers, "A CSV"))


def _csv(answers: pa.Table, what: str) -> bytes:
    """Comma-separated lines; quotes only where a cell needs them, since a number in quotes would be read as text."""
    columns = []
    for name, column in zip(answers.column_names, answers.columns):
        try:
            texts = pc.fill_null(pa.chunked_array([[name], *column.cast(pa.string()).chunks], pa.string()), "")
        except pa.ArrowException as error:
            first = str(error).partition("\n")[0]
            raise RequestError(
                f"{what} cannot hold these columns ({first}); write them with --out FILE.parquet."
            ) from None
        quoted = pc.binary_join_element_wise("", pc.replace_substring(texts, '"', '""'), "", '"')
        columns.append(pc.if_else(pc.match_substring_regex(texts, '[",\r\n]'), quoted, texts))
    return ("\n".join(pc.binary_join_element_wise(*columns, ",").to_pylist()) + "\n").encode()
