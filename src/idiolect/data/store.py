# SPDX-License-Identifier: Apache-2.0
"""Populations larger than memory: memory-mapped rows, and one fixed-size record of state per client on disk."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows

_PARTS = ("inputs", "targets", "offsets")


def save_rows(folder: Path, rows: Rows) -> None:
    """Write rows as three .npy files that `open_rows` maps, and a fourth where they have weights."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        np.save(folder / f"{part}.npy", getattr(rows, part))
    weights = folder / "weights.npy"
    weights.unlink(missing_ok=True)  # of rows that were here before
    if rows.weights is not None:
        np.save(weights, rows.weights)


def open_rows(folder: Path) -> Rows:
    """Rows whose arrays stay on disk; only what is asked for is read."""
    missing = [part for part in _PARTS if not (folder / f"{part}.npy").is_file()]
    if missing:
        raise RequestError(
            f"A row store needs inputs.npy, targets.npy and offsets.npy; {folder} lacks {missing[0]}.npy."
        )
    inputs, targets = (np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("inputs", "targets"))
    weights = folder / "weights.npy"
    weighed = np.load(weights, mmap_mode="r") if weights.is_file() else None
    return Rows(inputs, targets, np.load(folder / "offsets.npy"), weighed)


class RecordFile:
    """One record per client: the leaves of its state, one after another, at `client * record_bytes`.

    Reads and writes go through the file, not through a mapping, so that a long run does not grow the process.
    """

    def __init__(self, path: Path, shapes: list[tuple[tuple[int, ...], np.dtype]], records: int):
        self.path, self.records, self._shapes = path, records, shapes
        self._sizes = [int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in shapes]
        self.record_bytes = sum(self._sizes)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # as the umask allows
        os.ftruncate(self._file, self.record_bytes * records)
        weakref.finalize(self, os.close, self._file)

    def read(self, clients: np.ndarray) -> list[np.ndarray]:
        """The named clients' leaves, stacked."""
        leaves = [np.empty((len(clients), *shape), dtype) for shape, dtype in self._shapes]
        for row, client in enumerate(clients):
            record = os.pread(self._file, self.record_bytes, int(client) * self.record_bytes)
            start = 0
            for leaf, size, (shape, dtype) in zip(leaves, self._sizes, self._shapes):
                leaf[row] = np.frombuffer(record, dtype, count=size // dtype.itemsize, offset=start).reshape(shape)
                start += size
        return leaves

    def write(self, clients: np.ndarray, leaves: list[Any]) -> None:
        """Replace the named clients' records."""
        columns = [np.ascontiguousarray(leaf) for leaf in leaves]
        for row, client in enumerate(clients):
            record = b"".join(column[row].tobytes() for column in columns)
            os.pwrite(self._file, record, int(client) * self.record_bytes)

    def copy_to(self, path: Path) -> None:
        """A snapshot of every record."""
        os.fsync(self._file)
        unfinished = path.with_name(f"{path.name}.unfinished")
        self._copy(self.path, unfinished)
        os.replace(unfinished, path)  # a snapshot that a checkpoint names is never seen half written

    def restore_from(self, path: Path) -> None:
        """Take every record back from a snapshot."""
        if not path.is_file():
            raise RequestError(
                f"The client states {path} are missing beside the checkpoint; start again without resuming."
            )
        if path.stat().st_size != self.record_bytes * self.records:
            raise RequestError(
                f"The client states in {path} have {path.stat().st_size} bytes where "
                f"{self.record_bytes * self.records} are needed; resume with the settings the run was started with."
            )
        self._copy(path, self.path)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        with open(source, "rb") as read, open(target, "wb") as written:
            while piece := read.read(1 << 22):
                written.write(piece)
            os.fsync(written.fileno())
