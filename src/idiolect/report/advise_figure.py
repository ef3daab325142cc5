# SPDX-License-Identifier: Apache-2.0
"""The collaboration map: weights as a heat map, as a graph, and the gains that they are expected to bring."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiolect.report.advise_table import WORDS, Advised
from idiolect.report.folder import FolderError
from idiolect.report.style import INK, LINE, MUTED, PAPER, blank, drawing, lay_out, shortened, to_bytes

COLOURS = {"alone": "#67707d", "everybody": "#009e73", "neighbours": "#0072b2"}
_NAMED = 40  # clients that can be named along an axis
_EDGES = 0.02  # share from which a line is drawn


def write_figure(advised: Advised) -> Path:
    """Draw figures/map.png and map.svg into the folder; return the PNG's path."""
    with drawing("map"):
        figure = lay_out(draw(advised))
        files = {kind: to_bytes(figure, kind) for kind in ("png", "svg")}
    folder = advised.path / "figures"
    try:
        folder.mkdir(exist_ok=True)
        for kind, content in files.items():
            unfinished = folder / f".map.{kind}.unfinished"
            unfinished.write_bytes(content)
            os.replace(unfinished, folder / f"map.{kind}")
    except OSError as error:
        raise FolderError(
            f"The map must be written into {str(advised.path)!r}, which refused it ({error.strerror}); copy the folder "
            "to a place you may write to."
        ) from error
    return folder / "map.png"


def draw(advised: Advised) -> Figure:
    """Three panels in the same order of clients: those who share stand side by side."""
    figure = blank(13.2, 5.4)
    heat, graph, gains = figure.subplots(1, 3, width_ratios=(1.15, 1.0, 0.95))
    order = np.array(advised.found["map"]["order"], int)
    _heat(heat, advised, order)
    _graph(graph, advised)
    _gains(gains, advised, order)
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 6}
    entries = [Line2D([], [], color=COLOURS[way], label=f"advice: {words}", **dot) for way, words in WORDS.items()]
    if len(order) <= _NAMED:
        entries.append(
            Line2D([], [], color=INK, linestyle="none", marker="|", markersize=8, label="measured, held out")
        )
    figure.legend(handles=entries, loc="outside lower center", ncols=4)
    return figure


def _labels(advised: Advised, order: np.ndarray) -> list[str]:
    return [shortened(advised.found["clients"][place]["client"], 14) for place in order]


def _heat(axes: Axes, advised: Advised, order: np.ndarray) -> None:
    shares = np.array(advised.found["map"]["shares"])[np.ix_(order, order)]
    scale = LinearSegmentedColormap.from_list("shares", [PAPER, "#9ecae1", "#0072b2", "#08306b"])
    # shares span decades: the root shows small ones without hiding large ones
    image = axes.imshow(np.sqrt(shares), cmap=scale, vmin=0, vmax=1, interpolation="nearest")
    axes.grid(False)
    axes.set_title("Whose rows count (row: for whom)")
    if len(order) <= _NAMED:
        names, small = _labels(advised, order), 7 if len(order) <= 24 else 5
        axes.set_xticks(range(len(order)), names, rotation=90, fontsize=small)
        axes.set_yticks(range(len(order)), names, fontsize=small)
    else:
        axes.set_xlabel(f"{len(order)} clients, neighbours side by side")
        axes.set_xticks([])
        axes.set_yticks([])
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
    ticks = np.array([0.0, 0.01, 0.05, 0.2, 0.5, 1.0])
    bar.set_ticks(np.sqrt(ticks).tolist(), labels=[f"{100 * tick:g} %" for tick in ticks])
    bar.outline.set_visible(False)


def _graph(axes: Axes, advised: Advised) -> None:
    """Lines between those who share, as thick as the larger share; dots as large as a client's rows."""
    found = advised.found
    places, shares = np.array(found["map"]["places"]), np.array(found["map"]["shares"])
    both = np.maximum(shares, shares.T)
    first, second = np.nonzero(np.triu(both > _EDGES, 1))
    widths = 0.3 + 5 * both[first, second]
    lines = np.stack([places[first], places[second]], axis=1)
    axes.add_collection(LineCollection(list(lines), linewidths=widths.tolist(), colors=MUTED, alpha=0.45, zorder=1))
    rows = np.array([entry["rows"] for entry in found["clients"]], float)
    crowd = min(1.0, 50 / len(rows))
    sizes = crowd * (25 + 130 * rows / max(rows.max(), 1))
    colours = [COLOURS[entry["advice"]] for entry in found["clients"]]
    axes.scatter(places[:, 0], places[:, 1], s=sizes, c=colours, edgecolors=PAPER, linewidths=0.8, zorder=2)
    if len(places) <= _NAMED:
        for entry, (across, up) in zip(found["clients"], places):
            away: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
            axes.annotate(shortened(entry["client"], 12), (across, up), fontsize=6.5, color=INK, zorder=3, **away)
    axes.set_title("Who learns with whom")
    axes.set_xlim(-1.15, 1.15)
    axes.set_ylim(-1.15, 1.2)
    axes.axis("off")


def _gains(axes: Axes, advised: Advised, order: np.ndarray) -> None:
    """Expected gain of joining neighbours (dot, interval) and of joining everybody, beside what was measured."""
    clients = [advised.found["clients"][place] for place in order]
    across = np.arange(len(clients))
    thin = len(clients) > _NAMED
    for way, shift in (("everybody", 0.18), ("neighbours", -0.18)):
        gain = {key: np.array([entry["gain"][way][key] for entry in clients], float) for key in clients[0]["gain"][way]}
        style: dict[str, Any] = {"color": COLOURS[way], "linewidth": 0.6 if thin else 1.1, "alpha": 0.9}
        axes.hlines(across + shift, gain["low"], gain["high"], **style, zorder=2)
        axes.plot(gain["expected"], across + shift, "o", color=COLOURS[way], markersize=1.8 if thin else 3.6, zorder=3)
        if not thin:
            axes.plot(gain["measured"], across + shift, "|", color=INK, markersize=5, zorder=4)
    axes.axvline(0, color=LINE if thin else MUTED, linewidth=1.0, zorder=1)
    axes.set_ylim(len(clients) - 0.5, -0.5)
    axes.set_title(f"Gain over training alone ({advised.words.title})")
    axes.set_xlabel("expected (bar: 95 %), right is better")
    if thin:
        axes.set_yticks([])
    else:
        axes.set_yticks(across, _labels(advised, order), fontsize=7 if len(order) <= 24 else 5)
    axes.grid(False, axis="y")
