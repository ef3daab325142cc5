# SPDX-License-Identifier: Apache-2.0
"""`idiolect report RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format, Quiet


def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    as_format: AsFormat = Format.text,
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
    kinds = ((is_dial, show_dial), (is_advice, show_advice), (is_splits, show_splits))
    show_it = next((show_it for holds, show_it in kinds if holds(run)), show)
    with blame_folder(run):
        show_it(run, as_format, quiet)
