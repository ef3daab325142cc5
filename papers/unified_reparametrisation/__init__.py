# SPDX-License-Identifier: Apache-2.0
"""Figure 7 of Unified 2023: ASCD-PFL with the shared block stored as w = M^{1/2} u, and as u itself."""

from __future__ import annotations

from matplotlib.figure import Figure

from papers.drawing import BLUE, VERMILION
from papers.lanes import Curves
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified_image_data import TITLES, dealer, image_objective, published_end, relative_loss, set_up, train_ascd
from papers.unified_image_data import check as check
from papers.unified_image_figures import draw_panels

LOOKS = {
    "rescaled": {"color": VERMILION, "label": "with reparametrisation"},
    "plain": {"color": BLUE, "label": "without"},
}
Results = dict[tuple[str, str], dict[str, Curves]]  # (objective, data set) -> rescaled or plain -> curves


def measure(spec: Spec, progress: Progress) -> Measured:
    """The loss with rescaling over that without, and the accuracy it gains; each with its own theory's parameters."""
    deal = dealer(spec)
    results: Results = {}
    numbers: dict[str, float] = {}
    done = count_parts(progress, len(LOOKS) * len(spec["objectives"]) * len(spec["data_sets"]))
    for objective in spec["objectives"]:
        for data_set in spec["data_sets"]:
            dealt = deal(data_set, spec["labels"])
            row = results[objective, data_set] = {}
            for name in LOOKS:
                stored = image_objective(objective, spec["labels"], dealt, spec, rescale=name == "rescaled")
                row[name] = train_ascd(set_up(stored, dealt, spec), dealt, spec)
                done(f"{objective} {data_set} {name}")
            ends = _numbers(row, both=data_set in spec["as_released"])
            numbers |= {f"{objective}_{data_set}_{name}": value for name, value in ends.items()}
    return Measured(numbers, results)


def _numbers(row: dict[str, Curves], *, both: bool) -> dict[str, float]:
    """How the two compare and, where the figure's own data are at hand, both ends of its curves."""
    losses = {name: float(relative_loss(curves)[:, -1].mean()) for name, curves in row.items()}
    accuracies = {name: float(curves.last("accuracy").mean()) for name, curves in row.items()}
    numbers = {
        "loss_over_plain": losses["rescaled"] / losses["plain"],
        "accuracy_gain": accuracies["rescaled"] - accuracies["plain"],
    }
    if both:
        numbers |= {f"{name}_loss": published_end(curves) for name, curves in row.items()}
        numbers |= {f"{name}_accuracy": accuracy for name, accuracy in accuracies.items()}
    return numbers


def draw(spec: Spec, results: Results) -> Figure:
    """A row per objective."""
    panels = {(TITLES[objective], data_set): row for (objective, data_set), row in results.items()}
    return draw_panels([TITLES[name] for name in spec["objectives"]], spec["data_sets"], panels, LOOKS)
