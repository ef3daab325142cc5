# SPDX-License-Identifier: Apache-2.0
"""The figures of the synthetic reproductions of Unified 2023: gap and error, against communications and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from papers.drawing import BLUE, GREEN, INK, MUTED, PURPLE, VERMILION, blank, draw_band
from papers.lanes import Curves
from papers.reproduction import Spec
from papers.unified import lower_bound, upper_bound
from papers.unified_synthetic import Shown

ORANGE, SKY = "#e69f00", "#56b4e9"  # the rest of Okabe and Ito's palette
FLOOR = 1e-7  # gaps below it are not shown
GAPS = np.geomspace(1.0, FLOOR, 60)
DOTTED, DASHED, DASHDOT = (0, (1, 1.4)), (0, (4, 1.6)), (0, (5, 1.5, 1, 1.5))


class Style(NamedTuple):
    """A method's colour, line and name; variants of a method have its colour."""

    colour: str
    line: Any
    label: str


STYLES = {
    "lsgd": Style(MUTED, "-", "LSGD-PFL"),
    "lsgd_released": Style(MUTED, DASHED, "LSGD, steps of the released code"),
    "ascd": Style(VERMILION, "-", "ASCD-PFL"),
    "ascd_released": Style(VERMILION, DASHED, "ASCD, released $\\mathcal{L}'$"),
    "asvrcd": Style(BLUE, "-", "ASVRCD-PFL"),
    "asvrcd_released": Style(BLUE, DASHED, "ASVRCD, released $\\mathcal{L}'$"),
    "switching": Style(GREEN, "-", "ASCD, then ASVRCD"),
    "acd": Style(INK, "-", "ACD-PFL (exact gradients)"),
    "l2sgd_plus": Style(PURPLE, "-", "L2SGD+"),
    "pfedme_batch_5": Style(SKY, "-", "pFedMe, batch 5"),
    "pfedme_batch_20": Style(ORANGE, "-", "pFedMe, batch 20"),
}
THEOREM = Style(INK, DASHED, "theorem 7, for ACD")
ORDER = Style(INK, DOTTED, "theorem 6, lower bound (order)")
AT_OPTIMUM = Style(INK, DASHDOT, "error at the minimiser of $F$")
THIN = 0.9  # lines that nothing was run for


def draw(spec: Spec, shown: Sequence[Shown]) -> Figure:
    """A column per level of heterogeneity; rows: gap by rounds, gap by beta-gradients, error by rounds."""
    figure = blank(10.8, 10.2)
    grid = figure.subplots(3, len(shown), squeeze=False, sharex="row", sharey="row")
    for place, one in enumerate(shown):
        _gap_by_rounds(grid[0, place], one)
        _gap_by_gradients(grid[1, place], one)
        _error(grid[2, place], one)
        grid[0, place].set_title(rf"$\sigma_h = {one.case.heterogeneity:g}$")
    counts = [curves.personal_gradients.mean(axis=0) for one in shown for curves in one.curves.values()]
    grid[1, 0].set_xlim(max(min(count[1] for count in counts), 1), max(count[-1] for count in counts))
    for row, label in zip(grid, (_GAP, _GAP, "estimation error")):
        row[0].set_ylabel(label)
    _legend(figure, shown)
    return figure


_GAP = r"$(F-F^*)\,/\,(F_0-F^*)$"


def _gap_by_rounds(axes: Axes, one: Shown) -> None:
    _lines(axes, one, lambda key: one.gap(key), lambda curves: curves.rounds)
    _draw_bounds(axes, one, "rounds")
    axes.set_yscale("log")
    axes.set_ylim(FLOOR, 1.6)
    axes.set_xlim(0, next(iter(one.curves.values())).rounds[-1])
    axes.set_xlabel("communications")


def _gap_by_gradients(axes: Axes, one: Shown) -> None:
    _lines(axes, one, lambda key: one.gap(key)[:, 1:], lambda curves: curves.personal_gradients[:, 1:])
    _draw_bounds(axes, one, "personal_gradients")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(FLOOR, 1.6)
    axes.set_xlabel(r"component gradients by $\beta$, per client")


def _error(axes: Axes, one: Shown) -> None:
    _lines(axes, one, lambda key: one.curves[key].columns["error"], lambda curves: curves.rounds)
    at_optimum = one.case.error(one.case.optimum)
    axes.axhline(at_optimum, color=AT_OPTIMUM.colour, linewidth=THIN, linestyle=AT_OPTIMUM.line)
    axes.set_yscale("log")
    axes.set_xlim(0, next(iter(one.curves.values())).rounds[-1])
    axes.set_xlabel("communications")


def _lines(axes: Axes, one: Shown, values: Callable[[str], np.ndarray], places: Callable[[Curves], np.ndarray]) -> None:
    for key, style in STYLES.items():
        if key in one.curves:
            line = {"color": style.colour, "linestyle": style.line, "linewidth": 1.3}
            shown, x = values(key), places(one.curves[key])
            draw_band(axes, x, shown, floor=FLOOR / 10, band=(0.1, 0.9) if style.line == "-" else None, **line)


def _draw_bounds(axes: Axes, one: Shown, field: str) -> None:
    """What theorem 7 promises of ACD-PFL, and what theorem 6 asks of every method."""
    if "acd" not in one.case.methods:
        return
    method = one.case.methods["acd"]
    theorem = upper_bound("acd_pfl", method.algorithm, method.setup, GAPS.tolist())
    assert theorem is not None  # the setup's mu is positive
    for bound, style in ((theorem, THEOREM), (lower_bound(method.setup, GAPS.tolist()), ORDER)):
        axes.plot(bound.costs(field), bound.gap, color=style.colour, linestyle=style.line, linewidth=THIN)


def _legend(figure: Figure, shown: Sequence[Shown]) -> None:
    run = [style for key, style in STYLES.items() if key in shown[0].curves]
    known = [THEOREM, ORDER, AT_OPTIMUM]
    handles = [
        Line2D([], [], color=style.colour, linestyle=style.line, linewidth=width, label=style.label)
        for styles, width in ((run, 1.3), (known, THIN))
        for style in styles
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=2.6, columnspacing=1.4)
