# SPDX-License-Identifier: Apache-2.0
"""A run folder as it lies on disk: read, checked, and never changed. What is absent is listed, not invented.

A method that diverged has scores in its files, those of where it stood before. They are no answer, so no report has
them.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from idiolect.record.errors import RequestError
from idiolect.record.manifest import check_report_files
from idiolect.record.privacy import Statement
from idiolect.record.reading import read_json, read_statement, read_summary
from idiolect.record.schema import ALONE, SCHEMA, MethodSummary, RunSummary
from idiolect.report.wording import ScoreWords, score_words

_KEYS = {"history": ("method", "seed", "round"), "clients": ("method", "seed", "client")}
_LOST = {
    "spec.toml": "the settings shown are the summary's",
    "machine.json": "versions, devices and the command line are unknown",
    "history.parquet": "score against cost cannot be drawn",
    "clients.parquet": "nothing can be said about single clients",
}
_CLIENT_FACTS = (
    *_KEYS["clients"],
    *("held_out", "train_rows", "validation_rows", "test_rows", "traffic_bytes", "local_score", "one_score"),
)
_AGAINST_ALONE = ("helped", "hurt", "same", "unclear", "better", "worse", "gain")
_ANSWERS = (
    *_AGAINST_ALONE,
    *("gain_over_one", "clients", "missing", "other_scores"),
    *("score", "seed_means", "interval", "shared_mean", "last_mean", "selected_rounds", "new_clients"),
    *("train_loss", "suboptimality", "distance_to_optimum", "personalization", "routing"),
)
_ALONE_COLUMNS = (
    *("local_score", "gain", "gain_low", "gain_high", "verdict"),
    *("gain_expected", "gain_expected_low", "gain_expected_high"),
)


class Kind(enum.StrEnum):
    """What a folder holds, in words."""

    run = "a run"
    dial = "a dial"
    advice = "advice"
    reproduction = "a reproduction"
    splits = "several splits, each a run of its own, such as split-01"


_MARKS = {  # what lies in the folders of other commands, and in no run's
    "dial.json": Kind.dial,
    "advise.json": Kind.advice,
    "numbers.json": Kind.reproduction,
    "splits.json": Kind.splits,
    "split-01": Kind.splits,
}


class FolderError(RequestError):
    """The folder cannot be reported on: one sentence with the rule, the value and the way out."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run folder in memory; `missing` holds a sentence for everything that was not found."""

    path: Path
    spec: dict[str, object]
    spec_text: str
    history: pa.Table  # one row per (method, seed, recorded round)
    clients: pa.Table  # one row per (method, seed, client)
    summary: RunSummary
    machine: dict[str, object]
    finished: bool
    missing: tuple[str, ...]
    privacy: Statement | None = None  # what left each client; None in folders from before it was kept

    @property
    def name(self) -> str:
        """The run's name, or its folder's."""
        return self.summary.name or self.path.name

    @property
    def score(self) -> str:
        """The primary score: the first one asked for."""
        return self.summary.scores[0]

    @property
    def higher_is_better(self) -> bool:
        """Which way the primary score points."""
        return self.summary.higher_is_better[self.score]

    @property
    def words(self) -> ScoreWords:
        """How that score is written."""
        return score_words(self.score)

    @property
    def choose_by(self) -> str:
        """The score of validation rows that chose rounds, settings and the announced method."""
        return self.summary.choose_by or self.score

    @property
    def methods(self) -> tuple[MethodSummary, ...]:
        """One per method, in the order of the spec."""
        return self.summary.methods

    @property
    def alone(self) -> MethodSummary | None:
        """The method that trains every client alone, if it was run."""
        return next((entry for entry in self.methods if entry.alone), None)

    @property
    def rounds_to_choose(self) -> dict[str, int]:
        """By method: the rounds of all its tries, whose traffic is not among its own."""
        return {} if self.privacy is None else {one.method: one.rounds_to_choose for one in self.privacy.methods}

    def names(self, held_out: bool = False) -> set[str]:
        """The clients that trained, or those that never did."""
        chosen = (numbers(self.clients, "held_out") > 0) == held_out
        return set(self.clients["client"].cast(pa.string()).filter(pa.array(chosen)).to_pylist())


