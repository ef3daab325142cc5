# SPDX-License-Identifier: Apache-2.0
"""One process at a time in a folder; the system takes the lock from a process that is killed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from idiolect.record.errors import RequestError

LOCK = ".lock"
_TRIES = 100  # of a file that others make and remove at the same time


@contextlib.contextmanager
def locked(folder: Path, way_out: str = "wait until it has ended, or choose another --out") -> Iterator[None]:
    """Inside, no other process holds this folder; RequestError where one does."""
    with os.fdopen(_take(folder, way_out), "rb"):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (folder / LOCK).unlink(missing_ok=True)  # while it is held, so that it is no other process's


def _take(folder: Path, way_out: str) -> int:
    for _ in range(_TRIES):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _is_free(handle):
                raise RequestError(f"Another process is writing into {folder}; {way_out}.")
            with contextlib.suppress(FileNotFoundError):
                # a lock is on the file, not on its name: between opening and locking another process may have removed
                # it and made a new one
                if os.path.samestat(os.fstat(handle), os.stat(folder / LOCK)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it between our opening and locking it
    raise RequestError(f"The lock of {folder} cannot be taken; try again, or choose another --out.")


def _is_free(handle: int) -> bool:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows, or a file system that has no locks
        pass
    return True
