# SPDX-License-Identifier: Apache-2.0
"""Where everything passes that the command line prints: no name out of a file reaches a terminal as a control code."""

from __future__ import annotations

import contextlib
import csv
import enum
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from idiolect.record import last_words
from idiolect.record.codec import flat, to_json
from idiolect.visible import one_line, visible


class Guarded:
    """A text stream that writes only what can be seen; it is the given one in all else."""

    # A name out of a table may hold control codes: printed as they are they could clear the screen, or write a line
    # that looks like ours. Every text goes through here, so no caller has to think of it.
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
        return len(text)  # of what was asked for: who counts what was written must not write the rest again

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
    with contextlib.ExitStack() as opened:
        # a stream that was closed for us (`>&-`) is None, and the next file that is opened would take its number
        out, err = (one or opened.enter_context(open(os.devnull, "w")) for one in before)
        sys.stdout, sys.stderr = Guarded(out), Guarded(err)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def speak_for_hosts() -> None:
    """Standard error from here on, where the runtime may end this process; see `record.last_words`."""
    sys.stderr = Guarded(last_words.have_somebody_speak())


def terminal() -> Any:
    """Standard error for a progress bar, which writes control codes of its own; its labels go through `one_line`."""
    return getattr(sys.stderr, "unguarded", sys.stderr)


def remark(text: str) -> None:
    """One line on standard error."""
    print(one_line(text), file=sys.stderr)


class Format(enum.StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"
    csv = "csv"


def put(
    as_format: Format,
    text: Callable[[], str],
    facts: Callable[[], object],
    rows: Callable[[], Sequence[Mapping[str, object]]] | None = None,
    heads: Sequence[str] = (),
) -> None:
    """Print a result: for a person, or as one document for a program, and then nothing else on standard output.

    As CSV it is the table `rows`, which has the columns `heads` even where it is empty; without one, name and value of
    every fact.
    """
    if as_format is Format.text:
        print(text().rstrip("\n"))
    elif as_format is Format.json:
        write_document(json.dumps(to_json(facts()), default=str, allow_nan=False) + "\n")
    elif rows is None:
        pairs = [{"name": name, "value": value} for name, value in flat(to_json(facts()), ".").items()]
        write_document(as_csv(pairs, ("name", "value")))
    else:
        write_document(as_csv([flat(to_json(row), "_") for row in rows()], heads))


def as_csv(rows: Sequence[Mapping[str, object]], heads: Sequence[str] = ()) -> str:
    """Rows as CSV: all names that any row has, in the order in which they come up; nothing where a row has none."""
    # a dictionary keeps the order in which names come up, a set does not
    columns = list(dict.fromkeys([*heads, *(name for row in rows for name in row)]))
    content = io.StringIO()
    writer = csv.DictWriter(content, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        plain = {name: value for name, value in row.items() if value is None or isinstance(value, str)}
        writer.writerow({name: json.dumps(value, default=str) for name, value in row.items()} | plain)
    return content.getvalue()


def write_document(text: str) -> None:
    """Text for a program: byte for byte as UTF-8, but for a terminal, which gets what can be seen of it."""
    stream = getattr(sys.stdout, "unguarded", sys.stdout)
    if stream.isatty() or not hasattr(stream, "buffer"):
        sys.stdout.write(text)
        return
    stream.flush()  # what was printed as text stands in another buffer, and comes first
    stream.buffer.write(text.encode("utf-8", "surrogateescape"))
    stream.buffer.flush()
