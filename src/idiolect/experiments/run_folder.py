# SPDX-License-Identifier: Apache-2.0
"""The run folder: everything a run leaves behind, written atomically, complete and final."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import platform
import re
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import save_file

from idiolect.core.checks import RequestError
from idiolect.core.tree import Params
from idiolect.data.federation import Federation
from idiolect.engines.plan import digests
from idiolect.experiments.spec import Spec, load, to_toml
from idiolect.record import standing
from idiolect.record.codec import to_json
from idiolect.record.errors import DamagedError
from idiolect.record.files import is_leftover, make_writable, remove_leftovers, whole, write_whole
from idiolect.record.lock import LOCK, locked
from idiolect.record.manifest import find_problems, read_manifest, write_manifest
from idiolect.record.sealed import is_changed, open_json, seal_json, seal_text

TEXTS = ("method", "client", "verdict")
PARTS = ("train", "validation", "test")
REQUEST, ROWS = "request.json", "rows.json"  # written before spec.toml: which command began it, on which rows
AGAIN = "start again in a new run folder"
# how to go on with what a command has begun; {} is the folder
WAYS_ON = {
    "run": "`idiolect run {} --resume` goes on from there",
    "compare --splits": "`idiolect run {} --resume` goes on from there",
    "dial": "the same `idiolect dial` command with --out {} --resume goes on from there",
    "reproduce --resume": "the same `idiolect reproduce` command with --out {} --resume goes on from there",
    "reproduce": "the same `idiolect reproduce` command with --out {} starts again",
    "advise": "the same `idiolect advise` command with --out {} starts again",
}
RESTARTED = ("advise", "reproduce")  # computed in one go: what they have begun is begun again


class RunFolder:
    """A folder for one run. Nothing that is finished is ever overwritten."""

    def __init__(self, path: Path, command: str = "run"):
        self.path, self.command = path, command

    @property
    def done(self) -> bool:
        """Whether a run has finished here."""
        return (self.path / "done").is_file()

    @property
    def begun(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "spec.toml").is_file()

    def check(self, resume: bool) -> None:
        """Refuse, with the way out, a folder that this run may not use."""
        if self.path.is_file():
            raise RequestError(f"A run needs a folder, and {self.path} is a file; choose another --out.")
        if self.done:
            self._refuse_finished(resume)
        if self.begun:
            self._check_begun(resume)
        elif resume:
            raise RequestError(f"There is no run to resume in {self.path}; start one without --resume.")
        elif self.path.is_dir() and any(
            # a killed start may have left these
            entry.name not in (REQUEST, ROWS, LOCK) and not is_leftover(entry.name)
            for entry in self.path.iterdir()
        ):
            raise RequestError(f"The folder {self.path} holds other files; a run needs its own: choose another --out.")

    def _refuse_finished(self, resume: bool) -> None:
        self.tidy()
        if resume and read_manifest(self.path) is not None:
            problems = find_problems(self.path)
            if problems:
                raise DamagedError(
                    f"The run in {self.path} is finished, and {problems[0].file} is {problems[0].kind}; "
                    f"`idiolect verify {self.path}` lists all such files: copy it again, or choose another --out."
                )
        why = "there is nothing to resume" if resume else "it will not be overwritten"
        raise RequestError(f"The run in {self.path} is finished, and {why}. {self._look()}, or choose another --out.")

    def tidy(self) -> None:
        """Remove what a process left that was killed after it had marked the run as complete, unless one is at work."""
        with contextlib.suppress(RequestError, OSError), locked(self.path):
            remove_leftovers(self.path)
            shutil.rmtree(self.path / "checkpoint", ignore_errors=True)

    def _look(self) -> str:
        """How to see what a finished run holds; a reproduction has numbers and figures instead of a report."""
        files = ("summary.json", "splits.json", "dial.json", "advise.json")
        if any((self.path / name).is_file() for name in files):
            return f"Look at it with `idiolect report {self.path}`"
        return f"Look at the files in {self.path}"

    def _check_begun(self, resume: bool) -> None:
        found = self.read_request()
        if found is None and self.command != "run" and not (self.path / ROWS).is_file():  # every run notes its rows
            raise RequestError(
                f"The file {self.path / REQUEST} is missing, which tells the command that began the folder; copy the "
                "whole folder again, or choose another --out."
            )
        request = found or {}
        known = {"splits": "compare --splits", "setting": "dial"}
        owner = next((known[key] for key in request if key in known), str(request.get("command", "run")))
        if owner != self.command:
            shown = f"{owner} {request['splits']}" if "splits" in request else owner.removesuffix(" --resume")
            raise RequestError(
                f"The folder {self.path} was begun by `idiolect {shown}`; "
                f"{WAYS_ON.get(owner, WAYS_ON['run']).format(self.path)}, or choose another --out."
            )
        if not resume and self.command not in RESTARTED:
            raise RequestError(
                f"The folder {self.path} already holds a run. Add --resume to go on with it, or choose another --out."
            )

    @contextlib.contextmanager
    def open(self, resume: bool, request: Mapping[str, object] | None = None) -> Iterator[None]:
        """Inside, the folder is this process's own; or refuse it with the way out.

        `request` is what tells this command's folders from those of `run`.
        """
        self.check(resume)
        make_writable(self.path, "run folder", "--out")
        way_on, keeps = WAYS_ON[self.command].format(self.path), self.command not in RESTARTED
        with locked(self.path), standing.at(self.path, way_on, keeps=keeps):
            self.check(resume)  # again: another process may have been here since
            remove_leftovers(self.path)
            if not resume:
                (self.path / ROWS).unlink(missing_ok=True)  # of a start that was killed before its spec was written
                if request is None:
                    (self.path / REQUEST).unlink(missing_ok=True)
                else:  # replaced, not removed: a folder that is begun again must be known for what it is
                    self.write_sealed(REQUEST, request)
            yield

    @contextlib.contextmanager
    def begin(
        self, spec: Spec, federation: Federation, resume: bool, request: Mapping[str, object] | None = None
    ) -> Iterator[None]:
        """`open`, for a spec and its rows: they are noted before anything trains, compared where it goes on."""
        if resume:
            self._check_rows(federation)
        with self.open(resume, request):
            if not resume:
                self.write_sealed(ROWS, _digests(federation))
            self.write_spec(spec)
            yield

    def _check_rows(self, federation: Federation) -> None:
        """RequestError where a run that is resumed would go on with other rows than those it was begun with."""
        before = self.read_sealed(ROWS)
        if before is None:  # it is written before the spec: a folder that can be resumed has one
            raise RequestError(
                f"{self.path / ROWS} is missing, which tells whether the rows are those that the run was begun with; "
                "copy the whole folder again, or choose another --out."
            )
        for part, found in _digests(federation).items():
            if before.get(part) != found:
                raise RequestError(
                    f"The {part.replace('_', ' ')} rows are not those that the run in {self.path} was begun with; "
                    "bring the data back as they were, or choose another --out."
                )

    def read_request(self) -> dict[str, Any] | None:
        """What `open` kept of the request; None where nothing tells the folder from that of a run."""
        path = self.path / REQUEST
        return open_json(path, AGAIN) if path.is_file() else None

    def write_sealed(self, name: str, content: Mapping[str, object]) -> None:
        """Plain values that this run reads back: a change is noticed then."""
        self.write_text(name, seal_json(to_json(content)))

    def read_sealed(self, name: str) -> dict[str, Any] | None:
        """What `write_sealed` wrote; None where it did not, DamagedError where it was changed."""
        path = self.path / name
        return open_json(path, f"delete it, so that it is made again, or {AGAIN}") if path.is_file() else None

    def write_text(self, name: str, text: str) -> None:
        """Replace a text file atomically."""
        write_whole(self.path / name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Replace a file atomically."""
        write_whole(self.path / name, content)

    def read_spec(self) -> Spec:
        """The spec of the run that was started here; RequestError where it was edited since."""
        path = self.path / "spec.toml"
        spec = load(path)
        if is_changed(path.read_text(encoding="utf-8")):
            raise RequestError(
                f"{path} was changed after the run had written it; undo the change to go on, or train with it by "
                f"`idiolect run {path} --out NEW`."
            )
        return spec

    def write_spec(self, spec: Spec) -> None:
        """The resolved spec."""
        self.write_text("spec.toml", seal_text(to_toml(spec)))

    def write_json(self, name: str, content: object) -> None:
        """A record or plain values; not-a-number becomes null."""
        self.write_text(name, json.dumps(to_json(content), indent=1, allow_nan=False))

    def write_table(self, name: str, rows: list[dict[str, Any]] | pa.Table | Iterator[pa.Table]) -> None:
        """One Parquet file, of rows, of a table, or of tables alike, of which one at a time is in memory.

        A column missing from a row, or not-a-number in a row, is null.
        """
        rows = _table_of(rows) if isinstance(rows, list) else rows
        tables = iter([rows]) if isinstance(rows, pa.Table) else rows
        first = next(tables)
        with whole(self.path / name) as unfinished, pq.ParquetWriter(unfinished, first.schema) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)

    def write_model(self, name: str, params: Params) -> None:
        """Parameters as safetensors, named by their path."""
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        # not ascontiguousarray: it makes a vector of one out of a scalar
        arrays = {
            jax.tree_util.keystr(keys, simple=True, separator="."): np.asarray(leaf, order="C") for keys, leaf in leaves
        }
        with whole(self.path / "models" / f"{name}.safetensors") as unfinished:
            unfinished.touch()
            by_umask = unfinished.stat().st_mode
            try:
                save_file(arrays, unfinished)
            except SafetensorError as error:  # it has the system's refusal in its text alone
                code = re.search(r"code: (\d+)", str(error))
                if code is None:
                    raise
                raise OSError(int(code[1]), os.strerror(int(code[1])), str(unfinished)) from error
            unfinished.chmod(by_umask)  # as every other file of the folder: safetensors makes its own private

    def write_names(self, federation: Federation) -> None:
        """What a reader of models needs: the order of clients, and how a table becomes inputs."""
        self.write_json("models/clients.json", list(federation.names))
        if federation.preprocessing is not None:
            self.write_text("models/preprocessing.json", federation.preprocessing.to_json())

    def complete(self, name: str, record: object, statement: object = None, time_model: str = "") -> None:
        """Write what every command leaves: where it ran, what left the clients, and at last its own record."""
        self.write_json("machine.json", machine_facts(time_model))
        if statement is not None:
            self.write_json("privacy.json", statement)
        self.write_json(name, record)
        self.finish()

    def finish(self) -> None:
        """Mark the run as complete; its checkpoints have served."""
        remove_leftovers(self.path)
        write_manifest(self.path)
        standing.finished(self.path, self._look())
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)


