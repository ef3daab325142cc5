# SPDX-License-Identifier: Apache-2.0
"""`idiolect list`: every name that can be used."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Mapping
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat
from idiolect.cli.output import Format, put


class Kind(enum.StrEnum):
    """What to list."""

    all = "all"
    algorithms = "algorithms"
    objectives = "objectives"
    models = "models"
    data = "data"
    scores = "scores"
    papers = "papers"


def list_names(
    kind: Annotated[Kind, typer.Argument(help="What to list.")] = Kind.all, as_format: AsFormat = Format.text
) -> None:
    """List algorithms, objectives, models, data sets, scores and reproductions."""
    from idiolect.experiments.listing import names

    listed = names(kind)
    heads = ("kind", "name", "about")
    rows = [dict(zip(heads, (group, *entry))) for group, entries in listed.items() for entry in entries.items()]
    put(as_format, lambda: _text(listed), lambda: listed, lambda: rows, heads)


def _text(listed: Mapping[str, Mapping[str, str]]) -> str:
    """Every group with its names, what they are beside them, folded to the width of the terminal."""
    from idiolect.report.text import terminal_width

    lines, room = [], terminal_width()
    for group, entries in listed.items():
        lines.append(group)
        width = max(len(name) for name in entries)
        for name, about in entries.items():
            # at least 30 letters for what it is about, however narrow the terminal: less cannot be read
            lines += textwrap.wrap(
                f"  {name:<{width}}  {about}", max(room, width + 34), subsequent_indent=" " * (width + 4)
            )
    return "\n".join(lines)
