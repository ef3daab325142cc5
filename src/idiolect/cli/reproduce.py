# SPDX-License-Identifier: Apache-2.0
"""`idiolect reproduce SLUG`: a paper's figure or table, with expected and measured numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format, Out, Quiet, Set, free_folder


def reproduce(
    slug: Annotated[str, typer.Argument(help="What to reproduce (`idiolect list papers`).")],
    out: Out = None,
    override: Set = None,
    as_format: AsFormat = Format.text,
    quiet: Quiet = False,
) -> None:
    """Reproduce a published result: prints expected, measured, tolerance and verdict; exits 1 on a miss."""
    from idiolect.cli.training import Bar
    from idiolect.experiments.compilation import enable_cache
    from idiolect.experiments.reproduce import reproduce as run

    enable_cache()
    folder = out or free_folder(Path("runs") / slug)
    with Bar(quiet or not sys.stderr.isatty()) as bar:
        outcome = run(slug, folder, progress=bar.update, overrides=override or [])
    if as_format is Format.json:
        typer.echo(json.dumps(outcome.as_dict() | {"folder": str(folder)}))
    else:
        typer.echo(outcome.to_text())
        typer.echo(f"Numbers and figure: {folder}")
    raise typer.Exit(0 if outcome.passed else 1)
