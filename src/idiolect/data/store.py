# SPDX-License-Identifier: Apache-2.0
"""Populations larger than memory: memory-mapped rows, and one fixed-size record of state per client on disk."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import weakref
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

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


def is_mapped(rows: Rows) -> bool:
    """Whether the rows are those of `open_rows`: whole files, one row after another."""
    parts = [part for part in (rows.inputs, rows.targets, rows.weights) if part is not None]
    return all(
        isinstance(part, np.memmap) and isinstance(part.base, mmap.mmap) and part.flags.c_contiguous for part in parts
    )


def read_clients(rows: Rows, clients: np.ndarray) -> Rows:
    """Only the named clients of mapped rows, read through their files.

    Pages of a mapping would count as this process's memory, and touching one brings its neighbours with it.
    """
    offsets = np.concatenate([[0], np.cumsum(rows.offsets[clients + 1] - rows.offsets[clients])])
    runs = [_Run(int(rows.offsets[client]), *offsets[[first, last]].tolist()) for client, first, last in _runs(clients)]
    inputs, targets = (_read_rows(part, runs, int(offsets[-1])) for part in (rows.inputs, rows.targets))
    weights = None if rows.weights is None else _read_rows(rows.weights, runs, int(offsets[-1]))
    return Rows(inputs, targets, offsets, weights)


class _Run(NamedTuple):
    """Pieces that lie side by side in a file, and so are read or written at once."""

    begin: int  # in the file
    start: int  # in memory
    stop: int


def _runs(clients: np.ndarray) -> list[_Run]:
    """The runs of client numbers, by client."""
    breaks = [0, *(np.flatnonzero(np.diff(clients) != 1) + 1).tolist(), len(clients)]
    return [_Run(int(clients[first]), first, last) for first, last in pairwise(breaks) if first < last]


def _read_rows(array: np.ndarray, runs: list[_Run], count: int) -> np.ndarray:
    """Of a mapped array, so many rows."""
    assert isinstance(array, np.memmap)
    assert array.filename is not None
    found = np.empty((count, *array.shape[1:]), array.dtype)
    row_bytes = found.itemsize * math.prod(array.shape[1:])
    with open(array.filename, "rb", buffering=0) as file:
        _announce(file.fileno(), runs, array.offset, row_bytes)
        for begin, start, stop in runs:
            if not _fill(found[start:stop], file.fileno(), array.offset + begin * row_bytes):
                raise DamagedError(f"{array.filename} ends before row {begin + stop - start}; write it again.")
    return found


def _announce(file: int, runs: list[_Run], offset: int, each: int) -> None:
    """Have the system begin to read all of them: a disk is faster with many requests than with one after another."""
    if len(runs) > 1 and hasattr(os, "posix_fadvise"):
        for begin, start, stop in runs:
            os.posix_fadvise(file, offset + begin * each, (stop - start) * each, os.POSIX_FADV_WILLNEED)


def _fill(wanted: np.ndarray, file: int, place: int) -> bool:
    """Whether there were as many bytes from there on as the array has."""
    if not wanted.size:
        return True
    rest = wanted.data.cast("B")
    while rest:  # the system reads at most 2 GB at once
        read = os.preadv(file, [rest], place)
        if read == 0:
            return False
        rest, place = rest[read:], place + read
    return True


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
        # one array of bytes for all: leaf by leaf and client by client, copying would take longer than the disk
        records = np.empty((len(clients), self._stride), np.uint8)
        runs = _runs(clients)
        _announce(self._file, runs, 0, self._stride)
        there = all(_fill(records[start:stop], self._file, begin * self._stride) for begin, start, stop in runs)
        for record, client in zip(records, clients):
            if not there or _checksum(record[: self.record_bytes]) != record[self.record_bytes :].tobytes():
                raise DamagedError(
                    f"The state of client number {client} in {self.path} is damaged; check the disk, then resume "
                    "from the last checkpoint."
                )
        parts = np.split(records[:, : self.record_bytes], np.cumsum(self._sizes)[:-1], axis=1)
        return [
            np.ascontiguousarray(part).view(dtype).reshape(len(clients), *shape)
            for part, (shape, dtype) in zip(parts, self._shapes)
        ]

    def write(self, clients: np.ndarray, leaves: list[Any]) -> None:
        """Replace the named clients' records."""
        records, place = np.empty((len(clients), self._stride), np.uint8), 0
        for leaf, size, (_, dtype) in zip(leaves, self._sizes, self._shapes):
            column = np.ascontiguousarray(leaf, dtype).reshape(len(clients), size // dtype.itemsize)
            records[:, place : place + size] = column.view(np.uint8)
            place += size
        for record in records:
            record[place:] = np.frombuffer(_checksum(record[:place]), np.uint8)
        for begin, start, stop in _runs(clients):
            content, offset = records[start:stop].data.cast("B"), begin * self._stride
            while content:  # a disk that is nearly full takes a part, and only then refuses
                written = os.pwrite(self._file, content, offset)
                content, offset = content[written:], offset + written

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


def _checksum(record: np.ndarray) -> bytes:
    return zlib.crc32(record.data).to_bytes(CHECKSUM, "little")
