# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.growth_figure [FOLDER]` draws the result of `growth` into docs/assets/growth.svg."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from benchmarks.growth import LABELS
from idiolect.report import style
from idiolect.report.wording import short

ROOT = Path(__file__).parents[1]
ROWS = (  # costs, their power, unit, scale, colour
    ("seconds of a round", "power of time", "ms a round", 1000.0, style.BLUE),
    ("MB above a tiny problem", "power of memory", "MB", 1.0, style.VERMILION),
)


def draw(numbers: dict[str, Any]) -> Figure:
    """Time above memory, a column per factor; dots are measured, lines are the powers."""
    figure = style.blank(9.6, 4.2)
    panels = figure.subplots(len(ROWS), len(LABELS), sharey="row")
    for row, (costs, powers, unit, scale, colour) in zip(panels, ROWS):
        for axes, factor in zip(row, LABELS.values()):
            part = numbers[factor]
            _panel(axes, part["values"], np.array(part[costs]) * scale, part[powers], colour)
        row[0].set_ylabel(unit)
    for axes, factor in zip(panels[0], LABELS.values()):
        axes.set_title(factor)
    return figure


def _panel(axes: Axes, values: list[float], costs: np.ndarray, power: list[float] | None, colour: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 3.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.plot(values, costs, "o", color=colour, markersize=4)
    if power is not None:
        # through the middle of the points, as the fit is
        middle, height = np.exp(np.mean(np.log(values))), np.exp(np.mean(np.log(costs)))
        ends = np.array([min(values), max(values)])
        axes.plot(ends, height * (ends / middle) ** power[0], color=colour, linewidth=1)
        label = f"power {power[0]:.2f}\n({power[1]:.2f} to {power[2]:.2f})"
        axes.text(0.05, 0.95, label, transform=axes.transAxes, va="top", fontsize=7.5, color=style.MUTED)
    axes.set_xticks([min(values), max(values)], [short(value) for value in (min(values), max(values))])
    axes.xaxis.set_minor_locator(NullLocator())


def main(folder: Path) -> None:
    """Read the result, write the figure."""
    numbers = json.loads((folder / "growth.json").read_text(encoding="utf-8"))["numbers"]
    figure = style.drawn("growth", "How cost grows", "Time and memory of a round", lambda: draw(numbers))
    assert figure is not None
    (ROOT / "docs" / "assets" / "growth.svg").write_bytes(figure.svg)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "benchmarks" / "results")
