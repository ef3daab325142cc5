# SPDX-License-Identifier: Apache-2.0
"""Array files in: LIBSVM text, IDX and NPZ, plain or packed with gzip, bzip2 or xz."""

from __future__ import annotations

import contextlib
import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import DTypeLike

from idiolect.core.checks import RequestError
from idiolect.data.compressed import OPENERS, existing, read_bytes
from idiolect.record.memory import check_bytes
from idiolect.record.words import excerpt

MOST_NUMBERS = 2**32  # of a dense array: 16 GB in single precision
MOST_DIGITS = 18  # of an index
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_libsvm(
    path: str | Path, features: int | None = None, *, zero_based: bool = False, dtype: DTypeLike = np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Dense inputs (rows, features) and targets (rows,) from 'target index:value index:value ...' lines.

    Indices count from 1 (from 0 with `zero_based`) and rise within a line; `features` defaults to the
    largest index.
    """
    try:
        lines = read_bytes(path).decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not LIBSVM text: byte {error.start} is no ASCII character.") from error
    targets: list[float] = []
    rows, columns, values = [], [], []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        target, indices, entries = _libsvm_line(path, number, words, 0 if zero_based else 1)
        rows += [len(targets)] * len(indices)
        columns += indices
        values += entries
        targets.append(target)
    if not targets:
        raise RequestError(f"{path} holds no rows; a LIBSVM file has one 'target index:value ...' line per row.")
    width = max(columns, default=-1) + 1
    if features is not None and width > features:
        raise RequestError(f"{path} has an index for {width} features, but features={features}; raise it.")
    width = width if features is None else features
    # one mistyped index makes every row as wide
    if len(targets) * width > MOST_NUMBERS:
        raise RequestError(
            f"{path} would fill {len(targets)} rows of {width} numbers, more than memory holds; correct the largest "
            "index, or keep fewer features."
        )
    inputs = np.zeros((len(targets), width), dtype)
    inputs[rows, columns] = values
    return inputs, np.array(targets, np.float64)


def read_idx(path: str | Path) -> np.ndarray:
    """The array in an IDX file (MNIST's format): zero, zero, type, dimensions, sizes, values; big-endian."""
    return parse_idx(read_bytes(path), path)


def parse_idx(content: bytes, path: str | Path) -> np.ndarray:
    """The array in the bytes of an IDX file; `path` is for messages."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise RequestError(f"{path} is not an IDX file: its first four bytes are {content[:4].hex(' ') or 'missing'}.")
    kind, dimensions = np.dtype(IDX_TYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise RequestError(f"{path} ends at byte {len(content)}, inside its {start}-byte header; fetch it again.")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, 4))
    # a file that was cut short, or has something behind it, is not what its header says
    promised = start + kind.itemsize * math.prod(shape)
    if len(content) != promised:
        raise RequestError(
            f"{path} has {len(content)} bytes, but its header promises {promised} for shape {shape}; fetch it again."
        )
    if 0 in shape:
        raise RequestError(f"{path} holds nothing: its header says shape {shape}; fetch it again.")
    return np.frombuffer(content, kind, offset=start).reshape(shape).astype(kind.newbyteorder("="))


def npz_names(path: str | Path) -> tuple[str, ...]:
    """The names of the arrays in an .npz file; none of them is read."""
    with _archive(path) as archive:
        return tuple(archive.files)


def read_npz(path: str | Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file, or all; pickled objects are refused, and others are not read."""
    with _archive(path) as archive:
        return {name: _plain(path, name, archive) for name in (archive.files if names is None else names)}


@contextlib.contextmanager
def _archive(path: str | Path) -> Iterator[NpzFile]:
    """The open archive, of which only what is asked for is read; a file that is packed as a whole is unpacked."""
    packed = existing(path).suffix.lower() in OPENERS
    with io.BytesIO(read_bytes(path)) if packed else open(path, "rb") as file:
        # numpy.load takes both kinds of file, and only an archive has names
        if file.read(6) == b"\x93NUMPY":
            raise RequestError(f"{path} is a single .npy array, but .npz is needed; save it with numpy.savez.")
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                yield archive
        except RequestError:
            raise
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, KeyError, NotImplementedError) as error:
            raise RequestError(f"{path} ({size} bytes unpacked) is not a whole .npz file: {error}.") from error


def _plain(path: str | Path, name: str, archive: NpzFile) -> np.ndarray:
    assert archive.zip is not None  # open: we are inside of `_archive`
    member = name if name in archive.zip.namelist() else f"{name}.npy"
    # the archive says how large the array is before it is unpacked: a few bytes may hold terabytes
    size = archive.zip.getinfo(member).file_size
    check_bytes(size, f"The array {name!r} of {path}", "store fewer rows, or in smaller numbers")
    try:
        return archive[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise RequestError(
            f"The array {name!r} of {path} holds Python objects, as rows of mixed size do; crop, pad or resize all "
            "rows to one shape and save plain numbers."
        ) from None


def _libsvm_line(path: str | Path, number: int, words: list[str], base: int) -> tuple[float, list[int], list[float]]:
    """Target, columns from 0, and values of one line."""
    word = words[0]
    try:
        target = float(word)
        indices, values = [], []
        for word in words[1:]:
            index, _, value = word.partition(":")
            if len(index) > MOST_DIGITS:  # a sentence about so large a number could not be printed
                raise ValueError
            indices.append(int(index) - base)
            values.append(float(value))
    except ValueError:
        expected = "a number" if word is words[0] else "index:value"
        raise RequestError(f"{path}, line {number}: {excerpt(word)!r} is not {expected}; correct the line.") from None
    if not np.isfinite([target, *values]).all():
        raise RequestError(f"{path}, line {number} holds a number that is not finite; correct or drop the line.")
    if indices and (indices[0] < 0 or indices != sorted(set(indices))):
        raise RequestError(f"{path}, line {number}: indices must start at {base} and rise; correct the line.")
    return target, indices, values
