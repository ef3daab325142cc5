# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.protection_figure [FOLDER]` draws what protections cost into docs/assets/protection.svg.

Epsilon is read from the result of `protection-clip`, attackers and bytes from that of `protection`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from benchmarks.protection import CODECS, EPSILONS, FRACTIONS, METHODS, SETS, attackers
from idiolect.report import style
from idiolect.report.wording import short

ROOT = Path(__file__).parents[1]
CLIENTS = {"heart_disease": (4, "hospitals"), "landmine": (29, "minefields"), "school": (139, "schools")}
SCORES = {"accuracy": "accuracy (higher is better)", "auc": "AUC (higher is better)", "rmse": "RMSE (lower is better)"}
COLUMNS = {  # title -> what is along it
    "Privacy": "epsilon (∞: clip, no noise)",
    "Attackers": "clients that attack",
    "Bytes": "kB up (fewer to the right)",
}
COLOURS = style.series_colours(tuple(METHODS))
RULES: dict[str, style.Look] = {  # of the server
    "mean": {"linestyle": "-", "markersize": 4},
    "median": {"linestyle": ":", "markersize": 4, "markerfacecolor": style.PAPER},
}
MARKERS = {"plain": "o", **dict(zip(CODECS, ("s", "^", "D")))}  # of what is sent
LINE: style.Look = {"linewidth": 1.1, "elinewidth": 0.8, "zorder": 3}
APART = 3.0  # points between the marks of two methods at one place
CLOSER = 1.5  # the same where places are close to each other

Found = Mapping[str, Mapping[str, Mapping[str, float]]]  # "<data> <method>" -> cell -> score, half_width, upload_bytes


class Point(NamedTuple):
    """One score and where it stands."""

    place: float
    score: float
    half_width: float


def draw(clipped: Found, found: Found) -> Figure:
    """A row per data set: scores against epsilon, attackers and bytes, a line per method."""
    figure = style.blank(7.9, 7.4)
    panels = figure.subplots(len(SETS), len(COLUMNS), sharey="row")
    for row, (source, score) in zip(panels, SETS.items()):
        alone = found[f"{source} local"]["plain"]
        for axes in row:
            axes.axhline(alone["score"], color=style.MUTED, linestyle=style.DASHED, linewidth=1.1)
            axes.xaxis.set_minor_locator(NullLocator())
        for place, method in enumerate(METHODS):
            aside = place - (len(METHODS) - 1) / 2
            _epsilons(row[0], clipped[f"{source} {method}"], COLOURS[method], APART * aside)
            _attackers(row[1], found[f"{source} {method}"], CLIENTS[source][0], COLOURS[method], APART * aside)
            _sizes(row[2], found[f"{source} {method}"], COLOURS[method], CLOSER * aside)
        count, clients = CLIENTS[source]
        row[0].set_ylabel(f"{count} {clients}\n{SCORES[score]}")
        _ticks(*row)
    for top, bottom, title in zip(panels[0], panels[-1], COLUMNS):
        top.set_title(title)
        bottom.set_xlabel(COLUMNS[title])
    style.add_legend(figure, _legend(), ncols=6)
    return figure


def _epsilons(axes: Axes, cells: Mapping[str, Mapping[str, float]], colour: str, aside: float) -> None:
    names = ("adaptive, no noise", *(f"adaptive, epsilon {one:g}" for one in EPSILONS))
    points = [_point(place, cells[name]) for place, name in enumerate(names) if name in cells]
    _line(axes, points, colour, aside, marker="o", **RULES["mean"])


def _attackers(axes: Axes, cells: Mapping[str, Mapping[str, float]], clients: int, colour: str, aside: float) -> None:
    for (rule, look), beside in zip(RULES.items(), (-2.5 * APART, 2.5 * APART)):
        # of four hospitals one attacks, whether 10 % are asked for or 25 %: one point
        attacked = {attackers(clients, part) / clients: cells[f"{part:.0%} attack, {rule}"] for part in FRACTIONS}
        points = [_point(100 * part, cell) for part, cell in attacked.items()]
        if rule == "mean":  # the median was not measured without attackers
            points.insert(0, _point(0.0, cells["plain"]))
        _line(axes, points, colour, aside + beside, marker="o", **look)


def _sizes(axes: Axes, cells: Mapping[str, Mapping[str, float]], colour: str, aside: float) -> None:
    sizes = {name: _point(cells[name]["upload_bytes"] / 1000, cells[name]) for name in MARKERS if name in cells}
    _line(axes, sorted(sizes.values()), colour, aside, linestyle="-", marker="")
    for name, point in sizes.items():
        _line(axes, [point._replace(half_width=0.0)], colour, aside, linestyle="", marker=MARKERS[name], markersize=4)


def _point(place: float, cell: Mapping[str, float]) -> Point:
    return Point(place, cell["score"], cell["half_width"])


def _line(axes: Axes, points: list[Point], colour: str, aside: float, **look: object) -> None:
    # Methods stand side by side, so that their intervals can be told apart; the shift is in points of paper.
    figure = axes.get_figure(root=True)
    assert figure is not None
    shift = ScaledTranslation(aside / 72, 0, figure.dpi_scale_trans)
    places, scores, half_widths = zip(*points)
    drawn = axes.errorbar(places, scores, half_widths, color=colour, **LINE | look)
    for part in drawn.get_children():  # afterwards, so that the limits are those of the numbers
        part.set_transform(axes.transData + shift)


def _ticks(privacy: Axes, attack: Axes, sizes: Axes) -> None:
    privacy.set_xticks(range(len(EPSILONS) + 1), ["∞", *(f"{one:g}" for one in EPSILONS)])
    privacy.set_xlim(-0.4, len(EPSILONS) + 0.4)
    attack.set_xticks([0, *(100 * part for part in FRACTIONS)], ["none", *(f"{100 * part:g} %" for part in FRACTIONS)])
    attack.set_xlim(-5, 31)
    sizes.set_xscale("log")
    sizes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    sizes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    sizes.xaxis.set_minor_locator(NullLocator())
    sizes.margins(x=0.12)
    sizes.invert_xaxis()  # as in the other columns, the run without a protection or an attack is at the left


def _legend() -> list[Artist]:
    methods = [style.key(name, color=colour, marker="o", markersize=4) for name, colour in COLOURS.items()]
    methods.append(style.key("local", color=style.MUTED, linestyle=style.DASHED))
    rules = [style.key(f"{name} of uploads", color=style.INK, marker="o", **look) for name, look in RULES.items()]
    sent = [
        style.key(name, color=style.INK, marker=marker, linestyle="", markersize=4) for name, marker in MARKERS.items()
    ]
    return [*methods, *rules, *sent]


def main(folder: Path) -> None:
    """Read the results, write the figure."""
    clipped, found = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["numbers"]
        for name in ("protection-clip", "protection")
    )
    caption = "Scores against epsilon, attackers and bytes"
    figure = style.drawn("protection", "What protections cost", caption, lambda: draw(clipped, found))
    assert figure is not None
    (ROOT / "docs" / "assets" / "protection.svg").write_bytes(figure.svg)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "benchmarks" / "results")
