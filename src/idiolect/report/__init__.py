# SPDX-License-Identifier: Apache-2.0
"""Run folder -> tables, figures, one HTML page. Never imports jax, never reruns anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from idiolect.record.codec import to_json
from idiolect.report.advise_table import advice_text, read_advice
from idiolect.report.choice import read_choices, read_dial
from idiolect.report.choice_table import choice_text
from idiolect.report.clients import ClientTable, client_table
from idiolect.report.folder import FolderError, Kind, Run, kind_of, read
from idiolect.report.splits_table import read_splits, splits_text
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


class Reported(NamedTuple):
    """A finished folder of any command, as people and programs read it."""

    page: Path
    text: Callable[[bool, int], str]  # with or without details, for a terminal of that width
    facts: Callable[[], dict[str, object]]  # for JSON
    rows: Callable[[], list[dict[str, object]]]  # for CSV: methods, values of a dial, clients of advice


def comparison_table(folder: str | os.PathLike[str]) -> ComparisonTable:
    """The methods of a run folder side by side."""
    return compare(read(folder))


def build_report(folder: str | os.PathLike[str]) -> Path:
    """Write figures/ and report.html into a folder, each file whole or not at all; return the page's path."""
    return report_on(folder).page


def report_on(folder: str | os.PathLike[str]) -> Reported:
    """Build the page of a finished folder, whichever command wrote it."""
    makers = {
        Kind.run: _run,
        Kind.dial: _dial,
        Kind.splits: _splits,
        Kind.advice: _advice,
        Kind.reproduction: _reproduction,
    }
    return makers[kind_of(folder)](Path(folder))


def report_on_runs(folders: Sequence[str | os.PathLike[str]], file: Path) -> Reported:
    """Build one page that compares several finished runs, and write it to `file`."""
    from idiolect.report.runs import read_runs, runs_facts, runs_rows, runs_text, write_runs_page

    found = read_runs(folders)
    page = write_runs_page(found, file)
    return Reported(
        page,
        lambda details, width: runs_text(found, width),
        lambda: runs_facts(found) | {"report": str(page)},
        lambda: runs_rows(found),
    )


# matplotlib takes a second to import, and tables do without it: pages are imported where they are written


def _dial(folder: Path) -> Reported:
    from idiolect.report.other_pages import write_dial_page

    choice = read_dial(folder)
    page = write_dial_page(choice)
    return Reported(
        page,
        lambda details, width: choice_text(choice, width),
        lambda: to_json(choice.found) | _files(folder, page, "dial"),
        lambda: to_json(choice.found.values),
    )


def _splits(folder: Path) -> Reported:
    from idiolect.report.other_pages import write_splits_page

    splits = read_splits(folder)
    page = write_splits_page(splits)
    return Reported(
        page,
        lambda details, width: splits_text(splits, width),
        lambda: splits.as_dict() | _files(folder, page),
        lambda: to_json(splits.found.methods),
    )


def _advice(folder: Path) -> Reported:
    from idiolect.report.other_pages import write_advice_page

    advised = read_advice(folder)
    page = write_advice_page(advised)
    return Reported(
        page,
        lambda details, width: advice_text(advised, details, width),
        lambda: to_json(advised.found) | _files(folder, page, "map"),
        advised.rows,
    )


def _reproduction(folder: Path) -> Reported:
    from idiolect.report.reproduced import read_reproduction, reproduction_text, write_reproduction_page

    reproduced = read_reproduction(folder)
    page = write_reproduction_page(reproduced)
    return Reported(
        page,
        lambda details, width: reproduction_text(reproduced.found, width),
        lambda: to_json(reproduced.found) | _files(folder, page),
        lambda: to_json(reproduced.found.numbers),
    )


def _run(folder: Path) -> Reported:
    from idiolect.report.page import write_run_page

    run, choices = read(folder), read_choices(folder)
    page, table = write_run_page(run, choices), compare(run)
    chosen = {"choices": to_json([choice.found for choice in choices])} if choices else {}
    return Reported(
        page,
        lambda details, width: "\n".join(
            [table.to_text(width, details), *(choice_text(one, width) for one in choices)]
        ),
        lambda: table.as_dict() | chosen | _files(folder, page),
        lambda: [row.as_dict() for row in table.rows],
    )


def _files(folder: Path, page: Path, figure: str | None = None) -> dict[str, str]:
    drawn = {"figure": str(folder / "figures" / f"{figure}.png")} if figure else {}
    return {"folder": str(folder)} | drawn | {"report": str(page)}
