# SPDX-License-Identifier: Apache-2.0
"""What `compare --splits` does once it has a spec: train split after split, then show what they say together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from idiolect.cli import output
from idiolect.cli.options import Format

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec


def split_and_show(spec: Spec, folder: Path, splits: int, resume: bool, as_format: Format, quiet: bool) -> None:
    """Run the spec on every split and print the means over splits; Ctrl-C says how to go on."""
    from idiolect.cli.training import Bar
    from idiolect.core.checks import DivergedError
    from idiolect.experiments.compilation import enable_cache
    from idiolect.experiments.splits import run_splits

    enable_cache(None if quiet else output.remark)
    with Bar(quiet or not sys.stderr.isatty()) as bar:
        remark = None if quiet else bar.say
        try:
            found = run_splits(
                spec, folder, splits, resume=resume, progress=bar.update, say=remark, started=bar.next_split
            )
        except KeyboardInterrupt:
            if remark is not None:
                done = len(list(folder.glob("split-*/done")))
                remark(f"{done} of {splits} splits are finished in {folder}.")
            raise
    show_splits(folder, as_format, quiet)
    if all(line.diverged == splits for line in found.methods):
        raise DivergedError("Every method diverged in every split. Use a smaller step size.")


def show_splits(folder: Path, as_format: Format, quiet: bool) -> None:
    """Build the page of finished splits and print their table."""
    from idiolect.report.splits_page import build_splits_report
    from idiolect.report.splits_table import read_splits, splits_text

    page, found = build_splits_report(folder), read_splits(folder)
    if as_format is Format.json:
        files = {"folder": str(folder), "report": str(page)}
        typer.echo(json.dumps(found.as_dict() | files))
        return
    typer.echo(splits_text(found))
    if not quiet:
        typer.echo(f"Folder: {folder}    Report: {page}")
