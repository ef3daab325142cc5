# SPDX-License-Identifier: Apache-2.0
"""How a method's score is spread over its clients: deciles, the mean, the worst tenth."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from idiolect.record.schema import MethodSummary
from idiolect.report.clients import ClientTable, client_table
from idiolect.report.folder import Run
from idiolect.report.style import INK, MUTED, PAPER, blank, method_colours
from idiolect.report.wording import absent, known, score_words, shortened

_DOTS = 120  # clients up to which each one is drawn
_BANDS = ((0.1, 0.9), (0.2, 0.8), (0.3, 0.7), (0.4, 0.6))


def distribution_over_clients(run: Run) -> Figure | None:
    """One row per method: bands of deciles, the median, each seed's mean; None when no client has a score."""
    rows = [(entry, _trained(client_table(run, entry.method))) for entry in run.methods]
    if not any(np.isfinite(scores).any() for _, scores in rows):
        return None
    words, colours = score_words(run.score), method_colours(run)
    figure = blank(9.6, 1.15 + 0.62 * len(rows))
    axes = figure.subplots()
    for place, (entry, scores) in enumerate(rows):
        finite = np.where(np.isfinite(scores), scores, np.nan) * words.scale
        if np.isfinite(finite).any():
            _draw(axes, place, entry, finite, colours[entry.method], words.scale)
    _limits(axes, [scores * words.scale for entry, scores in rows if not entry.diverged])
    for place, (entry, scores) in enumerate(rows):
        if not np.isfinite(scores).any():
            reason = entry.diverged.short if entry.diverged else "no score"
            axes.annotate(
                reason,
                (0.0, place),
                (6, 0),
                axes.get_yaxis_transform(),
                textcoords="offset points",
                va="center",
                color=MUTED,
                style="italic",
            )
        else:
            _beyond(axes, place, _mean_over_seeds(scores * words.scale))
    axes.set_yticks(range(len(rows)), [shortened(entry.method, 28) for entry, _ in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    better = "higher" if run.higher_is_better else "lower"
    axes.set_xlabel(f"test {words.title} of the personal models, one value per client ({better} is better)")
    _legend(figure, max(len(scores) for _, scores in rows))
    return figure


def _trained(clients: ClientTable) -> np.ndarray:
    """(seeds, clients) scores of those that trained: the table's mean and worst tenth, drawn here, are theirs."""
    return clients.seed_personal[:, ~clients.held_out]


def _draw(axes: Axes, place: int, entry: MethodSummary, scores: np.ndarray, colour: str, scale: float) -> None:
    """`scores` is (seeds, clients); deciles are averaged over seeds, as the table's are."""
    seeds = [one[np.isfinite(one)] for one in scores]
    seeds = [one for one in seeds if one.size]
    deciles = np.mean([np.quantile(one, np.linspace(0, 1, 11)) for one in seeds], axis=0)
    for low, high in _BANDS:
        left, right = deciles[round(10 * low)], deciles[round(10 * high)]
        axes.add_patch(
            Rectangle((left, place - 0.27), right - left, 0.54, facecolor=colour, alpha=0.2, linewidth=0, zorder=2)
        )
    axes.plot([deciles[5]] * 2, [place - 0.27, place + 0.27], color=colour, linewidth=2.2, zorder=4)
    clients = _mean_over_seeds(scores)
    if clients.size > _DOTS:
        axes.plot(deciles[[0, 10]], [place] * 2, color=colour, linewidth=0.9, zorder=3)
    else:
        # A fixed low-discrepancy scatter: dots of one row part without any draw.
        lift = (np.arange(clients.size) * 0.6180339887 % 1 - 0.5) * 0.42
        axes.scatter(clients, place + lift, s=9, color=colour, alpha=0.75, edgecolor=PAPER, linewidth=0.3, zorder=5)
    for one in seeds if len(seeds) > 1 else ():
        axes.plot([one.mean()] * 2, [place - 0.44, place - 0.28], color=INK, linewidth=0.9, alpha=0.6, zorder=6)
    mean = np.mean([one.mean() for one in seeds])
    interval = entry.interval
    if interval and not any(map(absent, interval)):
        axes.plot(np.asarray(interval) * scale, [place - 0.345] * 2, color=INK, linewidth=1.4, zorder=6)
    axes.scatter(mean, place - 0.345, s=26, marker="D", color=INK, edgecolor=PAPER, linewidth=0.6, zorder=7)
    worst = entry.score.worst_decile
    if known(worst):
        at = (worst * scale, place - 0.345)
        axes.scatter(*at, s=22, marker="D", facecolor=PAPER, edgecolor=INK, linewidth=1.1, zorder=7)


def _mean_over_seeds(scores: np.ndarray) -> np.ndarray:
    known = np.isfinite(scores)
    number = known.sum(axis=0)
    return np.where(known, scores, 0).sum(axis=0)[number > 0] / number[number > 0]


def _limits(axes: Axes, calm: list[np.ndarray]) -> None:
    """Hold every client of the methods that finished, short of a few far ones of a heavy tail."""
    values = np.concatenate([scores[np.isfinite(scores)] for scores in calm]) if calm else np.empty(0)
    if not values.size:
        return
    low, high = np.quantile(values, [0.05, 0.95])
    reach = high - low  # for normal scores the frame then ends five standard deviations from the mean
    low, high = max(values.min(), low - reach), min(values.max(), high + reach)
    room = 0.03 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_xlim(low - room, high + room)


def _beyond(axes: Axes, place: int, clients: np.ndarray) -> None:
    """Say how many clients the frame leaves out, at the side where they are."""
    left, right = axes.get_xlim()
    sides = (
        (0.0, "left", "{} more to the left", (clients < left).sum()),
        (1.0, "right", "{} more to the right", (clients > right).sum()),
    )
    for edge, side, text, number in sides:
        if number:
            axes.annotate(
                text.format(number),
                (edge, place + 0.37),
                xycoords=axes.get_yaxis_transform(),
                ha=side,
                va="center",
                color=MUTED,
                fontsize=7,
            )


def _legend(figure: Figure, seeds: int) -> None:
    entries = [
        Patch(facecolor=MUTED, alpha=0.4, label="deciles 1 to 9, line: median"),
        Line2D([], [], color=INK, marker="D", markersize=4.5, linewidth=1.4, label="mean, 95 % interval"),
        Line2D([], [], color=INK, marker="D", markersize=4.5, markerfacecolor=PAPER, linestyle="", label="worst tenth"),
    ]
    if seeds > 1:
        entries.append(
            Line2D([], [], color=INK, marker="|", markersize=5, alpha=0.6, linestyle="", label="mean of each seed")
        )
    figure.legend(handles=entries, loc="outside upper left", ncols=4, handlelength=1.6, columnspacing=1.6)
