# SPDX-License-Identifier: Apache-2.0
"""The figure of scafflix-networks: accuracy against rounds on two data sets, table 1 as bars, three ablations."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from papers.drawing import BLUE, GREEN, INK, MUTED, PURPLE, VERMILION, blank, draw_band
from papers.reproduction import Spec, mean_and_half_width

LOOKS = {
    "fedavg": ("FedAvg", BLUE),
    "flix": ("FLIX", GREEN),
    "scaffnew": ("Scaffnew", PURPLE),
    "scafflix": ("Scafflix", VERMILION),
}
TITLES = {"writers": "MNIST by writer, CNN", "shakespeare": "Shakespeare by role, LSTM"}
PAPER = {"writers": (85.25, 87.18, 87.73, 89.43), "shakespeare": (38.67, 43.40, 51.66, 54.21)}  # table 1, per cent
ABLATIONS = {"alpha": r"personalization $\alpha$", "cohort": "clients per round", "p": "$p$"}


def draw(spec: Spec, results: Any) -> Figure:
    """Six panels."""
    figure = blank(10.5, 6.2)
    panels = figure.subplots(2, 3)
    for axes, (name, row) in zip(panels[0], results.table.items()):
        _curves(axes, row)
        axes.set_title(TITLES[name])
    _bars(panels[0, 2], results)
    for axes, (key, label) in zip(panels[1], ABLATIONS.items()):
        _ablation(axes, results.ablations[key])
        axes.set_title(f"Scafflix, {label}")
    panels[0, 0].legend(loc="lower right")
    return figure


def _curves(axes: Axes, row: Any) -> None:
    for short, trained in row.items():
        label, colour = LOOKS[short]
        draw_band(axes, trained.rounds, 100 * trained.validation, color=colour, label=label)
    axes.set_xlabel("communication rounds")
    axes.set_ylabel("validation accuracy, %")


def _bars(axes: Axes, results: Any) -> None:
    """Ours with the interval over clients; the paper's numbers, on its own data, as dashes."""
    ticks, place = [], 0
    for name, row in results.table.items():
        for (label, colour), trained, published in zip(LOOKS.values(), row.values(), PAPER[name]):
            mean, half = mean_and_half_width(100 * np.nanmean(trained.test, axis=0))
            axes.bar(place, mean, color=colour, width=0.8)
            axes.errorbar(place, mean, half, color=INK, linewidth=1, capsize=2)
            axes.plot([place - 0.4, place + 0.4], [published] * 2, color=MUTED, linestyle="--", linewidth=1.2)
            ticks.append((place, label))
            place += 1
        place += 1
    axes.set_xticks([tick for tick, _ in ticks], [label for _, label in ticks], rotation=60, ha="right")
    axes.set_ylabel("test accuracy, %")
    axes.set_title("Table 1 (dashes: the paper's)")


def _ablation(axes: Axes, row: Any) -> None:
    colours = [BLUE, GREEN, PURPLE, VERMILION, MUTED, INK]
    for colour, (value, trained) in zip(colours, row.items()):
        axes.plot(trained.rounds, 100 * trained.validation.mean(axis=0), color=colour, label=f"{value:g}")
    axes.set_xlabel("communication rounds")
    axes.set_ylabel("validation accuracy, %")
    axes.legend(loc="lower right")
