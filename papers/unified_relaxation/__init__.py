# SPDX-License-Identifier: Apache-2.0
"""Figure 8 of Unified 2023: MT2 with growing weight Lam on the shared model's own loss (Lam to infinity: Ditto)."""

from __future__ import annotations

import itertools

from matplotlib.figure import Figure

from idiolect import MT2
from papers.drawing import BLUE, GREEN, PURPLE, VERMILION
from papers.lanes import Curves
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified_image_data import dealt_from, image_loss, read_images, set_up, train
from papers.unified_image_figures import draw_panels

COLOURS = (BLUE, VERMILION, GREEN, PURPLE)
Results = dict[str, dict[str, Curves]]  # data set -> Lam -> curves


def measure(spec: Spec, progress: Progress) -> Measured:
    """Accuracy of beta_m for every Lam, and what it gains from each to the next."""
    images = {name: read_images(name, spec["data_seed"]) for name in spec["data_sets"]}
    results: Results = {}
    numbers: dict[str, float] = {}
    done = count_parts(progress, len(spec["data_sets"]) * len(spec["relaxations"]))
    for data_set in spec["data_sets"]:
        dealt = dealt_from(spec, images, data_set, spec["labels"])
        row = results[data_set] = {}
        for relaxation in spec["relaxations"]:
            objective = MT2(image_loss(dealt), penalty=spec["penalty"], relaxation=float(relaxation))
            setup = set_up(objective, dealt, spec)
            row[f"{relaxation:g}"] = train("ascd_pfl", setup, dealt, spec, unsampled=spec["unsampled"])
            done(f"{data_set} Lam {relaxation:g}")
        accuracies = {name: float(curves.last("accuracy").mean()) for name, curves in row.items()}
        names = list(accuracies)
        for before, after in itertools.pairwise(names):
            numbers[f"{data_set}_gain_{before}_to_{after}"] = accuracies[after] - accuracies[before]
    return Measured(numbers, results)


def draw(spec: Spec, results: Results) -> Figure:
    """One row; losses of different Lam are of different objectives, so only their own starts compare."""
    names = [f"{relaxation:g}" for relaxation in spec["relaxations"]]
    looks = {
        name: {"color": COLOURS[place % len(COLOURS)], "label": rf"$\Lambda$ = {name}"}
        for place, name in enumerate(names)
    }
    panels = {("MT2", data_set): row for data_set, row in results.items()}
    return draw_panels(["MT2"], spec["data_sets"], panels, looks)
