# SPDX-License-Identifier: Apache-2.0
"""The run folder: everything a run leaves behind, written atomically, complete and final."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import platform
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from idiolect.core.checks import RequestError
from idiolect.experiments.spec import Spec, load, to_toml

SCHEMA = 1
TEXTS = ("method", "client", "verdict")


def make_writable(path: Path, what: str, option: str) -> None:
    """Make the folder and write into it, before anything is computed; RequestError where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise RequestError(
            f"The {what} {path} cannot be written ({error.strerror}); choose another {option}."
        ) from None


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what becomes `path` once all of it is there; where that fails, nothing is left of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


class RunFolder:
    """A folder for one run. Nothing that is finished is ever overwritten."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def done(self) -> bool:
        """Whether a run has finished here."""
        return (self.path / "done").is_file()

    @property
    def begun(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "spec.toml").is_file()

    def check(self, resume: bool) -> None:
        """Refuse, with the way out, a folder that this run may not use; nothing is written."""
        if self.done:
            why = "there is nothing to resume" if resume else "it will not be overwritten"
            reported = any(
                (self.path / name).is_file() for name in ("summary.json", "splits.json")
            )  # a reproduction has numbers and figures instead
            look = f"Look at it with `idiolect report {self.path}`" if reported else f"Look at the files in {self.path}"
            raise RequestError(f"The run in {self.path} is finished, and {why}. {look}, or choose another --out.")
        if self.begun and not resume:
            raise RequestError(
                f"The folder {self.path} already holds a run. Add --resume to go on with it, or choose another --out."
            )
        if resume and not self.begun:
            raise RequestError(f"There is no run to resume in {self.path}; start one without --resume.")
        if self.path.is_file():
            raise RequestError(f"A run needs a folder, and {self.path} is a file; choose another --out.")
        if not self.begun and self.path.is_dir() and any(self.path.iterdir()):
            raise RequestError(f"The folder {self.path} holds other files; a run needs its own: choose another --out.")

    def open(self, resume: bool) -> None:
        """Make the folder, or refuse with the way out."""
        self.check(resume)
        make_writable(self.path, "run folder", "--out")

    def write_text(self, name: str, text: str) -> None:
        """Replace a text file atomically."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Replace a file atomically."""
        with whole(self.path / name) as unfinished:
            unfinished.write_bytes(content)

    def read_spec(self) -> Spec:
        """The spec of the run that was started here."""
        return load(self.path / "spec.toml")

    def write_spec(self, spec: Spec) -> None:
        """The resolved spec."""
        self.write_text("spec.toml", to_toml(spec))

    def write_json(self, name: str, content: Any) -> None:
        """Plain values; not-a-number becomes null."""
        self.write_text(name, json.dumps(_without_nan(content), indent=1, allow_nan=False))

    def read_json(self, name: str) -> Any:
        """What `write_json` wrote; None where it did not."""
        path = self.path / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def write_table(self, name: str, rows: list[dict[str, Any]] | pa.Table | Iterator[pa.Table]) -> None:
        """One Parquet file, of rows, of a table, or of tables alike, of which one at a time is in memory.

        A column missing from a row, or not-a-number in a row, is null.
        """
        tables = (
            iter([_table_of(rows)]) if isinstance(rows, list) else iter([rows] if isinstance(rows, pa.Table) else rows)
        )
        first = next(tables)
        with whole(self.path / name) as unfinished, pq.ParquetWriter(unfinished, first.schema) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)

    def write_model(self, name: str, params: Any) -> None:
        """Parameters as safetensors, named by their path."""
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        # not ascontiguousarray: it makes a vector of one out of a scalar
        arrays = {
            jax.tree_util.keystr(keys, simple=True, separator="."): np.asarray(leaf, order="C") for keys, leaf in leaves
        }
        with whole(self.path / "models" / f"{name}.safetensors") as unfinished:
            unfinished.touch()
            by_umask = unfinished.stat().st_mode
            save_file(arrays, unfinished)
            unfinished.chmod(by_umask)  # as every other file of the folder: safetensors makes its own private

    def finish(self) -> None:
        """Mark the run as complete; its checkpoints have served."""
        self.write_text("done", "")
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)


def safe_name(label: str) -> str:
    """A method's label as a file name; letters that a path could trip over become '_' and a number keeps it unique."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in label)
    changed = kept != label or kept.startswith(".")
    return f"{kept.lstrip('.') or 'method'}-{zlib.crc32(label.encode()):08x}" if changed else kept


def machine_facts(time_model: str) -> dict[str, Any]:
    """Where and when: versions, devices, load. No path and no host name."""
    versions: dict[str, Any] = {
        name: sys.modules[name].__version__ for name in ("jax", "numpy", "pyarrow") if name in sys.modules
    }
    command = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return {
        "python": platform.python_version(),
        **versions,
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
    arrays = {key: pa.array([_null_nan(row.get(key)) for row in rows]) for key in columns}
    for key, array in arrays.items():
        if pa.types.is_null(array.type):  # a column keeps its type in a run that has no value for it
            arrays[key] = array.cast(pa.string() if key in TEXTS else pa.float64())
    return pa.table(arrays)


def _null_nan(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    if isinstance(content, float) and not np.isfinite(content):
        return None
    return content.item() if isinstance(content, np.generic) else content
