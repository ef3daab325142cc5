# SPDX-License-Identifier: Apache-2.0
"""`idiolect report RUN [RUN ...]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import Details, Printing, command
from idiolect.cli.output import put
from idiolect.cli.training import show
from idiolect.record.errors import RequestError

COMPARED = Path("compared-runs.html")


@command
def report(
    run: Annotated[list[Path], typer.Argument(help="A run folder; several are compared on one page.")],
    printing: Printing,
    details: Details = False,
    figures: str | None = typer.Option(
        None, help="Also figures for a paper, of pdf, svg and png, with their numbers as CSV."
    ),
    width: str | None = typer.Option(
        None, help="Of figures for a paper: column (84 mm), page (174 mm), or such as 120mm or 4.5in. Default: column."
    ),
    log: list[str] | None = typer.Option(
        None, help="Also write the history: tensorboard=DIR or mlflow=URI; repeatable."
    ),
    out: Path | None = typer.Option(None, help=f"With several runs: the page to write. Default: {COMPARED}."),
) -> None:
    """Rebuild a run folder's figures and page from its files alone, and print the table; or compare several runs."""
    from idiolect.record.manifest import blame_folder, check_report_files

    if width is not None and figures is None:
        raise RequestError(
            f"--width is that of --figures, got {width!r} without them; add --figures pdf, or leave it out."
        )
    for folder in run:
        check_report_files(folder)  # first: files that may be gone show which kind of folder it is
    if len(run) > 1:
        if figures is not None or log:
            raise RequestError("--figures and --log are for one run; name one, or leave them out.")
        _compare(run, printing, out or COMPARED)
        return
    if out is not None:
        raise RequestError("--out is for the page of several runs; the page of one lies in its folder: leave it out.")
    # without a manifest a damaged file shows as any error at all: then the folder is at fault, not the program
    with blame_folder(run[0]):
        if figures is not None:
            _draw_for_paper(run[0], figures, width or "column", printing)
        for wanted in log or []:
            _log(run[0], wanted, printing)
        show(run[0], printing, details)


def _compare(runs: list[Path], printing: Printing, out: Path) -> None:
    from idiolect.report import report_on_runs
    from idiolect.report.text import terminal_width

    found = report_on_runs(runs, out)
    put(
        printing.as_format,
        lambda: found.text(False, terminal_width()).rstrip("\n") + f"\n\nReport: {found.page}",
        found.facts,
        found.rows,
    )


def _draw_for_paper(run: Path, figures: str, width: str, printing: Printing) -> None:
    from idiolect.report.paper_figures import PLACE, parse_kinds, parse_width, write_paper_figures

    files = write_paper_figures(run, parse_kinds(figures), parse_width(width))
    printing.say(f"{len(files)} files of figures for a paper are in {run / PLACE}.")


def _log(run: Path, wanted: str, printing: Printing) -> None:
    from idiolect.report.folder import read
    from idiolect.report.loggers import log_run, parse_log

    kind, target = parse_log(wanted)
    number = log_run(read(run), kind, target)
    printing.say(f"{kind}: {number} curves, of each method and seed, are in {target}.")
