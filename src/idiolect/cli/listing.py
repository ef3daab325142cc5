# SPDX-License-Identifier: Apache-2.0
"""`idiolect list`: every name that can be used."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format


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
    if as_format is Format.json:
        typer.echo(json.dumps(listed))
        return
    for group, entries in listed.items():
        typer.echo(group)
        width = max(len(name) for name in entries)
        for name, summary in entries.items():
            typer.echo(f"  {name:<{width}}  {summary}")
