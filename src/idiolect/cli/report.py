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
    from idiolect.report.advise_table import is_advice
    from idiolect.report.choice import is_dial
    from idiolect.report.splits_table import is_splits

    kinds = ((is_dial, show_dial), (is_advice, show_advice), (is_splits, show_splits))
    next((show_it for holds, show_it in kinds if holds(run)), show)(run, as_format, quiet)
