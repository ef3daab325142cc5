# SPDX-License-Identifier: Apache-2.0
"""How a method's score is spread over its clients: deciles, the mean, the worst tenth."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from idiolect.record.schema import MethodSummary
from idiolect.report.clients import client_table
from idiolect.report.folder import Run, mean_known
from idiolect.report.style import INK, MUTED, PAPER, Look, add_legend, blank, fold, key, method_colours, reach_of, widen
from idiolect.report.wording import better, known, shortened

_DOTS = 120  # clients up to which each one is drawn
_BANDS = ((1, 9), (2, 8), (3, 7), (4, 6))  # deciles


def distribution_over_clients(run: Run) -> Figure | None:
    """One row per method: bands of deciles, the median, each seed's mean; None when no client has a score."""
    words, colours = run.words, method_colours(run)
    rows = [(entry, client_scores(run, entry.method) * words.scale) for entry in run.methods]
    if all(np.isnan(scores).all() for _, scores in rows):
        return None
    figure = blank(9.6, 1.15 + 0.62 * len(rows), on_paper=1.0 + 0.4 * len(rows))
    axes = figure.subplots()
    for place, (entry, scores) in enumerate(rows):
        if not np.isnan(scores).all():
            _draw(axes, place, entry, scores, colours[entry.method], words.scale)
    # every client of the methods that finished, short of a few far ones of a heavy tail
    calm = np.concatenate([scores.ravel() for entry, scores in rows if not entry.diverged] or [np.empty(0)])
    if not np.isnan(calm).all():
        axes.set_xlim(*widen(*_reach(calm[~np.isnan(calm)], rows, words.scale), 0.03))
    # after the limits: how many clients lie beyond them
    for place, (entry, scores) in enumerate(rows):
        _remark(axes, place, entry, mean_known(scores), words.scale)
    axes.set_yticks(range(len(rows)), [shortened(entry.method, 28) for entry, _ in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    what = f"test {words.title} of the personal models, one value per client ({better(run.higher_is_better)})"
    axes.set_xlabel(fold(what, 0.7))
    _legend(figure, max(len(scores) for _, scores in rows))
    return figure


def _reach(clients: np.ndarray, rows: list[tuple[MethodSummary, np.ndarray]], scale: float) -> tuple[float, float]:
    """Nearly all clients, and every mean and worst tenth but those so far off that they would flatten the rest."""
    low, high = reach_of(clients)
    far = 2 * (high - low)
    found = [entry.score for entry, _ in rows if not entry.diverged]
    marks = [value * scale for score in found for value in (score.mean, score.worst_decile) if known(value)]
    near = [value for value in marks if low - far < value < high + far]
    return min([low, *near]), max([high, *near])


def client_scores(run: Run, method: str) -> np.ndarray:
    """(seeds, clients) of those that trained: the table's mean and worst tenth, drawn here, are theirs."""
    clients = client_table(run, method)
    scores = clients.seed_personal[:, ~clients.held_out]
    return np.where(np.isfinite(scores), scores, np.nan)


def deciles_of(scores: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The known scores (seeds, clients) of each seed, and their deciles, averaged over seeds as the table's are."""
    seeds = [one[~np.isnan(one)] for one in scores if not np.isnan(one).all()]
    return seeds, np.mean([np.quantile(one, np.linspace(0, 1, 11)) for one in seeds], axis=0)


def _draw(axes: Axes, place: int, entry: MethodSummary, scores: np.ndarray, colour: str, scale: float) -> None:
    seeds, deciles = deciles_of(scores)
    for low, high in _BANDS:
        box = ((deciles[low], place - 0.27), deciles[high] - deciles[low], 0.54)
        band = f"deciles {low} to {high}"
        axes.add_patch(Rectangle(*box, facecolor=colour, alpha=0.2, linewidth=0, zorder=2, label=band))
    axes.plot([deciles[5]] * 2, [place - 0.27, place + 0.27], color=colour, linewidth=2.2, zorder=4, label="median")
    clients = mean_known(scores)
    clients = clients[~np.isnan(clients)]
    if clients.size > _DOTS:
        axes.plot(deciles[[0, 10]], [place] * 2, color=colour, linewidth=0.9, zorder=3, label="least and most")
    else:
        # A fixed low-discrepancy scatter: dots of one row part without any draw.
        lift = (np.arange(clients.size) * 0.6180339887 % 1 - 0.5) * 0.42
        look: Look = {"s": 9, "color": colour, "alpha": 0.75, "edgecolor": PAPER, "linewidth": 0.3, "zorder": 5}
        axes.scatter(clients, place + lift, label="a client", **look)
    _mark_means(axes, place, entry, [float(one.mean()) for one in seeds], scale)


def _mark_means(axes: Axes, place: int, entry: MethodSummary, seeds: list[float], scale: float) -> None:
    """Above the band: the mean of each seed, their mean with its interval, and the worst tenth."""
    for one in seeds if len(seeds) > 1 else ():
        look: Look = {"color": INK, "linewidth": 0.9, "alpha": 0.6, "zorder": 6}
        axes.plot([one] * 2, [place - 0.44, place - 0.28], label="mean of a seed", **look)
    # above the band, where its dots do not hide it
    mean, beside = np.mean(seeds), place - 0.345
    if entry.interval and all(map(known, entry.interval)):
        ends = np.asarray(entry.interval) * scale
        axes.plot(ends, [beside] * 2, color=INK, linewidth=1.4, zorder=6, label="95 % interval of the mean")
    diamond: Look = {"marker": "D", "zorder": 7}
    axes.scatter(mean, beside, s=26, color=INK, edgecolor=PAPER, linewidth=0.6, label="mean", **diamond)
    worst = entry.score.worst_decile
    if known(worst):
        hollow: Look = {"s": 22, "facecolor": PAPER, "edgecolor": INK, "linewidth": 1.1, "label": "worst tenth"}
        axes.scatter(worst * scale, beside, **hollow, **diamond)


def _remark(axes: Axes, place: int, entry: MethodSummary, clients: np.ndarray, scale: float) -> None:
    """Why a method has no score, or what the frame leaves out, at the side where it is."""
    across = axes.get_yaxis_transform()
    if np.isnan(clients).all():
        reason = entry.diverged.short if entry.diverged else "no score"
        look: Look = {"va": "center", "color": MUTED, "style": "italic"}
        axes.annotate(reason, (0.0, place), (6, 0), across, textcoords="offset points", **look)
        return
    left, right = axes.get_xlim()
    outside: Look = {"s": 20, "color": INK, "clip_on": False, "zorder": 7, "label": "farther out"}
    for mark in (entry.score.mean, entry.score.worst_decile):
        if known(mark) and not left <= mark * scale <= right:
            low = mark * scale < left
            axes.scatter(left if low else right, place - 0.345, marker="<" if low else ">", **outside)
    for edge, side, number in ((0.0, "left", (clients < left).sum()), (1.0, "right", (clients > right).sum())):
        if number:
            look = {"ha": side, "va": "center", "color": MUTED, "fontsize": 7}
            axes.annotate(f"{number} more to the {side}", (edge, place + 0.37), xycoords=across, **look)


def _legend(figure: Figure, seeds: int) -> None:
    diamond: Look = {"color": INK, "marker": "D", "markersize": 4.5}
    entries = [
        Patch(facecolor=MUTED, alpha=0.4, label="deciles 1 to 9, line: median"),
        key("mean, 95 % interval", linewidth=1.4, **diamond),
        key("worst tenth", markerfacecolor=PAPER, linestyle="", **diamond),
    ]
    if seeds > 1:
        entries.append(key("mean of each seed", color=INK, marker="|", markersize=5, alpha=0.6, linestyle=""))
    add_legend(figure, entries, handlelength=1.6)
