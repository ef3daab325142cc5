# SPDX-License-Identifier: Apache-2.0
"""Figures of the tables of Flow 2023: bars of accuracies, clients helped and rows right, ablations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from papers.drawing import BLUE, GREEN, INK, LINE, MUTED, PURPLE, VERMILION, blank

Table = Mapping[str, Mapping[str, Any]]  # column -> method -> Summary
TITLES = {
    "writers": "MNIST by writer",
    "shakespeare": "Shakespeare by role",
    "emnist": "EMNIST, Dirichlet 0.6",
    "fashion_0.1": "Fashion-MNIST, Dirichlet 0.1",
    "fashion_0.6": "Fashion-MNIST, Dirichlet 0.6",
    "half": "Fashion-MNIST, half relabelled",
    "quarter": "Fashion-MNIST, a quarter relabelled",
    "none": "Fashion-MNIST, as it is",
    "half_of_400": "half relabelled, 400 rows to train",
    "merged_writers": "MNIST, four writers a client",
    "merged_roles": "Shakespeare, several roles a client",
    "cifar10_0.1": "CIFAR-10, Dirichlet 0.1",
    "cifar10_0.6": "CIFAR-10, Dirichlet 0.6",
    "long_cifar10_0.1": "CIFAR-10, Dirichlet 0.1, 600 rounds",
    "long_cifar10_0.6": "CIFAR-10, Dirichlet 0.6, 600 rounds",
    "long_shakespeare": "Shakespeare by role, 640 rounds",
}
MODELS = {"shared": BLUE, "personal": VERMILION}
ROWS = {"both": GREEN, "shared_only": BLUE, "personal_only": VERMILION, "neither": LINE}


def _panels(number: int, most_across: int) -> tuple[Figure, list[Axes]]:
    across = min(number, most_across)
    down = -(-number // across)
    figure = blank(1.2 + 3.2 * across, 0.4 + 3.2 * down)
    panels = list(np.atleast_1d(figure.subplots(down, across)).flat)
    for empty in panels[number:]:
        empty.set_axis_off()
    return figure, panels


def draw_accuracy(table: Table, names: Mapping[str, str], paper: Mapping[str, Mapping[str, float]]) -> Figure:
    """Shared (blue) and personal (vermilion) accuracy with the spread over seeds; dashes: the paper's personal one."""
    figure, panels = _panels(len(table), 3)
    for axes, (name, row) in zip(panels, table.items()):
        axes.set_title(TITLES.get(name, name))
        for place, (method, one) in enumerate(row.items()):
            for values, colour, shift in ((one.shared, BLUE, -0.2), (one.personal, VERMILION, 0.2)):
                if np.isfinite(values).all():
                    axes.barh(place + shift, values.mean(), height=0.4, color=colour)
                    axes.errorbar(values.mean(), place + shift, xerr=values.std(), color=INK, linewidth=1, capsize=1.5)
            if method in paper.get(name, {}):
                x = paper[name][method]
                axes.plot([x, x], [place - 0.4, place + 0.4], color=MUTED, linestyle="--", linewidth=1.2)
        _name_rows(axes, [names[method] for method in row])
        axes.set_xlabel("test accuracy, %")
    _legend(figure, MODELS)
    return figure


def draw_helped(table: Table, names: Mapping[str, str], paper: Mapping[str, Mapping[str, float]]) -> Figure:
    """Per cent of clients with personal > shared (dashes: the paper's), and rows by which model gets them right."""
    figure, panels = _panels(2 * len(table), 4)
    for place, (name, row) in enumerate(table.items()):
        shown = {method: one for method, one in row.items() if np.isfinite(one.helped)}
        clients, rows = panels[2 * place], panels[2 * place + 1]
        for line, (method, one) in enumerate(shown.items()):
            clients.barh(line, one.helped, color=VERMILION, height=0.7)
            clients.barh(line, -one.hurt, color=BLUE, height=0.7)
            if method in paper.get(name, {}):
                x = paper[name][method]
                clients.plot([x, x], [line - 0.4, line + 0.4], color=MUTED, linestyle="--", linewidth=1.2)
            left = 0.0
            for part, share in one.rows.fractions().items():
                rows.barh(line, 100 * float(share), left=left, color=ROWS[part], height=0.7)
                left += 100 * float(share)
        for axes in (clients, rows):
            _name_rows(axes, [names[method] for method in shown])
        clients.set_title(TITLES.get(name, name))
        clients.set_xlabel("% of clients: shared | personal model better")
        rows.set_title("who gets test rows right")
        rows.set_xlabel("% of test rows")
    _legend(figure, {part.replace("_", " "): colour for part, colour in ROWS.items()})
    return figure


