# SPDX-License-Identifier: Apache-2.0
"""Figure 7 of Unified 2023: ASCD-PFL with the shared block stored as w = M^{1/2} u, and as u itself."""

from __future__ import annotations

from matplotlib.figure import Figure

from papers.drawing import BLUE, VERMILION
from papers.lanes import Curves
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified_image_data import (
    TITLES,
    dealt_from,
    image_objective,
    read_images,
    relative_loss,
    set_up,
    train,
)
from papers.unified_image_figures import draw_panels

LOOKS = {
    "rescaled": {"color": VERMILION, "label": "with reparametrisation"},
    "plain": {"color": BLUE, "label": "without"},
}
Results = dict[tuple[str, str], dict[str, Curves]]  # (objective, data set) -> rescaled or plain -> curves


def measure(spec: Spec, progress: Progress) -> Measured:
    """The loss with rescaling over that without, and the accuracy it gains; each with its own theory's parameters."""
    images = {name: read_images(name, spec["data_seed"]) for name in spec["data_sets"]}
    results: Results = {}
    numbers: dict[str, float] = {}
    done = count_parts(progress, 2 * len(spec["objectives"]) * len(spec["data_sets"]))
    for objective in spec["objectives"]:
        for data_set in spec["data_sets"]:
            dealt = dealt_from(spec, images, data_set, spec["labels"])
            row = results[objective, data_set] = {}
            for name in LOOKS:
                stored = image_objective(objective, spec["labels"], dealt, spec, rescale=name == "rescaled")
                row[name] = train("ascd_pfl", set_up(stored, dealt, spec), dealt, spec, unsampled=spec["unsampled"])
                done(f"{objective} {data_set} {name}")
            losses = {name: relative_loss(curves)[:, -1].mean() for name, curves in row.items()}
            accuracies = {name: curves.last("accuracy").mean() for name, curves in row.items()}
            numbers[f"{objective}_{data_set}_loss_over_plain"] = float(losses["rescaled"] / losses["plain"])
            numbers[f"{objective}_{data_set}_accuracy_gain"] = float(accuracies["rescaled"] - accuracies["plain"])
    return Measured(numbers, results)


def draw(spec: Spec, results: Results) -> Figure:
    """A row per objective."""
    panels = {(TITLES[objective], data_set): row for (objective, data_set), row in results.items()}
    return draw_panels([TITLES[name] for name in spec["objectives"]], spec["data_sets"], panels, LOOKS)
