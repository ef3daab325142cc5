# SPDX-License-Identifier: Apache-2.0
"""Score, and distance from the optimum, while bytes, gradients of each block and modelled seconds are spent."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator
from scipy.special import stdtrit

from idiolect.record.schema import MethodSummary
from idiolect.report import style
from idiolect.report.folder import Run, laid_out, mean_known, numbers, of_method
from idiolect.report.style import DASHED, INK, MUTED, Look, method_colours, panels_across
from idiolect.report.wording import short, shortened


class Panel(NamedTuple):
    """What is spent, the history's columns that add up to it, their unit."""

    title: str
    columns: tuple[str, ...]
    unit: float = 1.0

    def spent(self, rows: pa.Table) -> np.ndarray:
        """By every recorded round."""
        return self.unit * np.sum([numbers(rows, column) for column in self.columns], axis=0)


_SENT = Panel("communicated, MB", ("download_bytes", "upload_bytes"), 1e-6)
OF_SCORE = (
    _SENT,
    Panel("gradient evaluations", ("gradients_shared", "gradients_personal", "gradients_both")),
    Panel("modelled seconds", ("modelled_seconds",)),
    Panel("rounds", ("rounds",)),
)
OF_OPTIMUM = (
    Panel("rounds", ("rounds",)),
    _SENT,
    Panel("gradients by w, per example", ("gradients_shared", "gradients_both")),
    Panel("gradients by beta, per example", ("gradients_personal", "gradients_both")),
)
WIDE = 4.0  # of scores: the factor beyond which a logarithmic scale shows more
_FEW_SEEDS = 4  # under this an interval over seeds says little: two seeds would give +- 9 standard deviations


@dataclasses.dataclass(frozen=True)
class Curve:
    """One method's history, (seeds, rounds) arrays over the union of recorded rounds, not-a-number in the holes."""

    method: str
    costs: tuple[np.ndarray, ...]  # one per panel
    mean: np.ndarray
    worst: np.ndarray
    diverged: bool


def score_against_cost(run: Run) -> Figure | None:
    """Validation score (mean, worst tenth of clients) by bytes, gradients, modelled time, rounds; None if unknown."""
    curves = curves_of(run)
    if not curves:
        return None
    words, colours = run.words, method_colours(run)
    panels, figure = _panels(12, 3.5, len(curves) + 2, (1, 1, 1, 0.62))
    for place, (axes, panel) in enumerate(zip(panels, OF_SCORE)):
        spent = np.concatenate([curve.costs[place].ravel() for curve in curves])
        wide = _cost_panel(axes, panel, spent, None if np.isfinite(spent).any() else "not recorded")
        for order, curve in enumerate(curves):
            _draw(axes, curve, place, colours[curve.method], words.scale, wide, 3 + order)
    _limits(panels[0], curves, words.scale)
    panels[0].set_ylabel(f"validation {words.title}")
    _legend(figure, curves, colours)
    return figure


def suboptimality_against_cost(run: Run) -> Figure | None:
    """F - F* of each method's own objective by rounds, bytes and gradients of each block; None if not measured."""
    histories = {entry.method: of_method(run.history, entry.method) for entry in run.methods}
    histories = {name: rows for name, rows in histories.items() if (numbers(rows, "suboptimality") > 0).any()}
    if not histories:
        return None
    colours = method_colours(run)
    panels, figure = _panels(12, 3.4, len(histories), (1, 1, 1, 1))
    for axes, panel in zip(panels, OF_OPTIMUM):
        spent = np.concatenate([panel.spent(rows) for rows in histories.values()])
        wide = _cost_panel(axes, panel, spent, None if np.nan_to_num(spent).any() else "none")
        for name, rows in histories.items():
            cost, gap, seeds = panel.spent(rows), numbers(rows, "suboptimality"), rows["seed"].to_numpy()
            for seed in np.unique(seeds):
                shown = (seeds == seed) & (gap > 0) & ((cost > 0) | (not wide))
                look: Look = {"color": colours[name], "linewidth": 1.5, "alpha": 0.85}
                axes.plot(cost[shown], gap[shown], label=f"{name}, seed {seed}", **look)
        axes.set_yscale("log")
        style.label_ticks(axes.yaxis, "{:.0e}".format)
    panels[0].set_ylabel("F - F* on training rows (log scale)")
    style.add_legend(figure, [style.key(shortened(name, 26), color=colours[name], linewidth=2.4) for name in histories])
    return figure


