# SPDX-License-Identifier: Apache-2.0
"""The folder of a reproduction: expected beside measured, as text and as a page with its curves."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record
from idiolect.record.reproduced import CURVES, NUMBERS, DrawnCurves, Reproduced
from idiolect.report.figure_data import Data
from idiolect.report.folder import read_machine, read_spec
from idiolect.report.html import Frame, facts, fill
from idiolect.report.page import write_page
from idiolect.report.style import page_colour
from idiolect.report.text import LABEL, WIDTH, TextColumn, printed, tables_of
from idiolect.report.wording import NONE, plural

KINDS = {"equal": "=", "at_most": "\N{LESS-THAN OR EQUAL TO}", "at_least": "\N{GREATER-THAN OR EQUAL TO}"}
LARGE = 1_000_000  # bytes of an SVG beyond which the page holds the PNG


@dataclasses.dataclass(frozen=True)
class ReproducedFound:
    """A reproduction's folder in memory."""

    path: Path
    found: Reproduced
    curves: DrawnCurves | None


def read_reproduction(folder: Path) -> ReproducedFound:
    """Read it; RequestError says in one sentence why it cannot be."""
    check_report_files(folder)
    curves = read_record(DrawnCurves, folder / CURVES) if (folder / CURVES).is_file() else None
    return ReproducedFound(folder, read_record(Reproduced, folder / NUMBERS), curves)


def answer(found: Reproduced) -> str:
    """One sentence: how many numbers came out as documented, and which did not."""
    number, changed = len(found.numbers), len(found.changed)
    misses = sum(one.verdict == "misses" for one in found.numbers)
    known = f", {misses} of them known not to hold" if misses else ""
    if not changed:
        return f"{found.title}: all {plural(number, 'number')} came out as documented{known}."
    named = ", ".join(found.changed[:5]) + (" and others" if changed > 5 else "")
    return f"{found.title}: {changed} of {plural(number, 'number')} changed: {named}."


def reproduction_text(found: Reproduced, width: int = WIDTH) -> str:
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


def write_reproduction_page(reproduced: ReproducedFound) -> Path:
    """Write report.html into the folder; return the page's path."""
    found, path = reproduced.found, reproduced.path
    heads = [f"Reproduction {found.slug}", found.paper, found.shows]
    frame = Frame(f"{found.slug}: idiolect reproduce", heads, answer(found), path.name)
    panels = reproduced.curves.panels if reproduced.curves else ()
    parts: dict[str, object] = {"found": found, "kinds": KINDS, "image": _image(path), "panels": panels}
    parts["page_data"] = {"figures": {f"curves-{place}": data for place, data in enumerate(_curves(reproduced))}}
    parts |= {"spec": read_spec(path), "machine": facts(read_machine(path))}
    return write_page(path, fill("reproduce.html", frame, **parts), [])


def _curves(reproduced: ReproducedFound) -> list[Data]:
    """Panels for the script; colours are the page's own where the figure has the same ones."""
    panels = [dataclasses.asdict(panel) for panel in (reproduced.curves.panels if reproduced.curves else ())]
    for panel in panels:
        for line in panel["lines"]:
            line["colour"] = page_colour(line["colour"])
    return [{"kind": "lines"} | panel for panel in panels]


def _image(path: Path) -> str | None:
    """The figure as an image that holds itself: what a folder's file contains never runs as part of the page."""
    # a drawing of many thousand points would make the page slow to open
    drawing, pixels = path / "figure.svg", path / "figure.png"
    if drawing.is_file() and drawing.stat().st_size <= LARGE:
        return "data:image/svg+xml;base64," + base64.b64encode(drawing.read_bytes()).decode("ascii")
    if pixels.is_file():
        return "data:image/png;base64," + base64.b64encode(pixels.read_bytes()).decode("ascii")
    return None
