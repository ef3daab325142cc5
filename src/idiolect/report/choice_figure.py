# SPDX-License-Identifier: Apache-2.0
"""Score against a setting, with every client's choice marked, above what each value cost: drawn, and as data."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect.report import style
from idiolect.report.choice_table import ChoiceFound, chosen_of
from idiolect.report.figure_data import Data, packed
from idiolect.report.style import BLUE, DASHED, INK, MUTED, PAPER, SKY, VERMILION, Drawn, Look, key
from idiolect.report.wording import short

_MEAN, _CHOICE, _BARS = BLUE, VERMILION, SKY
_ROOMY = 7  # values that leave room for a second line
_NAMED = 12  # clients that can be named at the edge without a crowd


CAPTION = (
    "Test score of the personal models at every value, above what each cost. Thick: mean over clients; dashed: their "
    "worst tenth; grey: each client, with a dot where it chose on its validation rows."
)


def drawn_choice(choice: ChoiceFound, name: str) -> list[Drawn]:
    """The figure as files; `name` is theirs."""
    what = f"core and price of {choice.found.setting}"
    title = f"S{what}" if choice.warm else f"{choice.found.method}: s{what}"
    return style.drawn(name, title, CAPTION, lambda: draw(choice))


def draw(choice: ChoiceFound) -> Figure:
    """Values stand in the order of the path, evenly: what lies between 0.1 and 0 is as much a step as 1 to 0.5."""
    figure, values = style.blank(8.2, 6.4, on_paper=4.6), choice.found.values
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.15))
    _scores(above, choice)
    _prices(below, choice)
    # every value, and its gradients where there is room
    ticks = [choice.named(entry.value).replace(", ", "\n").replace(" (", "\n(") for entry in values]
    if len(values) <= _ROOMY:
        ticks = [f"{tick}\n{short(entry.spent.gradients)} gradients" for tick, entry in zip(ticks, values)]
    below.set_xticks(range(len(values)), ticks)
    order = "in the order of the path" if choice.warm else "each from a cold start"
    below.set(xlabel=f"{choice.found.setting}, {order}", xlim=(-0.45, len(values) - 0.55))
    entries = [
        key("one value for all: mean over clients", color=_MEAN, linewidth=2.4),
        key("their worst tenth", color=_MEAN, linewidth=1.4, linestyle=DASHED),
        key("each client", color=MUTED, linewidth=0.8),
        key("own choice: mean (dashed: worst tenth)", color=_CHOICE, linewidth=1.6),
        key("its choice on validation rows", color=_CHOICE, linestyle="none", marker="o", markersize=5),
        key("bytes of the value (line: so far)", color=_BARS, linewidth=6),
    ]
    style.add_legend(figure, entries, ncols=3, columnspacing=1.4)
    return figure


def _scores(axes: Axes, choice: ChoiceFound) -> None:
    found, scale, places = choice.found, choice.words.scale, np.arange(len(choice.found.values))
    _clients(axes, choice)
    for part, dashes, width in (("mean", "-", 2.4), ("worst_decile", DASHED, 1.4)):
        line = np.array([getattr(one.test, part) for one in found.values], float) * scale
        own, spoken = getattr(found.chosen.test, part), part.replace("_", " ")
        look: Look = {"color": _MEAN, "linestyle": dashes, "linewidth": width, "marker": "o", "markersize": 3.5}
        axes.plot(places, line, zorder=4, label=f"one value for all: {spoken}", **look)
        look = {"color": _CHOICE, "linestyle": dashes, "linewidth": width - 0.8, "zorder": 3}
        axes.axhline(float("nan") if own is None else own * scale, label=f"own choice: {spoken}", **look)
    low, high = np.array([one.test.interval or (None, None) for one in found.values], float).T * scale
    axes.vlines(places, low, high, color=_MEAN, linewidth=1.2, zorder=4, label="95 % interval of the mean")
    axes.set_ylabel(f"test {choice.words.title}")
    axes.tick_params(labelbottom=False)


def _clients(axes: Axes, choice: ChoiceFound) -> None:
    """A line per client with a dot at its choice, and the names of few clients at the edge."""
    names, places = choice.found.clients, np.arange(len(choice.found.values))
    rows, ends, few = choice.of_clients(), dict[float, list[str]](), len(names) <= _NAMED
    faint = max(0.15, min(0.7, 12 / max(len(names), 1)))
    dot: Look = {"s": 30 if len(names) <= 60 else 12, "color": _CHOICE, "linewidths": 0.8, "edgecolors": PAPER}
    label: Look = {"va": "center", "color": MUTED, "fontsize": 7}
    for order, name in enumerate(names):
        scores = np.array([row.test for row in rows[name]], float) * choice.words.scale
        axes.plot(places, scores, color=MUTED, linewidth=0.8, alpha=faint, zorder=2, label=f"client {name}")
        chosen, _ = chosen_of(rows[name])
        # many clients choose alike: side by side they do not hide one another
        aside = 0.0 if few else 0.3 * (order / (len(names) - 1) - 0.5)
        axes.scatter(chosen + aside, scores[chosen], zorder=5, label=f"choice of client {name}", **dot)
        if few and np.isfinite(scores[-1]):
            ends.setdefault(float(scores[-1]), []).append(name)
    for height, together in ends.items():  # names of equal scores would hide one another
        axes.annotate(", ".join(together), (places[-1], height), (6, 0), textcoords="offset points", **label)


def _prices(axes: Axes, choice: ChoiceFound) -> None:
    """Bars: the value alone; line: all so far."""
    entries = choice.found.values
    places = np.arange(len(entries))
    spent = np.array([entry.spent.traffic_bytes for entry in entries], float)
    so_far = np.array([entry.spent_so_far.total_bytes for entry in entries], float)
    factor, unit = (1e-6, "MB") if so_far.max(initial=0) >= 1e6 else (1e-3, "kB")
    for bar in axes.bar(places, spent * factor, width=0.5, color=_BARS, zorder=3):
        bar.set_label(f"{unit} of the value")
    look: Look = {"color": INK, "linewidth": 1.2, "marker": "o", "markersize": 3.5, "zorder": 4}
    axes.plot(places, so_far * factor, label=f"{unit} so far", **look)
    axes.set(ylabel=unit, ylim=(0, 1.15 * max(float(so_far.max(initial=0)) * factor, 1e-9)))
    style.label_ticks(axes.yaxis, short)


def choice_data(choice: ChoiceFound) -> Data:
    """Score at every value, of all clients and of each, with its choice, and what each value sent."""
    found, rows = choice.found, choice.of_clients()
    tests = [entry.test for entry in found.values]
    return {
        "kind": "choice",
        "title": f"test {choice.words.title}",
        "scale": choice.words.scale,
        "setting": found.setting,
        "values": [choice.named(entry.value) for entry in found.values],
        "mean": [test.mean for test in tests],
        "worst": [test.worst_decile for test in tests],
        "own": [found.chosen.test.mean, found.chosen.test.worst_decile],
        "bytes": [entry.spent.traffic_bytes for entry in found.values],
        "names": list(rows),
        "scores": packed([row.test for lines in rows.values() for row in lines]),
        "chosen": [chosen_of(lines)[0] for lines in rows.values()],
    }
