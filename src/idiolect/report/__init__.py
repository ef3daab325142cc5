# SPDX-License-Identifier: Apache-2.0
"""Run folder -> tables, figures, one HTML page. Never imports jax, never reruns anything."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from idiolect.report.clients import ClientTable, client_table
from idiolect.report.folder import FolderError, Kind, Run, kind_of, read
from idiolect.report.reported import Reported
from idiolect.report.table import ComparisonTable, compare

__all__ = [
    "ClientTable",
    "ComparisonTable",
    "FolderError",
    "Kind",
    "Reported",
    "Run",
    "build_report",
    "client_table",
    "compare",
    "comparison_table",
    "kind_of",
    "read",
    "report_on",
    "report_on_runs",
]

# it would report on standard error where its caches stand; whoever sets up logging hears of it all the same
logging.getLogger("matplotlib").addHandler(logging.NullHandler())


def comparison_table(folder: str | os.PathLike[str]) -> ComparisonTable:
    """The methods of a run folder side by side."""
    return compare(read(folder))


def build_report(folder: str | os.PathLike[str]) -> Path:
    """Write figures/ and report.html into a folder, each file whole or not at all; return the page's path."""
    return report_on(folder).page


def report_on(folder: str | os.PathLike[str]) -> Reported:
    """Build the page of a finished folder, whichever command wrote it."""
    # matplotlib takes a second to import, and tables do without it: pages are imported where they are written
    from idiolect.report import page, reproduced

    makers = {
        Kind.run: page.report_run,
        Kind.dial: page.report_dial,
        Kind.splits: page.report_splits,
        Kind.advice: page.report_advice,
        Kind.reproduction: reproduced.report_reproduction,
    }
    return makers[kind_of(folder)](Path(folder))


def report_on_runs(folders: Sequence[str | os.PathLike[str]], file: Path) -> Reported:
    """Build one page that compares several finished runs, and write it to `file`."""
    from idiolect.report import runs

    return runs.report_runs(folders, file)
