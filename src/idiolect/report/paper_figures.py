# SPDX-License-Identifier: Apache-2.0
"""Figures for papers: as wide as a column or a page, fonts embedded, and every number they show as CSV beside them."""

from __future__ import annotations

import csv
import functools
import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from idiolect.record.errors import RequestError
from idiolect.record.files import write_whole
from idiolect.record.manifest import write_page_manifest
from idiolect.report import advise_figure, choice_figure
from idiolect.report.advise_table import read_advice
from idiolect.report.choice_table import read_choices, read_dial
from idiolect.report.figure_numbers import HEADS, numbers_of
from idiolect.report.figures import FIGURES
from idiolect.report.folder import FolderError, Kind, kind_of, read
from idiolect.report.style import drawing, lay_out, to_bytes

KINDS = ("pdf", "svg", "png")
MILLIMETRES = {"column": 84.0, "page": 174.0}  # of most journals with two columns
LEAST, MOST = 40.0, 400.0  # millimetres
INCH = 25.4
PLACE = "figures/paper"
Draw = Callable[[], Figure | None]


def parse_kinds(text: str) -> tuple[str, ...]:
    """'pdf,svg' as a tuple; RequestError for another kind of file."""
    kinds = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    if not set(kinds) <= set(KINDS):
        raise RequestError(f"--figures must be of {', '.join(KINDS)}, with commas between them, got {text!r}.")
    return kinds


def parse_width(text: str) -> float:
    """Inches of 'column', 'page', '120mm' or '4.5in'; RequestError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(mm|in)", text.strip())
    wide = MILLIMETRES.get(text) or (float(found[1]) * (INCH if found[2] == "in" else 1) if found else None)
    if wide is None or not LEAST <= wide <= MOST:
        ways = f"{', '.join(MILLIMETRES)}, or a width from {LEAST:g}mm to {MOST:g}mm such as 120mm or 4.5in"
        raise RequestError(f"--width must be {ways}, got {text!r}.")
    return wide / INCH


def write_paper_figures(folder: str | os.PathLike[str], kinds: Sequence[str], width_inches: float) -> list[Path]:
    """Every figure of the folder, in each of the kinds and as CSV, in figures/paper; returns the files."""
    path = Path(folder)
    files: list[Path] = []
    for name, draw in _figures_of(path).items():
        with drawing(name, width_inches):
            figure = draw()
            if figure is None:
                continue
            lay_out(figure)
            contents = {kind: to_bytes(figure, kind) for kind in kinds}
            table = io.StringIO()
            csv.writer(table, lineterminator="\n").writerows([HEADS, *numbers_of(figure)])
            contents["csv"] = table.getvalue().encode("utf-8")
        for kind, content in contents.items():
            files.append(path / PLACE / f"{name}.{kind}")
            files[-1].parent.mkdir(parents=True, exist_ok=True)
            write_whole(files[-1], content)
    if not files:
        raise FolderError(f"{path} has nothing to draw: no figure for a paper was written; report on another run.")
    write_page_manifest(path)
    return files


def _figures_of(path: Path) -> dict[str, Draw]:
    """The figures of a folder by the names of their files, not drawn yet."""
    kind = kind_of(path)
    if kind is Kind.dial:
        return {"dial": functools.partial(choice_figure.draw, read_dial(path))}
    if kind is Kind.advice:
        return {"map": functools.partial(advise_figure.draw, read_advice(path))}
    if kind is Kind.splits:
        raise FolderError(f"{path} holds several splits, which have no figure in common; name one, such as split-01.")
    run = read(path)
    found: dict[str, Draw] = {name: functools.partial(draw, run) for name, _, _, draw, _ in FIGURES}
    for place, choice in enumerate(read_choices(path)):
        found[f"choice-{place}"] = functools.partial(choice_figure.draw, choice)
    return found