def draw_ablations(curves: Table, bars: Table, routing: Mapping[str, Any]) -> Figure:
    """Learning curves of Flow's variants (above), accuracies, routing shares (below), a column per data set."""
    rows = max(map(len, bars.values()))
    heights = (3.0, max(3.0, 0.2 * rows), 3.0)
    figure = blank(1.2 + 4.2 * len(curves), sum(heights))
    panels = figure.subplots(3, len(curves), squeeze=False, height_ratios=heights)
    palette = [VERMILION, BLUE, GREEN, PURPLE, INK, MUTED]
    for column, name in enumerate(curves):
        axes = panels[0, column]
        for place, (label, (rounds, values)) in enumerate(curves[name].items()):
            style = "-" if place < len(palette) else "--"
            axes.plot(rounds, values, color=palette[place % len(palette)], linestyle=style, label=label)
        axes.set_title(TITLES.get(name, name))
        axes.set_xlabel("rounds")
        axes.set_ylabel("validation accuracy, personal, %")
        axes.legend(fontsize=6.5, loc="lower right")
        axes = panels[1, column]
        for place, (_, (shared, personal)) in enumerate(bars[name].items()):
            axes.barh(place - 0.2, shared.mean(), height=0.4, color=BLUE)
            axes.barh(place + 0.2, personal.mean(), height=0.4, color=VERMILION)
            axes.errorbar(personal.mean(), place + 0.2, xerr=personal.std(), color=INK, linewidth=1, capsize=1.5)
        _name_rows(axes, list(bars[name]))
        axes.set_xlabel("test accuracy, %")
        _routing(panels[2, column], *routing[name])
    _legend(figure, MODELS | {"both right": GREEN, "neither": LINE})
    return figure


def draw_gains(gains: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """Points of accuracy over fine-tuning and half their intervals, a panel per column; label -> (mean, half)."""
    figure, panels = _panels(len(gains), 3)
    for axes, (name, row) in zip(panels, gains.items()):
        axes.set_title(TITLES.get(name, name))
        axes.axvline(0, color=MUTED, linestyle="--", linewidth=1)
        for place, (mean, half) in enumerate(row.values()):
            axes.errorbar(mean, place, xerr=half, fmt="o", color=VERMILION if mean - half > 0 else BLUE, markersize=4)
        _name_rows(axes, [label.replace("_", " ") for label in row])
        axes.set_xlabel("gain over fine-tuning, points of accuracy")
    return figure


def _routing(axes: Axes, layers: list[str], shares: Mapping[str, np.ndarray]) -> None:
    """Mean q_0 per layer, by who gets the row right."""
    width = 0.8 / len(shares)
    for place, (category, values) in enumerate(shares.items()):
        spots = np.arange(len(layers)) + (place - (len(shares) - 1) / 2) * width
        axes.bar(spots, values, width=width, color=ROWS[category], label=category.replace("_", " "))
    axes.axhline(0.5, color=MUTED, linestyle="--", linewidth=1)
    axes.set_xticks(np.arange(len(layers)), layers, rotation=30, ha="right")
    axes.set_ylabel("chance of the shared layer, $q_0$")
    axes.set_title("by who gets the row right")


def _name_rows(axes: Axes, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _legend(figure: Figure, parts: Mapping[str, str]) -> None:
    """One for all panels, below them."""
    patches = [Patch(color=colour, label=label) for label, colour in parts.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(parts))
