# SPDX-License-Identifier: Apache-2.0
"""`idiolect reproduce SLUG`: a paper's figure or table, with expected and measured numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect.cli.bar import Bar
from idiolect.cli.options import Writing, command, free_folder
from idiolect.cli.output import put
from idiolect.record import standing
from idiolect.record.errors import RequestError

EVERY = "all"  # the slug that stands for all of them


@command
def reproduce(
    slug: Annotated[str, typer.Argument(help="What to reproduce (`idiolect list papers`), or `all`.")],
    writing: Writing,
    quick: bool = typer.Option(False, "--quick", help="The size for a laptop."),
    gpu: bool = typer.Option(False, "--gpu", help="The size for one large GPU."),
    full: bool = typer.Option(False, "--full", help="The paper's rounds and networks."),
    resume: bool = typer.Option(False, "--resume", help="Go on with an unfinished folder: a table's cells, or `all`."),
    cells: Path | None = typer.Option(None, help="Where a table's finished cells are kept. Default: OUT/cells."),
    jobs: int | None = typer.Option(
        None, help="With `all`: how many at once. Default: one per core; with --gpu or --full, one."
    ),
) -> None:
    """Reproduce a published result: prints expected, measured, tolerance and verdict; exits 1 on a change."""
    from idiolect.experiments.compilation import enable_cache
    from idiolect.report import Kind, build_report, kind_of

    enable_cache()
    every = slug == EVERY
    sizes = [name for name, asked in (("quick", quick), ("gpu", gpu), ("full", full)) if asked]
    _refuse_options(slug, bool(writing.overrides) or cells is not None, jobs, sizes)
    usual = Path("runs") / slug
    folder = writing.out or (usual if every and resume else free_folder(usual))
    if every:
        outcome = _reproduce_all(folder, writing.quiet, sizes=sizes, resume=resume, jobs=jobs)
    else:
        options = {"overrides": writing.overrides, "sizes": sizes, "resume": resume, "cells": cells}
        outcome = _reproduce_one(slug, folder, writing.quiet, **options)
    facts = outcome.as_dict() | {"folder": str(folder)}
    page = f"    Report: {build_report(folder)}" if kind_of(folder) is Kind.reproduction else ""
    put(
        writing.as_format,
        lambda: f"{outcome.to_text()}\nNumbers and figure{'s' * every}: {folder}{page}",
        lambda: facts,
        lambda: facts["reproductions" if every else "numbers"],
    )
    raise typer.Exit(1 if outcome.changed else 0)


def _refuse_options(slug: str, for_one: bool, jobs: int | None, sizes: list[str]) -> None:
    """RequestError for options of one reproduction beside `all`, the other way round, and what `all` cannot take."""
    if slug == EVERY and for_one:
        raise RequestError("--set and --cells are for one reproduction; name its slug instead of 'all'.")
    if slug != EVERY and jobs is not None:
        raise RequestError(f"--jobs is for several reproductions at once, got one, {slug!r}; leave it out.")
    if jobs is not None and jobs < 1:
        raise RequestError(f"--jobs must be at least 1, got {jobs}; leave it out for one per core.")
    if slug == EVERY and len(sizes) > 1:  # else each slug would refuse them, one after another
        raise RequestError(f"all takes one size, got {' and '.join(f'--{name}' for name in sizes)}; name one.")


def _reproduce_one(slug: str, folder: Path, quiet: bool, **options: object) -> Any:
    from idiolect.experiments.reproductions import reproductions

    with reproductions("runner") as papers, Bar(quiet) as bar:
        return papers.reproduce(slug, folder, progress=bar.update, **options)


def _reproduce_all(folder: Path, quiet: bool, sizes: list[str], jobs: int | None, resume: bool) -> Any:
    from idiolect.experiments.reproductions import reproductions

    # larger sizes start processes of their own
    jobs = jobs or (1 if {"gpu", "full"} & set(sizes) else os.cpu_count() or 1)
    way_on = f"`idiolect reproduce all --out {folder} --resume` goes on from there"
    with reproductions("everything") as papers, Bar(quiet) as bar, standing.at(folder, way_on):
        return papers.reproduce_all(folder, bar.update, sizes=sizes, resume=resume, jobs=jobs)
