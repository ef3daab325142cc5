# SPDX-License-Identifier: Apache-2.0
"""The history of a run beside its checkpoints: lines are added, and each checkpoint says how many are its own."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.record.errors import DamagedError


class Mark(NamedTuple):
    """How far a file of lines belongs to a checkpoint: all up to here, with this checksum."""

    lines: int = 0
    size: int = 0  # bytes
    checksum: int = 0


def append_lines(path: Path, mark: Mark, rows: Sequence[object]) -> Mark:
    """Write the rows from number `mark.lines` on behind the mark; what a later, lost checkpoint wrote there goes."""
    if mark.lines and not (path.is_file() and path.stat().st_size >= mark.size):
        mark = Mark()  # it was removed meanwhile
    added = b"".join(json.dumps(row).encode() + b"\n" for row in rows[mark.lines :])
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
        file.truncate(mark.size)
        file.seek(mark.size)
        file.write(added)
        file.flush()
        os.fsync(file.fileno())
    return Mark(len(rows), mark.size + len(added), zlib.crc32(added, mark.checksum))


def read_lines(path: Path, mark: Mark) -> list[Any]:
    """The rows up to the mark; DamagedError where they are not those that were written."""
    try:
        with open(path, "rb") as file:
            content = file.read(mark.size)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror}).") from None
    if len(content) != mark.size or zlib.crc32(content) != mark.checksum:
        raise DamagedError(f"{path} is damaged.")
    return [json.loads(line) for line in content.splitlines()]
