# SPDX-License-Identifier: Apache-2.0
"""`idiolect reproduce SLUG`: a paper's figure or table, with expected and measured numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format, Quiet, ReproduceOut, Set, free_folder


def reproduce(
    slug: Annotated[str, typer.Argument(help="What to reproduce (`idiolect list papers`).")],
    out: ReproduceOut = None,
    override: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="The size for a laptop.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="The size for one large GPU.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's rounds and networks.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished folder: a table's cells.")] = False,
    cells: Annotated[
        Path | None, typer.Option("--cells", help="Where a table's finished cells are kept. Default: OUT/cells.")
    ] = None,
    as_format: AsFormat = Format.text,
    quiet: Quiet = False,
) -> None:
    """Reproduce a published result: prints expected, measured, tolerance and verdict; exits 1 on a miss."""
    from idiolect.cli.training import Bar
    from idiolect.experiments.compilation import enable_cache
    from idiolect.experiments.reproduce import reproduce as run

    enable_cache()
    sizes = [name for name, asked in (("quick", quick), ("gpu", gpu), ("full", full)) if asked]
    override = [*_sized(slug, sizes), *(override or [])]
    folder = out or free_folder(Path("runs") / slug)
    with Bar(quiet or not sys.stderr.isatty()) as bar:
        outcome = run(slug, folder, progress=bar.update, overrides=override, resume=resume, cells=cells)
    if as_format is Format.json:
        typer.echo(json.dumps(outcome.as_dict() | {"folder": str(folder)}))
    else:
        typer.echo(outcome.to_text())
        typer.echo(f"Numbers and figure: {folder}")
    raise typer.Exit(0 if outcome.passed else 1)


def _sized(slug: str, asked: list[str]) -> list[str]:
    """The override that chooses a size; refuses one that the experiment does not have."""
    from idiolect.core.checks import RequestError
    from idiolect.experiments.reproduce import load_spec

    if not asked:
        return []
    spec = load_spec(slug)
    sizes = [name for name in ("quick", "gpu", "full") if name in spec and "size" in spec]
    if len(asked) > 1 or asked[0] not in sizes:
        given = " and ".join(f"--{name}" for name in asked)
        had = f"sizes: {', '.join(f'--{name}' for name in sizes)}; name one" if sizes else "one size only; leave it out"
        raise RequestError(f"{slug} has {had}, got {given}.")
    return [f'size = "{asked[0]}"']
