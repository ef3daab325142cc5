# SPDX-License-Identifier: Apache-2.0
"""The collaboration map: weights as a heat map, as a graph, and the gains that they are expected to bring."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from scipy.sparse.csgraph import connected_components

from idiolect.record.advice import CollaborationMap
from idiolect.report import style
from idiolect.report.advise_table import WORDS, Advised
from idiolect.report.figure_data import Data, packed
from idiolect.report.style import BLUE, GREEN, INK, LINE, MUTED, PAPER, Drawn, Look, key
from idiolect.report.wording import short, shortened

COLOURS = {"alone": MUTED, "everybody": GREEN, "neighbours": BLUE}
_NAMED = 60  # clients that can be named along an axis; more are drawn in groups
_GROUPS = 30  # groups of clients along an axis
_APART = 24  # clients whose names stand apart in the graph
_EDGES = 0.02  # share from which a line is drawn
_DOTS = 4_000  # clients drawn one by one; more are thinned out evenly
MUTUAL = 0.5  # of the share that all clients alike would have: what both must give to stand in one group
LEAST_SHARE = 0.005  # of the weight of a client: less is not in the page's data

_CAPTION = (
    "Left: whose rows count for whom; clients that learn together stand side by side. Middle: the same as a graph, "
    "dots as large as a client's rows. Right: expected gain over training alone with its 95 % interval, for joining "
    "neighbours and for joining all clients; the black mark is what was measured on held-out rows."
)
_CROWDED = (
    "Right: every client's expected gain against its rows. Middle: clients sorted by the expected gain of what they "
    "are advised, with its 95 % interval."
)
_GROUPED = "Left: how much clients of one group count for those of another, in the mean; groups are named by a member. "


def drawn_map(advised: Advised) -> list[Drawn]:
    """The map as files."""
    caption = _CAPTION
    if advised.found.all_clients > _NAMED:
        caption = (_GROUPED if advised.found.map is not None else "Left: what clients are advised. ") + _CROWDED
    return style.drawn("map", "Who learns with whom", caption, lambda: draw(advised))


def draw(advised: Advised) -> Figure:
    """Three panels; up to 60 clients are named, more are drawn in groups."""
    weights, dot = advised.found.map, {"linestyle": "none", "marker": "o", "markersize": 6}
    legend = [key(f"advice: {words}", color=COLOURS[way], **dot) for way, words in WORDS.items()]
    if weights is None or advised.found.all_clients > _NAMED:
        figure, (left, middle, right) = _three_panels(14.0, 5.8, (1.2, 1.0, 1.0), 2.6)
        if weights is not None:
            _group_heat(left, advised, weights)
        else:
            _bars(left, advised)
        _sorted_gains(middle, right, advised)
        style.add_legend(figure, legend, loc="outside lower center", ncols=3)
        return figure
    order = np.array(weights.order, int)
    height, each = max(5.4, 2.2 + 0.17 * len(order)), max(2.4, 0.13 * len(order))
    figure, (heat, graph, gains) = _three_panels(6.6 + 1.25 * height, height, (1.15, 1.0, 0.95), each)
    _show_shares(heat, np.array(weights.shares, float)[np.ix_(order, order)], _labels(advised, order))
    heat.set_title("Whose rows count (row: for whom)")
    _graph(graph, advised, weights)
    _gains(gains, advised, order)
    mark = key("measured, held out", color=INK, linestyle="none", marker="|", markersize=8)
    style.add_legend(figure, [*legend, mark], loc="outside lower center")
    return figure


def _three_panels(width: float, height: float, ratios: tuple[float, ...], each: float) -> tuple[Figure, list[Axes]]:
    """A figure of three panels side by side; in a narrow paper below each other, each of that height."""
    beside = style.panels_across(len(ratios), 2.2) == len(ratios)
    rows, columns = (1, len(ratios)) if beside else (len(ratios), 1)
    figure = style.blank(width, height, on_paper=0.5 + rows * each)
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=ratios if beside else None)
    return figure, list(grid.ravel())


def _labels(advised: Advised, order: np.ndarray) -> list[str]:
    return [shortened(advised.found.clients[place].client, 18) for place in order]


def _show_shares(axes: Axes, shares: np.ndarray, names: list[str]) -> None:
    scale = LinearSegmentedColormap.from_list("shares", [PAPER, "#9ecae1", BLUE, "#08306b"])
    # shares span decades: the root shows small ones without hiding large ones
    image = axes.imshow(np.sqrt(shares), cmap=scale, vmin=0, vmax=1, interpolation="nearest")
    image.set_label("square root of the weight (row: for whom)")
    axes.grid(False)
    size = 7.5 if len(names) <= 24 else 6.5
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02)
    ticks = np.array([0.0, 0.01, 0.05, 0.2, 0.5, 1.0])
    bar.set_ticks(np.sqrt(ticks).tolist(), labels=[f"{100 * tick:g} %" for tick in ticks])
    bar.outline.set_visible(False)


def _group_heat(axes: Axes, advised: Advised, weights: CollaborationMap) -> None:
    """Clients side by side on the map, in groups of equal size, each named by its first and its number of others."""
    order = np.array(weights.order, int)
    groups, shares = np.array_split(order, _GROUPS), np.array(weights.shares, float)
    means = np.array([[shares[np.ix_(one, other)].sum(axis=1).mean() for other in groups] for one in groups])
    first = _labels(advised, np.array([group[0] for group in groups]))
    names = [f"{label} +{len(group) - 1}" for group, label in zip(groups, first)]
    _show_shares(axes, means, names)
    axes.set_title(f"Whose rows count, {len(order)} clients in groups")


def _bars(axes: Axes, advised: Advised) -> None:
    """How many clients get which advice, by their number of rows."""
    seen = advised.columns("rows", "advice")
    rows, advice = seen["rows"], seen["advice"]
    # about as many clients in each bar; equal quantiles fall together where many clients have as many rows
    edges = np.unique(np.quantile(rows, np.linspace(0, 1, 6)).round().astype(int))
    part = np.clip(np.searchsorted(edges, rows, side="right") - 1, 0, max(len(edges) - 2, 0))
    places, below = np.arange(part.max() + 1), np.zeros(part.max() + 1)
    for way, colour in COLOURS.items():
        amounts = np.bincount(part[advice == way], minlength=len(places)).astype(float)
        for bar in axes.bar(places, amounts, bottom=below, color=colour, width=0.7, zorder=3):
            bar.set_label(f"clients: {WORDS[way]}")
        below += amounts
    ends = [*edges[1:-1] - 1, edges[-1]] if len(edges) > 1 else edges
    names = [f"{low}" if low == high else f"{low} to {high}" for low, high in zip(edges, ends)]
    axes.set_xticks(places, names[: len(places)])
    axes.set(xlabel="rows of a client", title="Clients by advice")


def _sorted_gains(line: Axes, cloud: Axes, advised: Advised) -> None:
    ways = [f"gain_{way}_{part}" for way in COLOURS for part in ("expected", "low", "high")]
    seen = advised.columns("rows", "advice", *ways)
    step = -(-len(seen["rows"]) // _DOTS)
    expected, low, high = (
        np.select([seen["advice"] == way for way in COLOURS], [seen[f"gain_{way}_{part}"] for way in COLOURS])
        for part in ("expected", "low", "high")
    )
    order = np.argsort(expected, kind="stable")[::step]
    places, gains = np.linspace(0, 100, len(order)), expected[order]
    colours = [COLOURS[way] for way in seen["advice"][order]]
    line.vlines(places, low[order], high[order], color=LINE, linewidth=0.5, zorder=2, label="95 % interval")
    line.scatter(places, gains, s=5, c=colours, zorder=3, label="expected gain")
    line.set(xlabel="clients, by expected gain (%)", title=f"Gain over training alone ({advised.words.title})")
    held = np.maximum(seen["rows"][order], 1)
    cloud.scatter(held, gains, s=6, c=colours, alpha=0.7, zorder=3, label="expected gain")
    cloud.set(xscale="log", xlabel="rows of the client", title="Gain against rows")
    style.label_ticks(cloud.xaxis, short)
    for axes in (line, cloud):
        axes.axhline(0, color=MUTED, linewidth=1.0, zorder=1)


def _graph(axes: Axes, advised: Advised, weights: CollaborationMap) -> None:
    """Lines between those who share, as thick as the larger share; dots as large as a client's rows."""
    found = advised.found
    places, shares = np.array(weights.places, float), np.array(weights.shares, float)
    # one line per pair, though each of both has its own weight for the other
    both = np.maximum(shares, shares.T)
    first, second = np.nonzero(np.triu(both > _EDGES, 1))
    widths = 0.3 + 5 * both[first, second]
    lines = np.stack([places[first], places[second]], axis=1)
    look: Look = {"colors": MUTED, "alpha": 0.45, "zorder": 1, "label": "learn together"}
    axes.add_collection(LineCollection(list(lines), linewidths=widths.tolist(), **look))
    rows = np.array([entry.rows for entry in found.clients], float)
    crowd = min(1.0, 30 / len(rows))
    sizes = crowd * (25 + 130 * rows / max(rows.max(), 1))
    colours = [COLOURS[entry.advice] for entry in found.clients]
    dots: Look = {"edgecolors": PAPER, "linewidths": 0.8, "zorder": 2, "label": "clients"}
    axes.scatter(places[:, 0], places[:, 1], s=sizes, c=colours, **dots)
    label: Look = {"textcoords": "offset points", "ha": "center", "fontsize": 6.5, "color": INK, "zorder": 3}
    for entry, place in zip(found.clients, places) if len(places) <= _APART else ():
        axes.annotate(shortened(entry.client, 12), tuple(place), (0, 6), **label)
    axes.set(title="Who learns with whom", xlim=(-1.15, 1.15), ylim=(-1.15, 1.2))
    axes.axis("off")


