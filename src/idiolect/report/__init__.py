# SPDX-License-Identifier: Apache-2.0
"""Run folder -> tables, figures, one HTML page. Never imports jax, never reruns anything."""

from __future__ import annotations

import os
from pathlib import Path

from idiolect.report.clients import ClientTable, client_table
from idiolect.report.folder import FolderError, Run, read
from idiolect.report.table import ComparisonTable, compare

__all__ = [
    "ClientTable",
    "ComparisonTable",
    "FolderError",
    "Run",
    "build_report",
    "client_table",
    "compare",
    "comparison_table",
    "read",
]


def comparison_table(folder: str | os.PathLike[str]) -> ComparisonTable:
    """The methods of a run folder side by side."""
    return compare(read(folder))


def build_report(folder: str | os.PathLike[str]) -> Path:
    """Write figures/ and report.html into a run folder, each file whole or not at all; return the page's path."""
    from idiolect.report.page import write_report  # matplotlib takes a second to import: tables do without it

    return write_report(read(folder))