def _digests(federation: Federation) -> dict[str, list[object]]:
    """Part -> shapes and checksums of its rows, as JSON has them."""
    noted: dict[str, Any] = {part: digests([getattr(federation, part)]) for part in PARTS}
    if federation.held_out is not None:
        noted["held_out"] = digests([getattr(federation.held_out, part) for part in PARTS])
    return {part: [[list(shape), crc] for shape, crc in found] for part, found in noted.items()}


def safe_name(label: str) -> str:
    """A method's label as a file name; letters that a path could trip over become '_' and a number keeps it unique."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in label)
    changed = kept != label or kept.startswith(".")
    return f"{kept.lstrip('.') or 'method'}-{zlib.crc32(label.encode()):08x}" if changed else kept


def machine_facts(time_model: str) -> dict[str, object]:
    """Where and when: versions, devices, load. No path and no host name."""
    program = Path(sys.argv[0]).name
    ours = program in ("idiolect", "__main__.py")  # what others are given, such as a notebook's kernel, may be a place
    command = [program, *(sys.argv[1:] if ours else ())]
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "platform": platform.system(),
        "processor": platform.machine(),
        "cpu_count": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
        "load_average": list(os.getloadavg()),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "time_model": time_model,
    }


def _table_of(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {key: None for row in rows for key in row}
    arrays = {key: pa.array([row.get(key) for row in rows], from_pandas=True) for key in columns}  # no not-a-number
    for key, array in arrays.items():
        if pa.types.is_null(array.type):  # a column keeps its type in a run that has no value for it
            arrays[key] = array.cast(pa.string() if key in TEXTS else pa.float64())
    return pa.table(arrays)
