# SPDX-License-Identifier: Apache-2.0
"""Tables and paragraphs as plain text, as wide as the terminal: what finds no room is left out, or stands below."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from idiolect.record.words import counted

WIDTH = 80  # where no terminal says otherwise: a pipe, a file, a notebook
NARROWEST, WIDEST = 40, 400
PROSE = 120  # longer lines are hard to read, whatever the terminal holds
LABEL = 14  # letters to which a label may be folded
GAP = 1  # between columns, beside the blank that stands in for a star


class TextColumn(NamedTuple):
    """A column as text, and when it is shown: rank 0 always, others where there is room, lower ranks first."""

    head: str
    cells: Sequence[str]
    rank: int = 0
    words: bool = False  # written from the left
    least: int | None = None  # letters to which it may be folded; None: never, as a cut number is a wrong one
    cut: bool = False  # it is cut there instead, so that a row stays one line

    @property
    def letters(self) -> tuple[int, int]:
        """Letters of its longest line, and those that it cannot do without."""
        width = max(cell_len(line) for text in (self.head, *self.cells) for line in text.split("\n"))
        return width, width if self.least is None else min(width, self.least)


def terminal_width() -> int:
    """Columns of the terminal that reads standard output, or COLUMNS; 80 where there is neither."""
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST), WIDEST)


def tables_of(columns: Sequence[TextColumn], width: int, gap: int = GAP, below: int = 0) -> list[str | Table]:
    """The columns as tables that are no wider than `width`, see `arrange`, with an empty line between them."""
    groups = arrange(columns, width, gap, below)
    return [part for group in groups for part in ("", _table([columns[at] for at in group], width, gap))][1:]


def arrange(columns: Sequence[TextColumn], width: int, gap: int = GAP, below: int = 0) -> list[list[int]]:
    """Places of the columns of every table; each begins with the first column.

    The first table has the columns of rank 0 and those others that find room. Columns up to rank `below` that find none
    stand in further tables, higher ones are left out. Where even those of rank 0 find no room, they stand below too.
    """
    wide, narrow = zip(*(column.letters for column in columns))
    first, places = [0], range(1, len(columns))
    for place in sorted(places, key=lambda place: columns[place].rank):  # sorted keeps the order inside a rank
        # what must be there may fold the others, what may be there must not
        letters = wide if columns[place].rank else narrow
        # one column beside the label is shown whatever the width: a table of labels alone says nothing
        if len(first) == 1 or sum(letters[at] + gap for at in (*first, place)) - gap <= width:
            first.append(place)
    waiting = [place for place in places if place not in first and columns[place].rank <= below]
    return [sorted(first), *_packed(waiting, wide, narrow, width, gap)]


def _packed(places: list[int], wide: Sequence[int], narrow: Sequence[int], width: int, gap: int) -> list[list[int]]:
    """Places in groups, each of which fits beside the first column, which is folded only where it is very wide."""
    groups, label = list[list[int]](), wide[0] if wide[0] <= width // 2 else narrow[0]
    for place in places:
        if groups and label + sum(gap + narrow[at] for at in (*groups[-1][1:], place)) <= width:
            groups[-1].append(place)
        else:
            groups.append([0, place])
    return groups


def _table(columns: Sequence[TextColumn], width: int, gap: int) -> Table:
    """The columns as they are, but those that may be folded, which give up what is too much, the widest first."""
    widths, narrow = map(list, zip(*(column.letters for column in columns)))
    # cells are never cut where they are numbers: the labels give way
    excess = sum(widths) + gap * (len(widths) - 1) - width
    for place in sorted(range(len(columns)), key=lambda place: narrow[place] - widths[place]):
        given = min(max(excess, 0), widths[place] - narrow[place])
        widths[place] -= given
        excess -= given
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, gap - 1))
    for column, wide in zip(columns, widths):
        folded = column.least is not None and not column.cut
        table.add_column(
            Text(column.head),
            justify="left" if column.words else "right",
            width=wide,
            no_wrap=not folded,
            overflow="fold" if folded else "ellipsis",
        )
    for cells in zip(*(column.cells for column in columns)):
        table.add_row(*map(Text, cells))
    return table


def starred(text: str, best: bool) -> str:
    """A blank in the star's place keeps the digits of a column under each other."""
    return text + ("*" if best else " ")


def printed(*parts: str | Table, width: int = WIDTH) -> str:
    """Paragraphs and tables one below the other, as text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, emoji=False, markup=False)
    for part in parts:
        console.print(part, width=None if isinstance(part, Table) else min(width, PROSE))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def more_clients(left: int, where: str) -> list[str]:
    """Where the clients are that a table leaves out; nothing where there are none."""
    return [f"{counted(left, 'more client')}{where}."] if left > 0 else []
