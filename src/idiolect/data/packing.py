# SPDX-License-Identifier: Apache-2.0
"""What a data file holds, apart from how it is packed: arrays or text, their bytes and their checksum."""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from idiolect.data.compressed import read_bytes
from idiolect.data.sources import read_npz

Content = Mapping[str, np.ndarray] | bytes

PACKERS: dict[str, Callable[[bytes], bytes]] = {".bz2": bz2.compress, ".xz": lzma.compress}


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