def _gains(axes: Axes, advised: Advised, order: np.ndarray) -> None:
    """Expected gain of joining neighbours (dot, interval) and of joining all clients, beside what was measured."""
    clients = [advised.found.clients[place] for place in order]
    across = np.arange(len(clients))
    for way, shift in (("everybody", 0.18), ("neighbours", -0.18)):
        gains = [entry.gain[way] for entry in clients]
        measured, expected, low, high = np.array([(g.measured, g.expected, g.low, g.high) for g in gains], float).T
        up, name = across + shift, WORDS[way]
        bars: Look = {"color": COLOURS[way], "linewidth": 1.1, "alpha": 0.9, "zorder": 2}
        axes.hlines(up, low, high, label=f"{name}: 95 % interval", **bars)
        axes.plot(expected, up, "o", color=COLOURS[way], markersize=3.6, zorder=3, label=f"{name}: expected gain")
        axes.plot(measured, up, "|", color=INK, markersize=5, zorder=4, label=f"{name}: measured gain")
    axes.axvline(0, color=MUTED, linewidth=1.0, zorder=1)
    title = f"Gain over training alone ({advised.words.title})"
    axes.set(title=title, xlabel="expected (bar: 95 %), right is better", ylim=(len(clients) - 0.5, -0.5))
    axes.set_yticks(across, _labels(advised, order), fontsize=7.5 if len(order) <= 24 else 6.5)
    axes.grid(False, axis="y")


