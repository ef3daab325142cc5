# SPDX-License-Identifier: Apache-2.0
"""How the figures of reproductions look: colours that colour-blind readers can tell apart, quiet axes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

INK, MUTED, LINE = "#1c2330", "#67707d", "#d8dde4"
# Okabe and Ito (2008): told apart by every kind of colour vision
BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#a8548a"

_SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "mathtext.fontset": "dejavusans",
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",  # text stays text
}


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """Our settings for the time of drawing; afterwards matplotlib is as it was."""
    with mpl.rc_context():
        mpl.rcParams.update(mpl.rcParamsDefault)  # a user's own style sheet must not change a figure
        mpl.rcParams.update(_SETTINGS | {"svg.hashsalt": name})
        yield


def blank(width_inches: float, height_inches: float) -> Figure:
    """An empty figure that keeps its labels inside itself; nothing is registered with pyplot."""
    return Figure(figsize=(width_inches, height_inches), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))


def draw_band(
    axes: Axes,
    x: Any,
    values: np.ndarray,
    *,
    band: tuple[float, float] | None = (0.0, 1.0),
    geometric: bool = False,
    floor: float = 0.0,
    **line: Any,
) -> None:
    """The mean over the rows of `values`, and around it the rows between two quantiles; by default all of them.

    `geometric` means on a logarithmic scale; nothing is shown below `floor`. `x` is common to all rows or has a row
    for each, of which the mean is taken.
    """
    place = np.asarray(x) if np.ndim(x) == 1 else np.mean(x, axis=0)
    shown = np.maximum(values, floor) if floor else values
    middle = np.exp(np.log(shown).mean(axis=0)) if geometric else shown.mean(axis=0)
    (drawn,) = axes.plot(place, middle, **line)
    if band is not None and len(values) > 1:
        low, high = np.quantile(shown, band, axis=0)
        axes.fill_between(place, low, high, color=drawn.get_color(), alpha=0.15, linewidth=0)


def lines_of(figure: Figure) -> list[dict[str, Any]]:
    """What the lines of a figure show, panel by panel, for curves.json; lines of fewer than two points are left out."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.get_axes())]
    entries = [pair for found in legends if found for pair in zip(found.legend_handles, found.get_texts())]
    names = {_colour(mark): text.get_text() for mark, text in entries if isinstance(mark, Line2D)}
    panels = []
    for axes in figure.get_axes():
        lines = [line for line in (_line_of(line, names) for line in axes.get_lines()) if len(line["across"]) > 1]
        if lines:
            scales = {"across_log": axes.get_xscale() == "log", "up_log": axes.get_yscale() == "log"}
            words = {"title": axes.get_title(loc="left"), "across": axes.get_xlabel(), "up": axes.get_ylabel()}
            panels.append({key: _without_typesetting(text) for key, text in words.items()} | scales | {"lines": lines})
    return panels


def _line_of(line: Line2D, names: Mapping[str, str]) -> dict[str, Any]:
    across, up = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    known, label, colour = np.isfinite(across) & np.isfinite(up), str(line.get_label()), _colour(line)
    return {
        "label": _without_typesetting(names.get(colour, "") if label.startswith("_") else label),
        "colour": colour,
        "style": str(line.get_linestyle()),
        "across": [float(f"{value:.6g}") for value in across[known]],
        "up": [float(f"{value:.6g}") for value in up[known]],
    }


def _colour(line: Line2D) -> str:
    return str(to_hex(line.get_color()))


def _without_typesetting(text: str) -> str:
    """Without the signs of mathematical typesetting."""
    return text.replace("$", "").replace("\\", "").replace("{", "").replace("}", "")


def to_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a PNG or SVG file, the same bytes every time."""
    target = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(target, format=kind, dpi=200, metadata=metadata)
    return target.getvalue()
