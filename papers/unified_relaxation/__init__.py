# SPDX-License-Identifier: Apache-2.0
"""Figure 8 of Unified 2023: MT2 with growing weight Lam on the shared model's own loss (Lam to infinity: Ditto)."""

from __future__ import annotations

import itertools

import numpy as np
from matplotlib.figure import Figure

from idiolect import MT2
from papers.drawing import BLUE, GREEN, PURPLE, VERMILION
from papers.lanes import Curves
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified_image_data import TITLES, dealer, image_loss, set_up, train_ascd
from papers.unified_image_data import check as check
from papers.unified_image_figures import draw_panels

COLOURS = (BLUE, VERMILION, GREEN, PURPLE)
Results = dict[str, dict[str, Curves]]  # data set -> Lam -> curves


def measure(spec: Spec, progress: Progress) -> Measured:
    """Accuracy of beta_m for every Lam, and what it gains from each to the next, mean over the data sets."""
    deal = dealer(spec)
    results: Results = {}
    done = count_parts(progress, len(spec["data_sets"]) * len(spec["relaxations"]))
    for data_set in spec["data_sets"]:
        dealt = deal(data_set, spec["labels"])
        row = results[data_set] = {}
        for relaxation in spec["relaxations"]:
            objective = MT2(image_loss(dealt), penalty=spec["penalty"], relaxation=float(relaxation))
            row[f"{relaxation:g}"] = train_ascd(set_up(objective, dealt, spec), dealt, spec)
            done(f"{data_set} Lam {relaxation:g}")
    ends = {name: np.stack([row[name].last("accuracy") for row in results.values()]) for name in row}
    numbers = {
        f"gain_{before}_to_{after}": float(ends[after].mean() - ends[before].mean())
        for before, after in itertools.pairwise(ends)
    }
    return Measured(numbers, results, _table(spec, ends))


def _table(spec: Spec, ends: dict[str, np.ndarray]) -> str:
    """Accuracies with the standard error over seeds: a row per Lam, a column per data set."""
    lines = [f"{'Lam':<6}" + "".join(f"{TITLES[data_set]:>18}" for data_set in spec["data_sets"])]
    for name, accuracies in ends.items():
        errors = accuracies.std(axis=1, ddof=1) / np.sqrt(accuracies.shape[1])
        cells = [f"{mean:>10.3f} ({error:.3f})" for mean, error in zip(accuracies.mean(axis=1), errors)]
        lines.append(f"{name:<6}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def draw(spec: Spec, results: Results) -> Figure:
    """One row; losses of different Lam are of different objectives, so only their own starts compare."""
    names = [f"{relaxation:g}" for relaxation in spec["relaxations"]]
    looks = {
        name: {"color": COLOURS[place % len(COLOURS)], "label": rf"$\Lambda$ = {name}"}
        for place, name in enumerate(names)
    }
    panels = {("MT2", data_set): row for data_set, row in results.items()}
    return draw_panels(["MT2"], spec["data_sets"], panels, looks)
