# SPDX-License-Identifier: Apache-2.0
"""`idiolect report RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import Details, Printing, command
from idiolect.cli.output import remark


@command
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    printing: Printing,
    details: Details = False,
    figures: Annotated[
        str | None, typer.Option(help="Also figures for a paper, of pdf, svg and png, with their numbers as CSV.")
    ] = None,
    width: Annotated[
        str, typer.Option(help="Of figures for a paper: column (84 mm), page (174 mm), or such as 120mm or 4.5in.")
    ] = "column",
    log: Annotated[
        list[str] | None, typer.Option(help="Also write the history: tensorboard=DIR or mlflow=URI; repeatable.")
    ] = None,
) -> None:
    """Rebuild a run folder's figures and page from its files alone, and print the table."""
    from idiolect.cli.training import show
    from idiolect.record.manifest import blame_folder, check_report_files

    check_report_files(run)  # first: which kind of folder it is, is told by files that may be gone
    with blame_folder(run):
        if figures is not None:
            from idiolect.report.paper_figures import PLACE, parse_kinds, parse_width, write_paper_figures

            files = write_paper_figures(run, parse_kinds(figures), parse_width(width))
            if not printing.quiet:
                remark(f"{len(files)} files of figures for a paper are in {run / PLACE}.")
        for wanted in log or []:
            from idiolect.report.folder import read
            from idiolect.report.loggers import log_run, parse_log

            kind, target = parse_log(wanted)
            number = log_run(read(run), kind, target)
            if not printing.quiet:
                remark(f"{kind}: {number} curves, of each method and seed, are in {target}.")
        show(run, printing, details)
