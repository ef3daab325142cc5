# SPDX-License-Identifier: Apache-2.0
"""`idiolect report RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import Details, Printing, command


@command
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")], printing: Printing, details: Details = False
) -> None:
    """Rebuild a run folder's figures and page from its files alone, and print the table."""
    from idiolect.cli.training import show
    from idiolect.record.manifest import blame_folder, check_report_files

    check_report_files(run)  # first: which kind of folder it is, is told by files that may be gone
    with blame_folder(run):
        show(run, printing, details)
