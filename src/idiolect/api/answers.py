# SPDX-License-Identifier: Apache-2.0
"""What commands answer: for all clients, for one of them, for new rows; and finished folders back into Python."""

from __future__ import annotations

import abc
import dataclasses
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.api.asked import checked
from idiolect.api.sentences import in_python, warn, with_arguments
from idiolect.api.tables import to_arrow, to_frame
from idiolect.record.codec import flat, to_json
from idiolect.record.errors import RequestError
from idiolect.record.manifest import DONE, check_report_files
from idiolect.report import build_report
from idiolect.report.advise_table import Advised, advice_text, read_advice
from idiolect.report.clients import ClientTable, client_table
from idiolect.report.folder import Kind, kind_of, read
from idiolect.report.folder import Run as FolderRun
from idiolect.report.loggers import log_run
from idiolect.report.notebook import advice_html, comparison_html, text_html
from idiolect.report.splits_table import SplitsFound, answer, read_splits, splits_text
from idiolect.report.table import ComparisonTable, compare
from idiolect.report.text import terminal_width

if TYPE_CHECKING:
    from idiolect.api.tables import Column, Frame, Source
    from idiolect.record.schema import MethodSummary


class Workplace:
    """The folder that a result is written to: the caller's own, or one that goes away with the result."""

    def __init__(self, out: str | os.PathLike[str] | None, name: str):
        if out is not None:
            self.folder = Path(out)
            return
        made = tempfile.mkdtemp(prefix="idiolect-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)  # with this object, or when Python ends
        self.folder = Path(made) / name


class Result(abc.ABC):
    """A finished folder of a command, read when asked; abstract."""

    def __init__(self, place: Workplace):
        self._place = place

    @property
    def folder(self) -> Path:
        """Where the files lie; a temporary folder is removed with this object: `save` keeps it."""
        return self._place.folder

    @checked()
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the folder to `path`, which must not exist, with its page; `load` and the commands read it."""
        target = Path(path)
        if target.exists():
            raise RequestError(f"{target} exists, and nothing is overwritten; choose another path.")
        target.parent.mkdir(parents=True, exist_ok=True)
        skipped = str(self.folder)
        shutil.copytree(self.folder, target, ignore=lambda at, names: [DONE] if str(at) == skipped else [])
        shutil.copy2(self.folder / DONE, target / DONE)  # last: a copy that was cut short is not taken for a whole one
        build_report(target)
        return target

    @abc.abstractmethod
    def _text(self) -> str:
        """The answer, for a terminal."""

    def __str__(self) -> str:
        return self._text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return text_html(self._text())

    def __getstate__(self) -> dict[str, object]:
        """All files, so that a result can be pickled, copied and sent to another process."""
        every = [path for path in self.folder.rglob("*") if path.is_file()]
        files = {str(path.relative_to(self.folder)): path.read_bytes() for path in every}
        return {"name": self.folder.name, "files": files}

    def __setstate__(self, state: dict[str, object]) -> None:
        name, files = state["name"], state["files"]
        assert isinstance(name, str)
        assert isinstance(files, dict)
        # another process gets files of its own: the first one's folder goes away with the first one
        self._place = Workplace(None, name)
        for inside, content in files.items():
            path = self.folder / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@dataclasses.dataclass(frozen=True)
class ClientAnswer:
    """What one method does for one client, on the client's test rows; None where it is not known."""

    client: str
    method: str
    score_name: str
    score: float | None  # of the client's own model
    alone: float | None  # of a model trained on its rows alone
    one_model: float | None  # of one model for all clients
    gain: float | None  # over training alone; above 0 is better, whichever way the score points
    gain_low: float | None  # 95 % interval
    gain_high: float | None
    gain_expected: float | None  # moved toward the mean gain of all clients, as far as its uncertainty asks
    verdict: str | None  # helped, hurt, same or unclear, against training alone
    train_rows: int | None
    test_rows: int | None


class Trial(Result):
    """A folder of trained methods: history, clients, predictions; abstract."""

    @cached_property
    def _read(self) -> FolderRun:
        return read(self.folder)

    @cached_property
    def _table(self) -> ComparisonTable:
        return compare(self._read)

    @property
    def history(self) -> Frame:
        """One row per method, seed and recorded round: what was sent and computed so far, scores of validation rows."""
        return to_frame(self._read.history)

    @property
    def clients(self) -> Frame:
        """One row per method, seed and client: rows, scores, gains, verdict, bytes."""
        return to_frame(self._read.clients)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed or decided about the rows and the methods, in sentences."""
        found = self._read.summary
        reason = [found.score_reason] if found.score_reason else []
        return tuple(map(with_arguments, (*reason, *found.notes)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be a slip, in sentences."""
        return tuple(map(with_arguments, self._read.summary.warnings))

    @property
    def _spec(self) -> dict[str, Any]:
        """spec.toml, as resolved."""
        return self._read.spec

    @property
    def score_name(self) -> str:
        """The score that the answer is in."""
        return self._read.score

    def predict(
        self,
        rows: Source,
        client: Column | None = None,
        *,
        method: str | None = None,
        seed: int | None = None,
        model: str = "auto",
        strict: bool = False,
        trust: Collection[str] = (),
    ) -> Frame:
        """New rows with the columns `prediction`, `model` (whose answered) and, for classes, the probabilities.

        `client` is the client of all rows, or one per row; without it the rows' own client column says so. `model` is
        "personal", "shared" or "auto": a client's own where it was kept, else the shared one. `strict` refuses what
        would be a warning. Code that the folder names is imported only where `trust` lists it.
        """
        asked = {"method": method, "seed": seed, "model": model, "strict": strict, "trust": trust}
        return to_frame(self._answers(rows, client, **asked))

    @in_python()
    def _answers(self, rows: Source, client: Column | None, **asked: Any) -> pa.Table:
        from idiolect.experiments.predict import predict

        column = str(self._spec["data"].get("client", "client"))
        source = rows if client is None else _with_client(rows, client, column)
        if client is None and not isinstance(rows, (str, Path)):
            source = to_arrow(rows)
        return predict(self.folder, source, **asked, say=warn)

    @in_python()
    def log(self, *, tensorboard: str | os.PathLike[str] | None = None, mlflow: str | None = None) -> None:
        """Write the history to a folder of TensorBoard, or to MLflow at a URI: a curve per method and seed.

        Each needs its extra: `pip install 'idiolect[tensorboard]'`, `pip install 'idiolect[mlflow]'`.
        """
        targets = {"tensorboard": tensorboard, "mlflow": mlflow}
        given = {kind: str(target) for kind, target in targets.items() if target is not None}
        if not given:
            raise RequestError("log needs tensorboard= a folder, or mlflow= a URI.")
        for kind, target in given.items():
            log_run(self._read, kind, target)

    def _client(self, name: str, method: str) -> ClientAnswer:
        from idiolect.core.checks import nearest

        found = client_table(self._read, method)
        clients = [str(one) for one in found.client]
        if str(name) not in clients:
            raise RequestError(f"There is no client {str(name)!r} in the answer.{nearest(str(name), clients)}")
        return _client_answer(found, clients.index(str(name)), self.score_name)

    def _text(self) -> str:
        return self._table.to_text(terminal_width(), details=False)

    def _repr_html_(self) -> str:
        return comparison_html(self._table)


class Answer(Trial):
    """The answer of `compare` or `sweep`: prints itself, and shows itself in a notebook."""

    @property
    def best(self) -> str | None:
        """The announced method: the best on validation rows. None where no method has a score."""
        return self._table.answer.best

    @property
    def tied(self) -> tuple[str, ...]:
        """Methods that validation rows cannot tell from the best."""
        return self._table.answer.tied

    @property
    def sentence(self) -> str:
        """The answer in words."""
        return self._table.answer.sentence

    @property
    def methods(self) -> tuple[str, ...]:
        """The labels of the methods, in order."""
        return tuple(row.entry.method for row in self._table.rows)

    @in_python()
    def for_client(self, client: str, method: str | None = None) -> ClientAnswer:
        """What a method does for one client: the best, or where that is training alone the best other, or the given."""
        label = method or self._table.answer.personalized or self.best
        if label is None or label not in self.methods:
            raise RequestError(f"method must be one of {', '.join(self.methods)}, got {label!r}.")
        return self._client(client, label)

    def frame(self) -> Frame:
        """One row per method: means, gains with their intervals, clients helped and hurt, and the price."""
        table = pa.Table.from_pylist([to_json(row.as_dict()) for row in self._table.rows])
        # a column that no method has a number for, such as those of routing, says nothing
        known = [name for name in table.column_names if table[name].null_count < table.num_rows]
        return to_frame(table.select(known))


class TrainedRun(Trial):
    """One trained method: `history`, `clients`, `ledger`, and its answers to new rows."""

    @property
    def method(self) -> str:
        """The name of the method."""
        return self._entry.method

    @property
    def settings(self) -> dict[str, object]:
        """All settings that it was trained with, its objective's too: given, preset, chosen, by theory or default."""
        spec = self._spec
        asked = {key: value for key, value in spec["methods"][self.method].items() if key != "name"}
        resolved = spec.get("resolved", {}).get(self.method, {})
        return {**asked, **self._entry.settings, **resolved.get("tuned", {}), **resolved.get("chosen", {})}

    @property
    def score(self) -> float | None:
        """The mean over clients of the score of their own models on test rows."""
        return self._entry.score.mean

    @property
    def ledger(self) -> dict[str, int]:
        """What training cost, exact: bytes and messages each way, rounds, gradients by block; the mean over seeds.

        The last row of `history` has the rounds alone; here the delivery of the models is added, and what clients
        compute to make theirs (of `flow` and fine-tuning: gradients).
        """
        from idiolect.accounting.ledger import FIELDS

        found = {name: getattr(self._entry, name) for name in FIELDS}
        return {name: int(value) for name, value in found.items() if value is not None}

    @in_python()
    def for_client(self, client: str) -> ClientAnswer:
        """What it does for one client."""
        return self._client(client, self.method)

    @property
    def _entry(self) -> MethodSummary:
        return self._read.methods[0]


class SplitsAnswer(Result):
    """What several splits say together: means over splits, with intervals."""

    @cached_property
    def _found(self) -> SplitsFound:
        return read_splits(self.folder)

    @property
    def best(self) -> str | None:
        """The method that was announced most often; None where none was."""
        announced = self._found.found.announced
        return None if announced is None else announced.most

    @property
    def sentence(self) -> str:
        """The answer in words."""
        return answer(self._found)

    def frame(self) -> Frame:
        """One row per method: means over splits with their intervals, and how often it was announced."""
        lines = [flat(dataclasses.asdict(line), "_") for line in self._found.found.methods]
        return to_frame(pa.Table.from_pylist(lines))

    @property
    def clients(self) -> Frame:
        """One row per method and client: means over splits."""
        return to_frame(pa.Table.from_pylist([dataclasses.asdict(row) for row in self._found.rows]))

    @in_python()
    def for_client(self, client: str, method: str | None = None) -> dict[str, float | int | str | None]:
        """What the shown method, or the given one, does for one client: a row of `clients`."""
        label = method or self._found.found.personalized
        rows = [row for row in self._found.rows if row.method == label and row.client == str(client)]
        if not rows:
            raise RequestError(f"There is no client {client!r} of a method {label!r} in the answer; see `clients`.")
        return dataclasses.asdict(rows[0])

    def _text(self) -> str:
        return splits_text(self._found, terminal_width())


class Advice(Result):
    """For every client: train alone, join all, or join which neighbours; prints itself."""

    @cached_property
    def _found(self) -> Advised:
        return read_advice(self.folder)

    @cached_property
    def _rows(self) -> pa.Table:
        return pq.read_table(self.folder / "advise.parquet")

    def frame(self) -> Frame:
        """One row per client: the advice, the gain to expect with its interval, and whom to join."""
        return to_frame(self._rows)

    @in_python()
    def for_client(self, client: str) -> dict[str, object]:
        """The advice for one client: its row of `frame`."""
        from idiolect.core.checks import nearest

        entries = {str(entry["client"]): entry for entry in self._rows.to_pylist()}
        if str(client) not in entries:
            raise RequestError(f"There is no client {str(client)!r} in the advice.{nearest(str(client), entries)}")
        return dict(entries[str(client)])

    def _text(self) -> str:
        return advice_text(self._found, width=terminal_width())

    def _repr_html_(self) -> str:
        return advice_html(self._found)


@checked()
def load(path: str | os.PathLike[str]) -> Answer | TrainedRun | SplitsAnswer | Advice:
    """The result in a finished folder of `compare`, `run`, `sweep` or `advise`; one method is a `TrainedRun`."""
    folder = Path(path)
    if not folder.is_dir():
        raise RequestError(f"There is no folder {folder}; give the path of a finished run, such as runs/NAME.")
    if not (folder / DONE).is_file():
        raise RequestError(f"The folder {folder} holds no finished run: it has no file {DONE!r}; finish it first.")
    check_report_files(folder)
    place = Workplace(folder, folder.name)
    kind = kind_of(folder)
    if kind is Kind.advice:
        return Advice(place)
    if kind is Kind.splits:
        return SplitsAnswer(place)
    return TrainedRun(place) if len(read(folder).methods) == 1 else Answer(place)


def _client_answer(found: ClientTable, place: int, score: str) -> ClientAnswer:
    def number(values: np.ndarray) -> float | None:
        return None if np.isnan(values[place]) else float(values[place])

    def count(values: np.ndarray) -> int | None:
        return None if np.isnan(values[place]) else round(float(values[place]))

    return ClientAnswer(
        client=str(found.client[place]),
        method=found.method,
        score_name=score,
        score=number(found.personal),
        alone=number(found.alone),
        one_model=number(found.one),
        gain=number(found.gain),
        gain_low=number(found.gain_low),
        gain_high=number(found.gain_high),
        gain_expected=number(found.expected),
        verdict=str(found.verdict[place]) or None,
        train_rows=count(found.train_rows),
        test_rows=count(found.test_rows),
    )


def _with_client(rows: Source, client: Column, column: str) -> pa.Table:
    """The rows with a client column: the same client in all of them, or one each."""
    table = to_arrow(rows)
    if column in table.column_names:
        raise RequestError(f"The rows have a client column {column!r}; leave it out of them, or leave client= out.")
    values = np.full(table.num_rows, client) if np.ndim(client) == 0 else np.asarray(client)  # type: ignore[arg-type]
    if len(values) != table.num_rows:
        raise RequestError(f"client must be one name, or one for each of the {table.num_rows} rows, got {len(values)}.")
    return table.append_column(column, pa.array(values))
