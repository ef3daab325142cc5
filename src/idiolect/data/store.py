# SPDX-License-Identifier: Apache-2.0
"""Populations larger than memory: memory-mapped rows, and one fixed-size record of state per client on disk."""

from __future__ import annotations

import hashlib
import os
import weakref
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.record.errors import DamagedError
from idiolect.record.files import whole

CHECKSUM = 4  # bytes behind every record
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
    """One record per client: the leaves of its state, one after another, then their checksum.

    Reads and writes go through the file, not through a mapping, so that a long run does not grow the process.
    """

    def __init__(self, path: Path, shapes: list[tuple[tuple[int, ...], np.dtype]], records: int):
        self.path, self.records, self._shapes = path, records, shapes
        self._sizes = [int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in shapes]
        self.record_bytes = sum(self._sizes)
        self._stride = self.record_bytes + CHECKSUM
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # as the umask allows
        os.ftruncate(self._file, self._stride * records)
        weakref.finalize(self, os.close, self._file)

    def read(self, clients: np.ndarray) -> list[np.ndarray]:
        """The named clients' leaves, stacked."""
        leaves = [np.empty((len(clients), *shape), dtype) for shape, dtype in self._shapes]
        for row, client in enumerate(clients):
            record = os.pread(self._file, self._stride, int(client) * self._stride)
            if _checksum(record[: self.record_bytes]) != record[self.record_bytes :]:
                raise DamagedError(
                    f"The state of client number {client} in {self.path} is damaged; check the disk, then resume "
                    "from the last checkpoint."
                )
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
            os.pwrite(self._file, record + _checksum(record), int(client) * self._stride)

    def copy_to(self, path: Path) -> str:
        """A snapshot of every record, whole or not at all; returns its SHA-256."""
        os.fsync(self._file)
        with whole(path) as unfinished:
            return self._copy(self.path, unfinished)

    def restore_from(self, path: Path) -> None:
        """Take every record back from a snapshot."""
        if path.stat().st_size != self._stride * self.records:
            raise RequestError(
                f"The client states in {path} have {path.stat().st_size} bytes where "
                f"{self._stride * self.records} are needed; resume with the settings the run was started with."
            )
        self._copy(path, self.path)

    @staticmethod
    def _copy(source: Path, target: Path) -> str:
        digest = hashlib.sha256()
        with open(source, "rb") as read, open(target, "wb") as written:
            while piece := read.read(1 << 22):
                written.write(piece)
                digest.update(piece)
            os.fsync(written.fileno())
        return digest.hexdigest()


def _checksum(record: bytes) -> bytes:
    return zlib.crc32(record).to_bytes(CHECKSUM, "little")
