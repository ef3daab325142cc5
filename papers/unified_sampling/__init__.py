# SPDX-License-Identifier: Apache-2.0
"""Figure 6 of Unified 2023: ASCD-PFL with theorem 9's p_w and with others, training loss against communications.

Everything that depends on p_w follows it: eta = 1/(4 Lx), rho, theta1 and gamma.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from papers.drawing import INK
from papers.lanes import Curves
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified import Setup, solver
from papers.unified_image_data import (
    TITLES,
    Dealt,
    dealer,
    image_objective,
    published_end,
    relative_loss,
    set_up,
    train_ascd,
)
from papers.unified_image_data import check as check
from papers.unified_image_figures import Look, draw_panels

THEORY = "theory"


class Cell(NamedTuple):
    """One panel of the figure, and the p_w that it shows, by name."""

    objective: str
    data_set: str
    dealt: Dealt
    setup: Setup
    chosen: dict[str, float]


Results = dict[tuple[str, str], dict[str, Curves]]  # (objective, data set) -> p_w -> curves


def measure(spec: Spec, progress: Progress) -> Measured:
    """The end of every curve, and theory's p_w against the best of all and the next larger one."""
    deal = dealer(spec)
    cells = [
        _prepare(spec, objective, data_set, deal(data_set, spec["labels"]))
        for objective in spec["objectives"]
        for data_set in spec["data_sets"]
    ]
    results: Results = {}
    numbers: dict[str, float] = {}
    done = count_parts(progress, sum(len(cell.chosen) for cell in cells))
    for cell in cells:
        row = results[cell.objective, cell.data_set] = {}
        for name, probability in cell.chosen.items():
            row[name] = train_ascd(cell.setup, cell.dealt, spec, shared_probability=probability)
            done(f"{cell.objective} {cell.data_set} p_w {name}")
        if cell.data_set in spec["as_released"]:
            numbers |= {f"{cell.objective}_{name}": value for name, value in _numbers(row, cell.chosen).items()}
    return Measured(numbers, results)


def _prepare(spec: Spec, objective: str, data_set: str, dealt: Dealt) -> Cell:
    """Theory's p_w, and all of the spec that differ from it: 0.5 is theory's own on MT2."""
    setup = set_up(image_objective(objective, spec["labels"], dealt, spec), dealt, spec)
    theory: Any = solver("ascd_pfl", setup)
    best = float(theory.shared_probability)
    others = {f"{p:g}": float(p) for p in spec["shared_probabilities"] if not math.isclose(p, best)}
    return Cell(objective, data_set, dealt, setup, {THEORY: best} | others)


def _numbers(row: dict[str, Curves], chosen: dict[str, float]) -> dict[str, float]:
    """Losses over their start; relative to theory's, the best and the next larger p_w; the price of the smallest."""
    ends = {name: float(relative_loss(curves)[:, -1].mean()) for name, curves in row.items()}
    spent = {name: float(curves.personal_gradients[:, -1].mean()) for name, curves in row.items()}
    larger = {name: p for name, p in chosen.items() if p > chosen[THEORY]}
    following, least = min(larger, key=chosen.__getitem__), min(chosen, key=chosen.__getitem__)
    numbers = {f"p_w_{name}_loss": published_end(curves) for name, curves in row.items()}
    return numbers | {
        "theory_p_w": chosen[THEORY],
        "theory_over_best": ends[THEORY] / min(ends.values()),
        "next_p_w_over_theory": ends[following] / ends[THEORY],
        f"p_w_{least}_gradients_over_theory": spent[least] / spent[THEORY],
    }


def draw(spec: Spec, results: Results) -> Figure:
    """A row per objective; theory's choice dashed."""
    names = [f"{probability:g}" for probability in spec["shared_probabilities"]]
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.92, len(names)))
    looks: dict[str, Look] = {name: {"color": shade, "label": f"$p_w$ = {name}"} for name, shade in zip(names, shades)}
    looks[THEORY] = {"color": INK, "linestyle": (0, (4, 2)), "linewidth": 1.8, "label": "$p_w$ by theory"}
    ordered = {
        (TITLES[objective], data_set): {name: row[name] for name in (*names, THEORY) if name in row}
        for (objective, data_set), row in results.items()
    }
    return draw_panels([TITLES[name] for name in spec["objectives"]], spec["data_sets"], ordered, looks)
