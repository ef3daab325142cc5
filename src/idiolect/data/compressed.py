# SPDX-License-Identifier: Apache-2.0
"""Bytes of a file that may be packed with gzip, bzip2 or xz."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from idiolect.core.checks import RequestError, nearest

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def read_bytes(path: str | Path) -> bytes:
    """The whole file, unpacked where its name ends in .gz, .bz2 or .xz."""
    path = existing(path)
    opener = OPENERS.get(path.suffix.lower(), open)
    try:
        with opener(path, "rb") as file:
            return file.read()
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        size = path.stat().st_size
        raise RequestError(
            f"{path} is cut short or damaged: unpacking its {size} bytes failed ({error}); fetch the file again."
        ) from error


def existing(path: str | Path) -> Path:
    """The path of a file that is there; otherwise a RequestError names the nearest file beside it."""
    path = Path(path)
    if path.is_file():
        return path
    if path.is_dir():
        inside = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        such = f", such as {path / inside[0]}" if inside else "; this folder holds none"
        raise RequestError(f"{path} is a folder, but a file is needed; name the file inside it{such}.")
    # the nearest of thousands of names would be near by chance
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = nearest(path.name, beside) if beside and len(beside) <= 50 else ""
    raise RequestError(f"There is no file {path}; check the path.{hint}")


def inner_suffix(path: str | Path) -> str:
    """The extension that tells the format, below any packing: '.csv' for 'table.csv.xz'."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in OPENERS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
