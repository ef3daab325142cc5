# SPDX-License-Identifier: Apache-2.0
"""The two-sided ledger against the optimum: F - F* while exchanges and gradients of each block are spent."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from idiolect.report.folder import Run, numbers, of_method
from idiolect.report.style import MUTED, blank, cost_axis, method_colours
from idiolect.report.wording import shortened

# What is spent, the history's columns that add up to it, their unit.
_PANELS = (
    ("exchanges", ("rounds",), 1.0),
    ("communicated, MB", ("download_bytes", "upload_bytes"), 1e-6),
    ("gradients by w, per example", ("gradients_shared", "gradients_both"), 1.0),
    ("gradients by beta, per example", ("gradients_personal", "gradients_both"), 1.0),
)


def suboptimality_against_cost(run: Run) -> Figure | None:
    """F - F* of each method's own objective by exchanges, bytes and gradients of each block; None if not measured."""
    if "suboptimality" not in run.history.column_names:
        return None
    methods = [entry.method for entry in run.methods]
    known = [name for name in methods if (numbers(of_method(run.history, name), "suboptimality") > 0).any()]
    if not known:
        return None
    colours = method_colours(run)
    figure = blank(12, 3.4 + 0.22 * -(-len(known) // 4))
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for axes, (title, columns, unit) in zip(panels, _PANELS):
        spent = [_spent(run, name, columns, unit) for name in known]
        wide = cost_axis(axes, np.concatenate(spent))
        for name, cost in zip(known, spent):
            rows = of_method(run.history, name)
            gap, seeds = numbers(rows, "suboptimality"), rows["seed"].to_numpy()
            for seed in np.unique(seeds):
                shown = (seeds == seed) & (gap > 0) & ((cost > 0) | (not wide))
                axes.plot(cost[shown], gap[shown], color=colours[name], linewidth=1.5, alpha=0.85)
        axes.set_xlabel(title + (" (log scale)" if wide else ""))
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        if not np.nan_to_num(np.concatenate(spent)).any():
            axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", color=MUTED)
    panels[0].set_ylabel("F - F* on training rows (log scale)")
    entries = [Line2D([], [], color=colours[name], linewidth=2.4, label=shortened(name, 26)) for name in known]
    figure.legend(handles=entries, loc="outside upper left", ncols=4, handlelength=1.8, columnspacing=1.6)
    return figure


def _spent(run: Run, method: str, columns: tuple[str, ...], unit: float) -> np.ndarray:
    rows = of_method(run.history, method)
    return unit * np.sum([numbers(rows, column) for column in columns], axis=0)
