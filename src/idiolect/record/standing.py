# SPDX-License-Identifier: Apache-2.0
"""Where the command of this process stands: what it has written, and how to go on after an interruption."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path


@dataclasses.dataclass
class Standing:
    """The outermost folder that is being written."""

    folder: Path
    way_on: str  # a sentence without its full stop
    keeps: bool = True  # whether what was finished is found again; else the command starts again
    finished: str | None = None  # where to look at what is complete; None: it is not


_STACK: list[Standing] = []
_LAST: list[Standing] = []  # at most one: it outlives an error, which is when it is asked for
_OTHERS: list[bool] = []  # not empty: other processes are part of this command; whether this is the first one
_HEARERS: list[Callable[[], None]] = []  # called when what is kept has changed


@contextlib.contextmanager
def at(folder: Path, way_on: str, keeps: bool = True) -> Iterator[None]:
    """Inside, the command writes into `folder`."""
    own = Standing(folder, way_on, keeps)
    _STACK.append(own)
    if len(_STACK) == 1:
        _LAST[:] = [own]
        _changed()
    try:
        yield
    finally:
        _STACK.remove(own)


def finished(folder: Path, look: str) -> None:
    """The folder is complete; `look` says how to see what is in it."""
    for one in _STACK:
        if one.folder == folder:
            one.finished = look
    _changed()


def forget() -> None:
    """A new command begins."""
    _LAST.clear()
    _OTHERS.clear()
    _HEARERS.clear()


def join_others(first: bool) -> None:
    """Other processes are part of this command from now on; the first one keeps what is finished."""
    _OTHERS[:] = [first]
    _changed()


def when_changed(hear: Callable[[], None]) -> None:
    """Call it whenever what is kept, or by whom, has changed."""
    _HEARERS[:] = [hear]


def _changed() -> None:
    for hear in _HEARERS:
        hear()


def has_others() -> bool:
    """Whether they are: to end in order would wait for them, also for those that are lost."""
    return bool(_OTHERS)


def lost_host() -> str:
    """What to say where another process of this command is gone."""
    kept = way_on() if _OTHERS == [True] else "The first host has what was finished."
    return f"Another host of this run was lost. {kept} Give every host its command with --resume."


def way_on() -> str:
    """What is kept, and how to go on from there, in words that are true before, during and after the writing."""
    if not _LAST:
        return "Nothing was written; give the command again."
    one = _LAST[0]
    if one.finished is not None:
        return f"{one.folder} is complete. {one.finished}."
    if not one.keeps:
        return f"{one.folder} is not complete, and nothing in it can be used; {one.way_on}."
    return f"What was finished is kept in {one.folder}; {one.way_on}."
