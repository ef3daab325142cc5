# SPDX-License-Identifier: Apache-2.0
"""Tables and paragraphs as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from idiolect.report.wording import plural

WIDTH = 120  # columns of the narrowest terminal we count on


def text_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Sequence[int] = (0,),
    padding: tuple[int, ...] = (0, 1),
    least: int | None = None,
) -> Table:
    """A table whose columns hold numbers, but for those of `words`; the first one may be folded, to `least` letters."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding)  # type: ignore[arg-type]
    for place, head in enumerate(heads):
        first = place == 0
        table.add_column(
            Text(head),
            justify="left" if place in words else "right",
            no_wrap=not first,
            overflow="fold" if first else "ellipsis",
            # Only labels can be wrapped, so a narrow terminal would squeeze them to nothing.
            min_width=least if first else None,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def starred(text: str, best: bool) -> str:
    """A blank in the star's place keeps the digits of a column under each other."""
    return text + ("*" if best else " ")


def printed(*parts: str | Table, width: int = WIDTH) -> str:
    """Paragraphs and tables one below the other, as text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, emoji=False, markup=False)
    for part in parts:
        console.print(part)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def more_clients(left: int, where: str) -> list[str]:
    """Where the clients are that a table leaves out; nothing where there are none."""
    return [f"{plural(left, 'more client')} {where}."] if left > 0 else []


def fits(table: Table, width: int) -> bool:
    """Whether nothing of it must be wrapped or cut."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return console.measure(table, options=console.options.update(max_width=10 * width)).maximum <= width
