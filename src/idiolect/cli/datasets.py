# SPDX-License-Identifier: Apache-2.0
"""`idiolect datasets list | fetch NAME | build NAME --from FILE`: data sets that need files, and how to get them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idiolect.cli import output
from idiolect.cli.options import AsFormat, Quiet
from idiolect.cli.output import Format, put

if TYPE_CHECKING:
    from idiolect.data.catalogue import Dataset

app = typer.Typer(
    help="List, fetch and build the data sets that need files.", no_args_is_help=True, rich_markup_mode=None
)
FACTS = ("title", "clients", "rows", "predicted", "licence", "citation", "home", "files", "size", "remark", "exact")
Name = Annotated[str, typer.Argument(help="A data set of `idiolect datasets list`.")]


@app.command("list")
def list_sets(as_format: AsFormat = Format.text) -> None:
    """List data sets: clients, rows, what is predicted, licence, size, and where their files are."""
    from idiolect.data.catalogue import DATASETS
    from idiolect.data.dataset_files import whereabouts
    from idiolect.report.text import TextColumn, printed, tables_of, terminal_width

    found = {
        name: {key: getattr(row, key) for key in (*FACTS, "originals")} | {"where": whereabouts(row)}
        for name, row in DATASETS.items()
    }

    def text() -> str:
        heads = ("name", "clients", "rows", "predicted", "licence", "size", "where")
        rows = [
            (*(row.name, row.clients, str(row.rows), row.predicted, row.licence), row.shown_size, whereabouts(row))
            for row in DATASETS.values()
        ]
        columns = [
            TextColumn(head, cells, rank=int(head in ("predicted", "licence")), words=head not in ("rows", "size"))
            for head, cells in zip(heads, zip(*rows))
        ]
        width = terminal_width()
        return printed(*tables_of(columns, width, gap=2), width=width)

    put(as_format, text, lambda: found, lambda: [{"name": name} | facts for name, facts in found.items()])


@app.command()
def fetch(name: Name, quiet: Quiet = False, as_format: AsFormat = Format.text) -> None:
    """Download a data set from its home, check it, and convert it into the folder of data sets."""
    from idiolect.data.catalogue import find_dataset
    from idiolect.data.dataset_files import check_files, datasets_folder, whereabouts
    from idiolect.data.fetching import fetch as get

    row = find_dataset(name)
    check_files(row)  # a file of the user's own is not replaced
    # fetching twice would cost the home of the data, and could bring another version of it
    place = whereabouts(row)
    if place != "not here":
        _put_standing(row, "here already", as_format)
        return
    if not quiet:
        output.remark(f"{row.title}. Licence: {row.licence}. Cite: {row.citation}")
    with _bar(quiet) as report:
        remarks = get(row, datasets_folder(), report)
    _put_standing(row, "ready", as_format, () if quiet else remarks)


@app.command()
def build(
    name: Name,
    given: Annotated[
        Path, typer.Option("--from", help="The original file, or the folder that holds the originals by their names.")
    ],
    quiet: Quiet = False,
    as_format: AsFormat = Format.text,
) -> None:
    """Convert originals that you have into the folder of data sets."""
    from idiolect.data.catalogue import find_dataset
    from idiolect.data.dataset_files import datasets_folder
    from idiolect.data.fetching import build as convert

    row = find_dataset(name)
    remarks = convert(row, given, datasets_folder())
    _put_standing(row, "ready", as_format, () if quiet else remarks)


def _put_standing(row: Dataset, standing: str, as_format: Format, remarks: tuple[str, ...] = ()) -> None:
    from idiolect.data.dataset_files import whereabouts

    for remark in remarks:
        output.remark(remark)
    facts = {"name": row.name, "is": standing, "where": whereabouts(row)}
    put(as_format, lambda: f"{row.name} is {standing}: {facts['where']}.", lambda: facts, lambda: [facts])


@contextlib.contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar in bytes on standard error, one file after the other; silent where output is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(file=output.terminal())
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as progress:
        task = progress.add_task("connecting", total=None)
        yield lambda name, done, total: progress.update(task, description=name, completed=done, total=total)
