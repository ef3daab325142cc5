# SPDX-License-Identifier: Apache-2.0
"""Where everything passes that the command line prints: no name out of a file reaches a terminal as a control code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from idiolect.visible import one_line, visible


class Guarded:
    """A text stream that writes only what can be seen; it is the given one in all else."""

    def __init__(self, stream: Any):
        self.unguarded = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)

    @property
    def encoding(self) -> str:
        """Never ASCII: typer would write past us, to the bytes below. What does not fit is written out instead."""
        return "utf-8" if self._narrow() else self.unguarded.encoding

    def write(self, text: str) -> int:
        """Write the text, with what would not be seen in it written out."""
        shown = visible(text)
        if self._narrow():
            shown = shown.encode("ascii", "backslashreplace").decode("ascii")
        self.unguarded.write(shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write all of them."""
        for line in lines:
            self.write(line)

    def _narrow(self) -> bool:
        return (getattr(self.unguarded, "encoding", None) or "ascii").lower() in ("ascii", "us-ascii", "646")


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Inside, standard output and standard error are guarded, also for what others print (warnings, tracebacks)."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Guarded(sys.stdout), Guarded(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def terminal() -> Any:
    """Standard error for a progress bar, which writes control codes of its own; its labels go through `one_line`."""
    return getattr(sys.stderr, "unguarded", sys.stderr)


def remark(text: str) -> None:
    """One line on standard error."""
    print(one_line(text), file=sys.stderr)
