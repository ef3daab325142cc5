# SPDX-License-Identifier: Apache-2.0
"""The folder of a reproduction: expected beside measured, as text and as a page with its curves."""

from __future__ import annotations

import base64
import dataclasses
import math
from pathlib import Path

from idiolect.record.codec import to_json
from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record
from idiolect.record.reproduced import CURVES, NUMBERS, DrawnCurves, Reproduced
from idiolect.record.words import counted
from idiolect.report.figure_data import Data
from idiolect.report.html import Frame
from idiolect.report.page import files_of, write_other_page
from idiolect.report.reported import Reported
from idiolect.report.style import page_colour
from idiolect.report.text import LABEL, TextColumn, printed, tables_of
from idiolect.report.wording import NONE

KINDS = {"equal": "=", "at_most": "\N{LESS-THAN OR EQUAL TO}", "at_least": "\N{GREATER-THAN OR EQUAL TO}"}
LARGE = 1_000_000  # bytes of an SVG beyond which the page holds the PNG: many thousand points make it slow to open


def report_reproduction(folder: Path) -> Reported:
    """Write report.html into the folder; RequestError says in one sentence why it cannot be read."""
    check_report_files(folder)
    panels = read_record(DrawnCurves, folder / CURVES).panels if (folder / CURVES).is_file() else ()
    found = read_record(Reproduced, folder / NUMBERS)
    heads = [f"Reproduction {found.slug}", found.paper, found.shows]
    frame = Frame(f"{found.slug}: idiolect reproduce", heads, answer(found), folder.name)
    curves: dict[str, Data] = {}
    for place, panel in enumerate(panels):
        # colours are the page's own where the figure has the same ones
        lines = [dataclasses.asdict(line) | {"colour": page_colour(line.colour)} for line in panel.lines]
        curves[f"curves-{place}"] = {"kind": "lines"} | dataclasses.asdict(panel) | {"lines": lines}
    parts = {"found": found, "kinds": KINDS, "image": _image(folder), "panels": panels}
    page = write_other_page(folder, "reproduce.html", frame, [], curves, **parts)
    return Reported(
        page,
        lambda details, width: reproduction_text(found, width),
        lambda: to_json(found) | files_of(page),
        lambda: to_json(found.numbers),
    )


def answer(found: Reproduced) -> str:
    """One sentence: how many numbers came out as documented, and which did not."""
    number, changed = len(found.numbers), len(found.changed)
    misses = sum(one.verdict == "misses" for one in found.numbers)
    known = f", {misses} of them known not to hold" if misses else ""
    if not changed:
        return f"{found.title}: all {counted(number, 'number')} came out as documented{known}."
    named = ", ".join(found.changed[:5]) + (" and others" if changed > 5 else "")
    return f"{found.title}: {changed} of {counted(number, 'number')} changed: {named}."


def reproduction_text(found: Reproduced, width: int) -> str:
    """The answer, then one line per number."""
    numbers = found.numbers
    columns = [
        TextColumn("number", [one.name for one in numbers], words=True, least=LABEL),
        TextColumn("", [KINDS[one.kind] for one in numbers]),
        TextColumn("expected", [f"{one.expected:.6g}" for one in numbers]),
        TextColumn("measured", [NONE if one.measured is None else f"{one.measured:.6g}" for one in numbers]),
        TextColumn("verdict", [one.verdict for one in numbers], words=True),
        TextColumn("origin", [one.origin for one in numbers], rank=1, words=True),
    ]
    return printed(answer(found), "", *tables_of(columns, width), width=width)


def _image(folder: Path) -> str | None:
    """The figure as an image that holds itself: what a folder's file contains never runs as part of the page."""
    for name, kind, most in (("figure.svg", "svg+xml", LARGE), ("figure.png", "png", math.inf)):
        file = folder / name
        if file.is_file() and file.stat().st_size <= most:
            return f"data:image/{kind};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"
    return None