def _panels(width: float, height: float, keys: int, ratios: tuple[float, ...]) -> tuple[list[Axes], Figure]:
    """A figure with room for the keys of its legend, and its panels, in a row or in a paper in several."""
    columns = panels_across(len(ratios))
    rows, whole = -(-len(ratios) // columns), columns == len(ratios)
    figure = style.blank(
        width, height + 0.22 * -(-keys // 4), on_paper=1.8 * rows + 0.15 * -(-keys // panels_across(4))
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True, width_ratios=ratios if whole else None)
    return list(grid.ravel()), figure


def _cost_panel(axes: Axes, panel: Panel, spent: np.ndarray, empty: str | None) -> bool:
    """Scale and name the axis of costs, and say why nothing is drawn where nothing is.

    It is logarithmic (and True) where costs span more than a factor of 20.
    """
    positive = spent[spent > 0]
    wide = positive.size > 0 and positive.max() / positive.min() > 20
    if wide:
        axes.set_xscale("log")
        decades = np.log10(positive.max() / positive.min())
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0,) if decades > 2 else (1.0, 3.0), numticks=9))
        axes.set_xlim(positive.min() / 1.15, positive.max() * 1.15)
    elif positive.size:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=bool(positive.max() >= 5)))
        axes.set_xlim(0, 1.05 * positive.max())
    style.label_ticks(axes.xaxis, short)
    axes.set_xlabel(style.fold(panel.title + (" (log scale)" if wide else ""), 0.9 / panels_across(len(OF_SCORE))))
    if empty is not None:
        axes.text(0.5, 0.5, empty, transform=axes.transAxes, ha="center", color=MUTED)
    return wide


def curve_of(run: Run, entry: MethodSummary) -> Curve:
    """One method's history over all its seeds."""
    rows = of_method(run.history, entry.method)
    seeds, seed_of = np.unique(rows["seed"].to_numpy(), return_inverse=True)
    rounds, round_of = np.unique(rows["round"].to_numpy(), return_inverse=True)
    of_rows = [panel.spent(rows) for panel in OF_SCORE]
    for statistic in ("mean", "worst_decile"):
        own, shared = (numbers(rows, f"validation_{kind}_{run.score}_{statistic}") for kind in ("personal", "shared"))
        values = np.where(np.isnan(own), shared, own)  # the shared model's where a method has no other
        of_rows.append(np.where(np.isfinite(values), values, np.nan))
    *costs, mean, worst = (laid_out(one, (seed_of, round_of), len(seeds), len(rounds)) for one in of_rows)
    return Curve(entry.method, tuple(costs), mean, worst, entry.diverged is not None)


def curves_of(run: Run) -> list[Curve]:
    """The curves of all methods that were scored on validation rows."""
    curves = [curve_of(run, entry) for entry in run.methods]
    return [curve for curve in curves if np.isfinite(curve.mean).any()]


def rounds_shown(curve: Curve) -> np.ndarray:
    """The rounds that every seed has, or else any: a mean over changing seeds jumps."""
    seen = np.isfinite(curve.mean)
    every = seen.all(axis=0)
    return every if every.any() else seen.any(axis=0)