def kind_of(folder: str | os.PathLike[str]) -> Kind:
    """What a folder holds, finished or not."""
    return next((kind for mark, kind in _MARKS.items() if (Path(folder) / mark).exists()), Kind.run)


def read(path: str | os.PathLike[str]) -> Run:
    """Read a run folder; FolderError says in one sentence why it cannot be."""
    folder = Path(path)
    refuse_unknown_files(folder)
    check_report_files(folder)
    # written last of all: without it the run was stopped, or goes on
    finished = (folder / "done").exists()
    summary, spec_text = _summary(folder, finished), read_spec(folder)
    history, clients = (_table(folder / f"{name}.parquet", keys) for name, keys in _KEYS.items())
    missing = tuple(_missing(folder, summary, finished))
    # after the sentences, which say that a method diverged: below, it is as one without scores
    summary, clients = _without_diverged(summary, clients)
    try:
        spec = tomllib.loads(spec_text)
    except tomllib.TOMLDecodeError as error:
        raise FolderError(
            f"{str(folder / 'spec.toml')!r} is not valid TOML ({error}); restore the one the run wrote."
        ) from error
    machine, privacy = read_machine(folder), read_statement(folder)
    return Run(folder, spec, spec_text, history, clients, summary, machine, finished, missing, privacy)


def _missing(folder: Path, summary: RunSummary, finished: bool) -> list[str]:
    """A sentence for everything that was not found, and for every method without an answer."""
    missing = []
    if not finished:
        missing.append(
            f"The run is not finished (there is no file 'done' in {folder.name}): its numbers are provisional. "
            "`idiolect run --resume` continues it."
        )
    missing += [f"{name} was not found: {loss}." for name, loss in _LOST.items() if not (folder / name).exists()]
    if not any(entry.alone for entry in summary.methods):
        missing.append(
            f"The method '{ALONE}' was not run: gains against training alone are unknown. "
            f"Add '{ALONE}' to the methods to compare with it."
        )
    for entry in summary.methods:  # clients without a score are named by the answer itself
        if entry.diverged:
            missing.append(f"Method '{entry.method}' has no answer: {entry.diverged}.")
        elif entry.score.mean is None:
            missing.append(f"Method '{entry.method}' has no {summary.scores[0]} on test rows.")
    return missing


def read_spec(folder: Path) -> str:
    """The text of spec.toml; nothing where there is none."""
    file = folder / "spec.toml"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def read_machine(folder: Path) -> dict[str, object]:
    """What machine.json holds; nothing where there is none."""
    return read_json(folder / "machine.json") if (folder / "machine.json").exists() else {}


def numbers(table: pa.Table, column: str) -> np.ndarray:
    """A column as a float64 array; nulls and absent columns are not-a-number."""
    if column not in table.column_names:
        return np.full(table.num_rows, np.nan)
    # counts and truths become numbers like all others, in which not-a-number stands for a null
    return table[column].cast(pa.float64(), safe=False).to_numpy()


def laid_out(values: np.ndarray, at: np.ndarray | tuple[np.ndarray, ...], *shape: int) -> np.ndarray:
    """An array of that shape with values at their places, and not-a-number elsewhere."""
    cells = np.full(shape, np.nan)
    cells[at] = values
    return cells


