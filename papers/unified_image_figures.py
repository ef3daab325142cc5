# SPDX-License-Identifier: Apache-2.0
"""The figures of Unified 2023, section 6: training loss and test accuracy against communications, panel by panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from papers.drawing import INK, blank, draw_band
from papers.lanes import Curves
from papers.unified_image_data import TITLES, relative_loss

Look = Mapping[str, Any]  # how a line is drawn, with its label
Panels = Mapping[tuple[str, str], Mapping[str, Curves]]  # (row, data set) -> line -> curves


def draw_panels(rows: Sequence[str], sets: Sequence[str], panels: Panels, looks: Mapping[str, Look]) -> Figure:
    """A row each; left the training loss over its start, right the accuracy of beta_m, a column per data set."""
    height = 1.42 * len(rows) + 1.2 if len(rows) > 1 else 3.2
    figure = blank(max(2.0 * 2 * len(sets), 7.6) + 0.6, height)
    grid = figure.subplots(len(rows), 2 * len(sets), sharex=True, squeeze=False)
    for line, row in zip(grid, rows):
        for place, data_set in enumerate(sets):
            curves = panels[row, data_set]
            _draw(line[place], curves, looks, relative_loss)
            _draw(line[place + len(sets)], curves, looks, lambda own: own.columns["accuracy"])
        for half in (line[: len(sets)], line[len(sets) :]):
            _same_scale(half)
        line[0].set_ylabel(f"{row}\n$F / F_0$")
        line[len(sets)].set_ylabel("accuracy")
    for place, data_set in enumerate(sets):
        grid[0, place].set_title(f"{TITLES[data_set]}, training", fontsize=8.5)
        grid[0, place + len(sets)].set_title(f"{TITLES[data_set]}, test", fontsize=8.5)
    for axes in grid[-1]:
        axes.set_xlabel("communications", fontsize=8)
    handles = [grid[0, 0].plot([], [], **look)[0] for look in looks.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6), labelcolor=INK)
    return figure


def _draw(
    axes: Axes, curves: Mapping[str, Curves], looks: Mapping[str, Look], pick: Callable[[Curves], np.ndarray]
) -> None:
    for name, own in curves.items():
        look = {key: value for key, value in looks[name].items() if key != "label"}
        draw_band(axes, own.rounds, pick(own), band=(0.1, 0.9), **({"linewidth": 1.3} | look))
    axes.tick_params(labelsize=7)


def _same_scale(panels: Sequence[Axes]) -> None:
    """One vertical scale per row and quantity, written once."""
    low, high = min(axes.get_ylim()[0] for axes in panels), max(axes.get_ylim()[1] for axes in panels)
    for place, axes in enumerate(panels):
        axes.set_ylim(low, high)
        axes.tick_params(labelleft=place == 0)
