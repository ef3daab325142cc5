# SPDX-License-Identifier: Apache-2.0
"""Expected gain of every client against training alone, one panel per method, sorted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from idiolect.report import style
from idiolect.report.clients import ClientTable, client_table, has_intervals
from idiolect.report.folder import Run
from idiolect.report.style import INK, MUTED, PAPER, VERDICT_COLOURS, Look, fold, key, panels_across
from idiolect.report.wording import MINUS, shortened

_NAMED = 24  # as many clients as can have their names beside them
_EACH_SEED = 300  # clients up to which the dots of single seeds are drawn
_HEAVY = 1500  # intervals beyond which an SVG of single lines grows past a megabyte: drawn as pixels


def gain_by_client(run: Run) -> Figure | None:
    """A dot and its interval per client; None when nothing can be compared with training alone."""
    every = (client_table(run, entry.method) for entry in run.methods if not entry.alone)
    tables = [table for table in every if table.compared]
    if not tables:
        return None
    words, most = run.words, max(table.compared for table in tables)
    named = most <= _NAMED
    names = max(len(str(name)) for table in tables for name in table.client)
    columns = min(len(tables), 2 if named and names > 14 else 3)  # long names leave no room for three
    columns = panels_across(columns, 2.4 if named else 1.5)
    rows = -(-len(tables) // columns)
    height = (0.95 + 0.185 * max(most, 6)) if named else 2.9
    figure = style.blank(9.6, 0.45 + rows * height, on_paper=0.6 + rows * 0.8 * height)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=named, sharey=not named).ravel()
    look = _Frame(_limits(tables, words.scale), words.scale, named, heavy=len(tables) * most > _HEAVY)
    for axes, table in zip(grid, tables):
        _draw_panel(axes, table, look)
        axes.set_title(shortened(table.method, 60 // columns), pad=17)
        counts = {verdict: table.counted(verdict) for verdict in VERDICT_COLOURS}
        said = " · ".join(f"{number:,} {verdict}" for verdict, number in counts.items() if number)
        axes.annotate(said, (0, 1), (0, 5), "axes fraction", textcoords="offset points", color=MUTED)
    for axes in grid[len(tables) :]:
        axes.set_visible(False)
    judged = has_intervals(run)
    what = ("expected " if judged else "") + f"gain in {words.spoken} against training alone"
    _label(figure, grid[: len(tables)], columns, what + (" (points)" if words.unit == "%" else ""), named)
    if judged:
        _legend(figure, tables)
    return figure


class _Frame(NamedTuple):
    """What all panels share; named clients stand down the side, so that gains go to the right and not up."""

    limits: tuple[float, float]
    scale: float
    named: bool
    heavy: bool

    def turned(self, gains: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both as matplotlib takes them: across, then up."""
        return (gains, places) if self.named else (places, gains)


def _draw_panel(axes: Axes, table: ClientTable, frame: _Frame) -> None:
    """Clients by name, the largest gain on top; or, too many to name, by rank from the largest loss on."""
    order = np.argsort(table.expected, kind="stable")  # the largest expected loss first
    order = order[np.isfinite(table.expected[order])]
    place = np.arange(len(order)) + (0 if frame.named else 1)
    colours = np.asarray([VERDICT_COLOURS.get(verdict, MUTED) for verdict in table.verdict[order]], dtype=object)
    ends = [values[order] * frame.scale for values in (table.expected_low, table.expected_high)]
    known = np.isfinite(ends).all(axis=0)
    # one collection for all of them: matplotlib is slow at thousands of single lines
    segments = np.stack([np.column_stack(frame.turned(end, place)) for end in ends], axis=1)[known]
    faint, width = 0.38 if len(order) <= _EACH_SEED else 0.22, float(np.clip(60 / len(order), 0.5, 2.2))
    look: Look = {"alpha": faint, "zorder": 2.5, "label": "95 % interval", "rasterized": frame.heavy}
    bars = LineCollection(list(segments), colors=list(colours[known]), linewidths=width, **look)
    axes.add_collection(bars, autolim=False)
    _draw_dots(axes, table, order, place, colours, frame)
    (axes.axvline if frame.named else axes.axhline)(0, color=INK, linewidth=0.9, zorder=2)
    gains, clients = (axes.xaxis, axes.yaxis) if frame.named else (axes.yaxis, axes.xaxis)
    style.label_ticks(gains, lambda value: "0" if abs(value) < 1e-12 else f"{value:+g}".replace("-", MINUS))
    clients.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=not frame.named))
    if frame.named:
        axes.set_yticks(place, [shortened(str(name), 22) for name in table.client[order]], fontsize=7.5)
        axes.tick_params(axis="y", length=0)
        axes.set(xlim=frame.limits, ylim=(-0.8, len(order) - 0.2))
    else:
        axes.set(xlim=(0.5 - 0.015 * len(order), len(order) * 1.015 + 0.5), ylim=frame.limits)


