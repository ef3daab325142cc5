# SPDX-License-Identifier: Apache-2.0
"""`idiolect report RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Details, Format, Quiet


def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    as_format: AsFormat = Format.text,
    details: Details = False,
    quiet: Quiet = False,
) -> None:
    """Rebuild a run folder's figures and page from its files alone, and print the table."""
    from idiolect.cli.advise import show_advice
    from idiolect.cli.dial import show_dial
    from idiolect.cli.splits import show_splits
    from idiolect.cli.training import show
    from idiolect.record.manifest import blame_folder, check_report_files
    from idiolect.report.advise_table import is_advice
    from idiolect.report.choice import is_dial
    from idiolect.report.splits_table import is_splits

    check_report_files(run)  # first: which kind of folder it is, is told by files that may be gone
    with blame_folder(run):
        if is_dial(run):
            show_dial(run, as_format, quiet)
        elif is_splits(run):
            show_splits(run, as_format, quiet)
        else:
            (show_advice if is_advice(run) else show)(run, as_format, quiet, details)
