# SPDX-License-Identifier: Apache-2.0
"""`idiolect report RUN [RUN ...]`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import Details, Printing, command

COMPARED = Path("compared-runs.html")


@command
def report(
    run: Annotated[list[Path], typer.Argument(help="A run folder; several are compared on one page.")],
    printing: Printing,
    details: Details = False,
    out: Annotated[
        Path | None, typer.Option("--out", help=f"With several runs: the page to write. Default: {COMPARED}.")
    ] = None,
) -> None:
    """Rebuild a run folder's figures and page from its files alone, and print the table; or compare several runs."""
    from idiolect.cli.training import show
    from idiolect.record.errors import RequestError
    from idiolect.record.manifest import blame_folder, check_report_files

    for folder in run:
        check_report_files(folder)  # first: which kind of folder it is, is told by files that may be gone
    if len(run) > 1:
        _compare(run, printing, details, out or COMPARED)
        return
    if out is not None:
        raise RequestError("--out is for the page of several runs; the page of one lies in its folder: leave it out.")
    with blame_folder(run[0]):
        show(run[0], printing, details)


def _compare(runs: list[Path], printing: Printing, details: bool, out: Path) -> None:
    from idiolect.report import report_on_runs

    found = report_on_runs(runs, out)
    if printing.as_json:
        typer.echo(json.dumps(found.facts()))
        return
    typer.echo(found.text(details))
    typer.echo(f"Report: {found.page}")