def mean_known(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis of what is not not-a-number, which it stays where nothing is known."""
    known = ~np.isnan(values)
    number = known.sum(axis=0)
    return np.where(number > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(number, 1), np.nan)


def of_method(table: pa.Table, method: str) -> pa.Table:
    """The rows of one method."""
    return table.filter(pc.equal(table["method"].cast(pa.string()), method))


def refuse_unknown_files(folder: Path) -> None:
    """FolderError for what is no run folder."""
    if not folder.exists():
        raise FolderError(
            f"There is no folder {str(folder)!r}; give the path of a run, such as 'runs/NAME', as `idiolect run` "
            "printed it."
        )
    if not folder.is_dir():
        raise FolderError(f"A run is a folder, and {str(folder)!r} is a file; give the folder it lies in.")
    if not ((folder / "summary.json").exists() or (folder / "spec.toml").exists()):
        raise FolderError(
            f"{str(folder)!r} is not a run folder: it has neither summary.json nor spec.toml; give a folder that "
            "`idiolect run` or `idiolect compare` wrote."
        )


def _summary(folder: Path, finished: bool) -> RunSummary:
    if not (folder / "summary.json").is_file():
        other = kind_of(folder)
        if other is not Kind.run:
            raise FolderError(f"{folder} holds {other}; name folders of `compare`, `run` or `sweep` here.")
        stopped = "it stopped before its first results, so finish it with `idiolect run --resume`"
        way_out = "copy the folder again, whole" if finished else stopped
        raise FolderError(f"The run in {str(folder)!r} has no summary.json to report on; {way_out}.")
    summary = read_summary(folder)
    if not summary.scores or summary.scores[0] not in summary.higher_is_better:
        raise FolderError(
            f"summary.json in {str(folder)!r} must name 'scores', and in 'higher_is_better' which way they point; it "
            "does not, so it was cut or edited: copy the folder again or rerun."
        )
    if not summary.methods:
        raise FolderError(f"The run in {str(folder)!r} trained no method; name at least one in its spec.")
    return summary


def _without_diverged(summary: RunSummary, clients: pa.Table) -> tuple[RunSummary, pa.Table]:
    """Both without the scores of methods that diverged, and without gains where training alone did."""
    lost = [entry.method for entry in summary.methods if entry.diverged]
    if not lost:
        return summary, clients
    # a gain over a diverged method would be a gain over nothing
    alone_lost = {bool(entry.diverged) for entry in summary.methods if entry.alone} == {True}
    # its own defaults say what a method has of which nothing is known
    nothing, others, methods = MethodSummary("", ""), _AGAINST_ALONE if alone_lost else (), list[MethodSummary]()
    for entry in summary.methods:
        names = _ANSWERS if entry.diverged else others
        methods.append(dataclasses.replace(entry, **{name: getattr(nothing, name) for name in names}))
    return dataclasses.replace(summary, methods=tuple(methods)), _clients_without(clients, lost, alone_lost)


def _clients_without(clients: pa.Table, lost: list[str], alone_lost: bool) -> pa.Table:
    """The scores of the methods in `lost` set to null; where training alone is lost, every gain over it."""
    rows = pc.is_in(clients["method"].cast(pa.string()), pa.array(lost, pa.string()))
    for place, name in enumerate(clients.column_names):
        where = pa.scalar(True) if alone_lost and name in _ALONE_COLUMNS else rows
        if name not in _CLIENT_FACTS or (alone_lost and name in _ALONE_COLUMNS):
            kept = pc.if_else(where, pa.scalar(None, clients[name].type), clients[name])
            clients = clients.set_column(place, name, kept)
    return clients


def _table(file: Path, keys: tuple[str, ...]) -> pa.Table:
    """The file, or a table without rows where there is none."""
    if not file.exists():
        return pa.table({key: pa.array([], pa.string() if key in ("method", "client") else pa.int64()) for key in keys})
    try:
        table = pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        first = str(error).partition("\n")[0]
        raise FolderError(
            f"{str(file)!r} cannot be read as Parquet ({first}); it was cut short: copy the run folder again or resume "
            "the run."
        ) from error
    absent = [key for key in keys if key not in table.column_names]
    if absent:
        raise FolderError(
            f"{str(file)!r} must have the columns {', '.join(keys)}, and lacks {', '.join(absent)}; it is not a file "
            f"of run-folder schema {SCHEMA}: rerun."
        )
    return table
