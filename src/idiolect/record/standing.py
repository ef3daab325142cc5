# SPDX-License-Identifier: Apache-2.0
"""Where the command of this process stands: what it has written, and how to go on after an interruption."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass
class Standing:
    """The outermost folder that is being written."""

    folder: Path
    way_on: str  # a sentence without its full stop
    finished: str | None = None  # where to look at what is complete; None: it is not


_STACK: list[Standing] = []
_LAST: list[Standing] = []  # at most one: it outlives an error, which is when it is asked for
_OTHERS: list[bool] = []  # not empty: other processes are part of this command


@contextlib.contextmanager
def at(folder: Path, way_on: str) -> Iterator[None]:
    """Inside, the command writes into `folder`."""
    own = Standing(folder, way_on)
    _STACK.append(own)
    if len(_STACK) == 1:
        _LAST[:] = [own]
    try:
        yield
    finally:
        _STACK.remove(own)


def finished(folder: Path, look: str) -> None:
    """The folder is complete; `look` says how to see what is in it."""
    for one in _STACK:
        if one.folder == folder:
            one.finished = look


def forget() -> None:
    """A new command begins."""
    _LAST.clear()
    _OTHERS.clear()


def join_others() -> None:
    """Other processes are part of this command from now on."""
    _OTHERS[:] = [True]


def has_others() -> bool:
    """Whether they are: to end in order would wait for them, also for those that are lost."""
    return bool(_OTHERS)


def way_on() -> str:
    """What is kept, and how to go on from there, in words that are true before, during and after the writing."""
    if not _LAST:
        return "Nothing was written; give the command again."
    one = _LAST[0]
    if one.finished is not None:
        return f"The run in {one.folder} is complete. {one.finished}."
    return f"What was finished is kept in {one.folder}; {one.way_on}."
