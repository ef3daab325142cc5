# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all, and what a killed process leaves of them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from idiolect.record.errors import RequestError

UNFINISHED = ".unfinished"
_NUMBERS = itertools.count()


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what becomes `path` once all of it is on the disk; where that fails, nothing is left of it.

    An OSError names `path`. A killed process leaves a file that `is_leftover` knows.
    """
    # in the same folder: a rename is one step only within a file system
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{next(_NUMBERS)}{UNFINISHED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        _flush(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        if error.filename not in (None, str(unfinished), unfinished):
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # a folder that is gone, or may no longer be written
            unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file at once."""
    with whole(path) as unfinished:
        unfinished.write_bytes(content)


def _flush(path: Path) -> None:
    """Wait until the content is on the disk: renamed before, it could be empty after a power cut."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def is_leftover(name: str) -> bool:
    """Whether a file of this name is what a killed process left while it wrote another one."""
    return name.startswith(".") and name.endswith(UNFINISHED)


def remove_leftovers(folder: Path, others: bool = True) -> None:
    """Remove what killed processes left; without the folder's lock not what other living ones (`others`) write."""
    for path in list(folder.rglob(f".*{UNFINISHED}")):
        if others or not is_written(path.name):
            path.unlink(missing_ok=True)


def is_written(name: str) -> bool:
    """Whether another living process may be writing this file."""
    number = name.removesuffix(UNFINISHED).rpartition(".")[2].partition("-")[0]
    if not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except OSError as error:  # one of another user's may not be asked, but is there
        return not isinstance(error, ProcessLookupError)
    return True


def make_writable(path: Path, what: str, option: str) -> None:
    """Make the folder and write into it, before anything is computed; RequestError where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe.{os.getpid()}{UNFINISHED}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise RequestError(
            f"The {what} {path} cannot be written ({error.strerror}); choose another {option}."
        ) from None