def _draw_dots(
    axes: Axes, table: ClientTable, order: np.ndarray, place: np.ndarray, colours: np.ndarray, frame: _Frame
) -> None:
    (low, high), gain = frame.limits, table.expected[order] * frame.scale
    size = float(np.clip(700 / len(order), 3, 26))
    edge = 0.4 if len(order) <= 60 else 0.0  # rims of crowded dots would hide their colours
    seed: Look = {"s": size / 4, "alpha": 0.5, "linewidth": 0, "zorder": 3, "label": "gain of a seed"}
    dot: Look = {"s": size, "edgecolor": PAPER, "linewidth": edge, "zorder": 4, "label": "expected gain"}
    arrow: Look = {"s": max(size, 14), "zorder": 4, "label": "beyond the frame"}
    several = len(table.seeds) > 1 and len(order) <= _EACH_SEED
    groups = [(one, (one >= low) & (one <= high), seed) for one in table.seed_gain[:, order] * frame.scale if several]
    groups.append((gain, (gain >= low) & (gain <= high), dot))
    # A client beyond the frame is an arrow at its edge, so that it is neither lost nor the measure of all.
    for beyond, border, mark in zip((gain < low, gain > high), frame.limits, "<>" if frame.named else "v^"):
        groups += [(np.full(len(gain), border), beyond, arrow | {"marker": mark})] if beyond.any() else []
    for values, chosen, look in groups:
        at = frame.turned(values[chosen], place[chosen])
        axes.scatter(*at, c=list(colours[chosen]), clip_on=False, rasterized=frame.heavy, **look)


def _limits(tables: list[ClientTable], scale: float) -> tuple[float, float]:
    """A range for all panels: nearly every dot, most of every interval, and 0."""
    gains = np.concatenate([table.expected[np.isfinite(table.expected)] for table in tables]) * scale
    bounds = np.concatenate([np.concatenate([table.expected_low, table.expected_high]) for table in tables]) * scale
    bounds = bounds[np.isfinite(bounds)]
    # the middle nine tenths set the frame, as far as they reach: one wild client must not flatten the others
    lower, upper = np.quantile(gains, [0.05, 0.95])
    reach = max(upper - lower, np.abs(gains).max() * 1e-3, 1e-12)
    lower, upper = lower - reach, upper + reach
    low, high = min(0.0, max(gains.min(), lower)), max(0.0, min(gains.max(), upper))
    if bounds.size:
        low, high = min(low, max(bounds.min(), lower)), max(high, min(bounds.max(), upper))
    room = 0.05 * (high - low) or 1.0
    return float(low - room), float(high + room)


def _label(figure: Figure, panels: np.ndarray, columns: int, what: str, named: bool) -> None:
    if named:
        figure.supxlabel(fold(what), fontsize="medium")
        for place, axes in enumerate(panels):  # a panel with none below it keeps its own ticks
            axes.tick_params(labelbottom=place + columns >= len(panels))
        return
    figure.supylabel(what if len(panels) > columns else what.replace(" against", "\nagainst"), fontsize="medium")
    ranks = "clients, from the largest expected loss to the largest expected gain"
    ranks = ranks if what.startswith("expected") else ranks.replace("expected ", "")
    figure.supxlabel(fold(ranks), fontsize="medium")


def _legend(figure: Figure, tables: list[ClientTable]) -> None:
    look: Look = {"marker": "o", "markersize": 5, "linewidth": 1.6}
    named = {"helped": "helped", "hurt": "hurt", "unclear": "unclear or the same"}
    entries = [key(words, color=VERDICT_COLOURS[verdict], **look) for verdict, words in named.items()]
    if max(len(table.seeds) for table in tables) > 1 and max(map(len, tables)) <= _EACH_SEED:
        entries.append(key("each seed", color=MUTED, marker="o", markersize=2.4, alpha=0.7, linestyle=""))
    style.add_legend(figure, entries)
