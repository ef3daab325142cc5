# SPDX-License-Identifier: Apache-2.0
"""Figure 6 of Unified 2023: ASCD-PFL with theorem 9's p_w and with others, training loss against communications.

Everything that depends on p_w follows it: eta = 1/(4 Lx), rho, theta1 and gamma.
"""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from papers.drawing import INK
from papers.lanes import Curves
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified import solver
from papers.unified_image_data import (
    TITLES,
    dealt_from,
    image_objective,
    read_images,
    relative_loss,
    set_up,
    train,
)
from papers.unified_image_figures import Look, draw_panels

THEORY = "theory"
Results = dict[tuple[str, str], dict[str, Curves]]  # (objective, data set) -> p_w -> curves


def measure(spec: Spec, progress: Progress) -> Measured:
    """Theory's p_w against the best of all, at equal communications; worst data set first."""
    images = {name: read_images(name, spec["data_seed"]) for name in spec["data_sets"]}
    results: Results = {}
    chosen: dict[str, float] = {}
    done = count_parts(
        progress, len(spec["objectives"]) * len(spec["data_sets"]) * (len(spec["shared_probabilities"]) + 1)
    )
    for objective in spec["objectives"]:
        for data_set in spec["data_sets"]:
            dealt = dealt_from(spec, images, data_set, spec["labels"])
            setup = set_up(image_objective(objective, spec["labels"], dealt, spec), dealt, spec)
            theory: Any = solver("ascd_pfl", setup)
            chosen[objective] = theory.shared_probability
            row = results[objective, data_set] = {}
            for name, probability in {THEORY: theory.shared_probability, **_others(spec)}.items():
                given = {"shared_probability": probability, "unsampled": spec["unsampled"]}
                row[name] = train("ascd_pfl", setup, dealt, spec, **given)
                done(f"{objective} {data_set} p_w {name}")
    numbers: dict[str, float] = {}
    for objective in spec["objectives"]:
        rows = [row for (own, _), row in results.items() if own == objective]
        numbers[f"{objective}_theory_p_w"] = chosen[objective]
        numbers |= {f"{objective}_{name}": value for name, value in _numbers(spec, rows).items()}
    return Measured(numbers, results)


def _others(spec: Spec) -> dict[str, float]:
    return {f"{probability:g}": float(probability) for probability in spec["shared_probabilities"]}


def _numbers(spec: Spec, rows: list[dict[str, Curves]]) -> dict[str, float]:
    """The worst of the data sets."""
    found = [_compare(row) for row in rows]
    numbers = {name: max(one[name] for one in found) for name in ("theory_over_best", "theory_gap_in_standard_errors")}
    for name in _others(spec):
        numbers[f"p_w_{name}_over_theory"] = min(one[name] for one in found)
    least = min(_others(spec), key=float)
    ratios = [
        row[least].personal_gradients[:, -1].mean() / row[THEORY].personal_gradients[:, -1].mean() for row in rows
    ]
    return numbers | {f"p_w_{least}_gradients_over_theory": float(np.mean(ratios))}


def _compare(row: dict[str, Curves]) -> dict[str, float]:
    """Final losses relative to theory's, and how far theory's is above the best, in standard errors of that."""
    ends = {name: relative_loss(curves)[:, -1] for name, curves in row.items()}
    theory, best = ends[THEORY].mean(), min(ends.values(), key=np.mean)
    errors = [end.std(ddof=1) / np.sqrt(len(end)) if len(end) > 1 else np.inf for end in (ends[THEORY], best)]
    gap = (theory - best.mean()) / np.hypot(errors[0], errors[1])
    numbers = {"theory_over_best": theory / best.mean(), "theory_gap_in_standard_errors": gap}
    return numbers | {name: end.mean() / theory for name, end in ends.items() if name != THEORY}


def draw(spec: Spec, results: Results) -> Figure:
    """A row per objective; theory's choice dashed."""
    names = list(_others(spec))
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.92, len(names)))
    looks: dict[str, Look] = {name: {"color": shade, "label": f"$p_w$ = {name}"} for name, shade in zip(names, shades)}
    looks[THEORY] = {"color": INK, "linestyle": (0, (4, 2)), "linewidth": 1.8, "label": "$p_w$ by theory"}
    ordered = {
        (TITLES[objective], data_set): {name: row[name] for name in (*names, THEORY)}
        for (objective, data_set), row in results.items()
    }
    return draw_panels([TITLES[name] for name in spec["objectives"]], spec["data_sets"], ordered, looks)