def _draw(axes: Axes, curve: Curve, place: int, colour: str, scale: float, wide: bool, order: int) -> None:
    costs = curve.costs[place]
    if not np.isfinite(costs).any():  # not recorded, which is not the same as free
        return
    everywhere = rounds_shown(curve)
    cost = np.mean(costs[:, everywhere], axis=0)
    shown = (cost > 0) if wide else np.isfinite(cost)
    if not spends(costs) or not shown.any():  # only where it ends can be shown
        for values, width in ((curve.mean, 1.8), (curve.worst, 1.0)):
            look: Look = {"color": colour, "linewidth": width, "linestyle": (0, (1, 1.6)), "zorder": order}
            means = mean_known(values)
            means = means[np.isfinite(means)]  # the last round of which something is known
            end = float(means[-1]) if means.size else float("nan")
            axes.axhline(end * scale, label=f"{curve.method}: end", **look)
        return
    cost = cost[shown]
    middle, low, high = band(curve.mean[:, everywhere][:, shown] * scale)
    if len(curve.mean) > 1:
        # on a logarithmic axis there is no place for what cost nothing
        paid = costs > 0 if wide else np.isfinite(costs)
        for own, mean, at in zip(costs, curve.mean * scale, paid):
            axes.plot(own[at], mean[at], color=colour, linewidth=0.7, alpha=0.45, label=f"{curve.method}: a seed")
        label = f"{curve.method}: band over seeds"
        axes.fill_between(cost, low, high, color=colour, alpha=0.16, linewidth=0, label=label)
    worst = mean_known(curve.worst[:, everywhere][:, shown] * scale)
    dot = "_" if len(cost) == 1 else None  # a line through one point cannot be seen
    dashed: Look = {"color": colour, "linewidth": 1.2, "linestyle": DASHED, "marker": dot, "zorder": order}
    axes.plot(cost, worst, label=f"{curve.method}: worst tenth", **dashed)
    axes.plot(cost, middle, color=colour, linewidth=2.0, zorder=order + 20, label=f"{curve.method}: mean")
    mark, size = ("X", 46) if curve.diverged else ("o", 22)
    ends = axes.scatter(cost[-1:], middle[-1:], s=size, marker=mark, color=colour, edgecolor=style.PAPER, linewidth=0.7)
    ends.set_zorder(order + 40)


def spends(costs: np.ndarray) -> bool:
    """Whether a method pays anything of this kind."""
    return bool(np.nan_to_num(costs).max(initial=0.0) > 0)


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds with a 95 % t interval, or with the seeds' own range when they are few."""
    middle = mean_known(values)
    if len(values) < _FEW_SEEDS:
        return middle, np.fmin.reduce(values), np.fmax.reduce(values)
    number = (~np.isnan(values)).sum(axis=0)
    variance = mean_known((values - middle) ** 2) * number / np.maximum(number - 1, 1)
    # seeds are few: the quantile of t, not of the normal distribution
    half = stdtrit(len(values) - 1, 0.975) * np.sqrt(variance / np.maximum(number, 1))
    return middle, middle - half, middle + half


def _limits(axes: Axes, curves: list[Curve], scale: float) -> None:
    """A vertical range for the methods that finished: one that explodes must not flatten the others.

    Nor may a few rounds at the start do so, whose errors are many times those of the end.
    """
    # where all diverged, their explosion is all there is to see
    calm = [curve for curve in curves if not curve.diverged] or curves
    values = np.concatenate([np.concatenate([curve.mean.ravel(), curve.worst.ravel()]) for curve in calm]) * scale
    values = values[np.isfinite(values)]
    if values.min() > 0 and values.max() / values.min() > WIDE:  # errors or losses that fall to a part
        low, high = np.exp(style.reach_of(np.log(values)))
        axes.set_yscale("log")
        axes.set_ylim(low / (high / low) ** 0.05, high * (high / low) ** 0.05)
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=9))
        style.label_ticks(axes.yaxis, "{:.3g}".format)
    else:
        axes.set_ylim(*style.widen(*style.reach_of(values), 0.05))


def _legend(figure: Figure, curves: list[Curve], colours: dict[str, str]) -> None:
    entries = []
    for curve in curves:
        # the first panel is what is sent
        silent = np.isfinite(curve.costs[0]).any() and not spends(curve.costs[0])
        note = " (diverged)" if curve.diverged else " (dotted: sends nothing)" if silent else ""
        entries.append(style.key(shortened(curve.method, 26) + note, color=colours[curve.method], linewidth=2.4))
    entries.append(style.key("worst tenth of clients", color=INK, linewidth=1.2, linestyle=DASHED))
    seeds = max(len(curve.mean) for curve in curves)
    if seeds > 1:
        band = "95 % interval" if seeds >= _FEW_SEEDS else "range"
        entries.append(style.key(f"each seed; band: their {band}", color=MUTED, linewidth=0.8))
    style.add_legend(figure, entries)
