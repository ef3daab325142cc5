# SPDX-License-Identifier: Apache-2.0
"""Files that carry their own SHA-256, so that a changed byte is noticed when they are read back.

A JSON object has it under "sha256", a TOML file in a comment on its first line, any other file in its last bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idiolect.record.errors import DamagedError

KEY = "sha256"
_COMMENT = "# sha256 of the lines below: "
_MARK = b"\nsha256:"
_TRAILER = len(_MARK) + 64
PIECE = 1 << 22


def digest_of(path: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first `size` bytes."""
    found = hashlib.sha256()
    left = path.stat().st_size if size is None else size
    with open(path, "rb") as file:
        while left > 0 and (piece := file.read(min(PIECE, left))):
            found.update(piece)
            left -= len(piece)
    return found.hexdigest()


def seal_json(content: Mapping[str, Any]) -> str:
    """The text of a JSON object that `open_json` trusts."""
    return json.dumps({**content, KEY: digest_of_values(content)}, indent=1, allow_nan=False)


def open_json(path: Path, way_out: str) -> dict[str, Any]:
    """What `seal_json` wrote into a file; DamagedError where it is something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        seal = content.pop(KEY)
        sound = seal == digest_of_values(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise DamagedError(f"{path} is damaged or was edited; {way_out}.")
    return content


def digest_of_values(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, as JSON has them."""
    # by the values, not by the text: an editor that only lays the file out anew has changed nothing
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def seal_text(text: str) -> str:
    """A TOML text below a comment that holds its digest."""
    return f"{_COMMENT}{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def is_changed(text: str) -> bool:
    """Whether a text that was sealed is not the one that was; one that never was is taken as it is."""
    first, _, rest = text.partition("\n")
    return first.startswith("# sha256") and first != f"{_COMMENT}{hashlib.sha256(rest.encode()).hexdigest()}"


def seal_file(path: Path) -> None:
    """Add a file's digest at its end; formats that are read from their own marks, as zip archives, do not mind."""
    digest = digest_of(path)
    with open(path, "ab") as file:
        file.write(_MARK + digest.encode())


def check_file(path: Path) -> None:
    """DamagedError unless the file is as `seal_file` left it."""
    size = path.stat().st_size - _TRAILER
    if size < 0:
        raise DamagedError(f"{path} is cut short.")
    with open(path, "rb") as file:
        file.seek(-_TRAILER, os.SEEK_END)
        trailer = file.read()
    if trailer != _MARK + digest_of(path, size).encode():
        raise DamagedError(f"{path} is damaged.")
