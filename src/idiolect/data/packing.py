# SPDX-License-Identifier: Apache-2.0
"""What a data file holds, apart from how it is packed: arrays or text, their bytes and their checksum.

And what stands in a built file even where another copy of its original differs in order or in rounding.
"""

from __future__ import annotations

import bz2
import dataclasses
import hashlib
import io
import lzma
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from idiolect.data.compressed import read_bytes
from idiolect.data.sources import read_npz

Content = Mapping[str, np.ndarray] | bytes

PACKERS: dict[str, Callable[[bytes], bytes]] = {".bz2": bz2.compress, ".xz": lzma.compress}
CLOSE = 0.01  # by so much may the mean of values differ that were read from another copy


def pack(name: str, content: Content) -> bytes:
    """The bytes of a file of this name."""
    if not isinstance(content, bytes):
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **content)
        content = file.getvalue()
    return PACKERS.get(Path(name).suffix, bytes)(content)


def unpack(path: Path) -> Content:
    """What a file holds."""
    return read_npz(path) if ".npz" in path.suffixes else read_bytes(path)


def digest(content: Content) -> str:
    """SHA-256 of text, or of the names, types, shapes and values of arrays: packed anew, it stays the same."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    found = hashlib.sha256()
    # sorted, since their order in a file says nothing; with type and shape, since equal bytes may differ in these
    for name in sorted(content):
        values = np.ascontiguousarray(content[name])
        found.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        found.update(values.tobytes())
    return found.hexdigest()


@dataclasses.dataclass(frozen=True)
class Known:
    """`sha256`: of the rows of a text in any order, or of `arrays`; `means`: of other arrays, whose values may differ
    in their last digits."""

    sha256: str
    arrays: Sequence[str] = ()
    means: Mapping[str, float] = dataclasses.field(default_factory=dict)


def difference(known: Known, content: Content) -> str | None:
    """In what a built file is not the known one, as the end of a sentence; None where it is."""
    if isinstance(content, bytes):
        found, what = digest(sorted_rows(content)), "rows"
    else:
        absent = [name for name in (*known.arrays, *known.means) if name not in content]
        if absent:
            return f"no array {absent[0]!r}"
        found, what = digest({name: content[name] for name in known.arrays}), ", ".join(known.arrays)
    if found != known.sha256:
        return f"other {what} than the known ones"
    if not isinstance(content, bytes):
        for name, mean in known.means.items():
            if not abs(float(np.mean(content[name])) - mean) <= CLOSE * abs(mean):
                return f"the mean {np.mean(content[name]):.6g} in {name}, not {mean:.6g}"
    return None


def sorted_rows(text: bytes) -> bytes:
    """LIBSVM rows, each written in one way, in one order."""
    return b"\n".join(sorted(_written_anew(row) for row in text.split(b"\n") if row.strip()))


def _written_anew(row: bytes) -> bytes:
    label, *entries = row.split()
    pairs = sorted((int(place), float(value)) for place, _, value in (entry.partition(b":") for entry in entries))
    return f"{float(label):g} {' '.join(f'{place}:{value:g}' for place, value in pairs)}".encode()
