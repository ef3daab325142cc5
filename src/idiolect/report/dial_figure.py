# SPDX-License-Identifier: Apache-2.0
"""Score against the dial, with every client's choice marked, above what each stretch of the path cost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from idiolect.report.dial_table import Dial
from idiolect.report.folder import FolderError
from idiolect.report.style import INK, MUTED, PAPER, blank, drawing, lay_out, short, to_bytes

_MEAN, _CHOICE, _BARS = "#0072b2", "#d55e00", "#56b4e9"
_ROOMY = 7  # values that leave room for a second line
_NAMED = 12  # clients that can be named at the edge without a crowd


def write_figure(dial: Dial) -> Path:
    """Draw figures/dial.png and dial.svg into the dial's folder; return the PNG's path."""
    with drawing("dial"):
        figure = lay_out(draw(dial))
        files = {kind: to_bytes(figure, kind) for kind in ("png", "svg")}
    folder = dial.path / "figures"
    try:
        folder.mkdir(exist_ok=True)
        for kind, content in files.items():
            unfinished = folder / f".dial.{kind}.unfinished"
            unfinished.write_bytes(content)
            os.replace(unfinished, folder / f"dial.{kind}")
    except OSError as error:
        raise FolderError(
            f"The figure must be written into {str(dial.path)!r}, which refused it ({error.strerror}); copy the run "
            "to a folder you may write to."
        ) from error
    return folder / "dial.png"


def draw(dial: Dial) -> Figure:
    """Values stand in the order of the path, evenly: what lies between 0.1 and 0 is as much a step as 1 to 0.5."""
    figure = blank(8.2, 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.15))
    _scores(above, dial)
    _prices(below, dial)
    below.set_xticks(range(len(dial.values)), _ticks(dial))
    below.set_xlabel(f"{dial.found['setting']}, in the order of the path")
    below.set_xlim(-0.45, len(dial.values) - 0.55)
    _legend(figure, dial)
    return figure


def _ticks(dial: Dial) -> list[str]:
    """Every value, and the gradients of its stretch where there is room."""
    roomy = len(dial.values) <= _ROOMY
    return [
        f"{entry['value']:g}" + (f"\n{short(entry['spent']['gradients'])} gradients" if roomy else "")
        for entry in dial.found["values"]
    ]


def _scores(axes: Axes, dial: Dial) -> None:
    found, scale = dial.found, dial.words.scale
    names, places = found["clients"], np.arange(len(dial.values))
    rows: dict[str, list[dict[str, float]]] = {}
    for row in dial.clients.to_pylist():
        rows.setdefault(row["client"], []).append(row)
    faint = max(0.15, min(0.7, 12 / max(len(names), 1)))
    for order, name in enumerate(names):
        scores = np.array([np.nan if row["test"] is None else row["test"] for row in rows[name]], float) * scale
        axes.plot(places, scores, color=MUTED, linewidth=0.8, alpha=faint, zorder=2)
        chosen = next(place for place, row in enumerate(rows[name]) if row["chosen"])
        # many clients choose alike: side by side they do not hide one another
        aside = 0.0 if len(names) <= _NAMED else 0.3 * (order / (len(names) - 1) - 0.5)
        mark: dict[str, Any] = {"s": 30 if len(names) <= 60 else 12, "linewidths": 0.8, "edgecolors": PAPER}
        axes.scatter(chosen + aside, scores[chosen], color=_CHOICE, zorder=5, **mark)
        if len(names) <= _NAMED and np.isfinite(scores[-1]):
            away: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(name, (places[-1], scores[-1]), color=MUTED, fontsize=7, **away)
    for part, style, width in (("mean", "-", 2.4), ("worst_decile", (0, (4, 2)), 1.4)):
        line = _numbers([entry["test"][part] for entry in found["values"]]) * scale
        axes.plot(places, line, color=_MEAN, linestyle=style, linewidth=width, marker="o", markersize=3.5, zorder=4)
        own = _numbers([found["chosen"]["test"][part]])[0] * scale
        axes.axhline(own, color=_CHOICE, linestyle=style, linewidth=width - 0.8, zorder=3)
    axes.set_ylabel(f"test {dial.words.title}")
    axes.tick_params(labelbottom=False)


def _prices(axes: Axes, dial: Dial) -> None:
    """Bars: the stretch; line: all so far."""
    entries, places = dial.found["values"], np.arange(len(dial.values))
    spent = np.array([entry["spent"]["total_bytes"] for entry in entries], float)
    so_far = np.array([entry["spent_so_far"]["total_bytes"] for entry in entries], float)
    factor, unit = (1e-6, "MB") if so_far.max(initial=0) >= 1e6 else (1e-3, "kB")
    axes.bar(places, spent * factor, width=0.5, color=_BARS, zorder=3)
    axes.plot(places, so_far * factor, color=INK, linewidth=1.2, marker="o", markersize=3.5, zorder=4)
    axes.set_ylabel(unit)
    axes.set_ylim(0, 1.15 * max(float(so_far.max(initial=0)) * factor, 1e-9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def _legend(figure: Figure, dial: Dial) -> None:
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5}
    entries = [
        Line2D([], [], color=_MEAN, linewidth=2.4, label="one value for all: mean over clients"),
        Line2D([], [], color=_MEAN, linewidth=1.4, linestyle=(0, (4, 2)), label="their worst tenth"),
        Line2D([], [], color=MUTED, linewidth=0.8, label="each client"),
        Line2D([], [], color=_CHOICE, linewidth=1.6, label="own choice: mean (dashed: worst tenth)"),
        Line2D([], [], color=_CHOICE, label="its choice on validation rows", **dot),
        Line2D([], [], color=_BARS, linewidth=6, label="bytes of the stretch (line: so far)"),
    ]
    figure.legend(handles=entries, loc="outside upper left", ncols=3, handlelength=1.8, columnspacing=1.4)


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], float)