def map_data(advised: Advised) -> Data:
    """Every client with its advice, group and expected gain; where the map is known, places and weights."""
    clients, words = advised.found.clients, advised.words
    gains = [entry.advised_gain for entry in clients]
    weights = advised.found.map
    return {
        "kind": "map",
        "title": f"expected gain ({words.title})",
        "scale": words.scale,
        "names": [entry.client for entry in clients],
        "rows": [entry.rows for entry in clients],
        "ways": list(WORDS.values()),
        "advice": [list(WORDS).index(entry.advice) for entry in clients],
        "groups": _groups(advised),
        "gain": packed([gain.expected for gain in gains]),
        "low": packed([gain.low for gain in gains]),
        "high": packed([gain.high for gain in gains]),
        "weights": None if weights is None else _weights(weights),
    }


def _groups(advised: Advised) -> list[int]:
    """Numbers from 1: clients that count for one another, both ways, directly or through others; or their blocks."""
    found = advised.found
    if found.map is None:
        return [entry.block + 1 for entry in found.clients]
    shares = np.asarray(found.map.shares, float)
    # both ways: a client whom all others use, and who uses none, would tie everybody together
    mutual = np.minimum(shares, shares.T) >= MUTUAL / len(shares)
    _, group = connected_components(mutual, directed=False)
    named = {one: place + 1 for place, one in enumerate(dict.fromkeys(group[list(found.map.order)].tolist()))}
    return [named[one] for one in group.tolist()]


def _weights(found: CollaborationMap) -> Data:
    shares, places = np.asarray(found.shares, float), np.asarray(found.places, float)
    of, whose = np.nonzero(shares >= LEAST_SHARE)
    return {
        "order": list(found.order),
        "across": packed(places[:, 0]),
        "up": packed(places[:, 1]),
        "of": of.tolist(),
        "whose": whose.tolist(),
        "share": packed(shares[of, whose]),
    }
