# SPDX-License-Identifier: Apache-2.0
"""Figures 3, 4 and 5 of Unified 2023: three objectives, three image sets, 2, 4, 8 labels per client, three solvers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from papers.drawing import BLUE, GREEN, VERMILION
from papers.lanes import Curves
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified import Setup, solver
from papers.unified_image_data import (
    TITLES,
    Dealt,
    dealer,
    image_objective,
    published_end,
    record_at,
    relative_loss,
    set_up,
    train,
    train_ascd,
)
from papers.unified_image_data import check as check
from papers.unified_image_figures import draw_panels

SOLVERS = {"lsgd": "lsgd_pfl", "ascd": "ascd_pfl", "asvrcd": "asvrcd_pfl"}
LOOKS = {
    "lsgd": {"color": BLUE, "label": "LSGD-PFL"},
    "ascd": {"color": VERMILION, "label": "ASCD-PFL"},
    "asvrcd": {"color": GREEN, "label": "ASVRCD-PFL"},
}


class Cell(NamedTuple):
    """One panel of the figures."""

    objective: str
    labels: int  # K
    data_set: str

    @property
    def name(self) -> str:
        """As in the names of numbers."""
        return f"{self.objective}_{self.labels}_{self.data_set}"


Results = dict[Cell, dict[str, Curves]]


def measure(spec: Spec, progress: Progress) -> Measured:
    """Every cell with every solver: final over initial F, and the accuracy of beta_m alone."""
    deal = dealer(spec)
    cells = [
        Cell(objective, labels, data_set)
        for objective in spec["objectives"]
        for labels in spec["labels"]
        for data_set in spec["data_sets"]
    ]
    results: Results = {}
    done = count_parts(progress, len(cells) * len(SOLVERS))
    for cell in cells:
        dealt = deal(cell.data_set, cell.labels)
        setup = set_up(image_objective(cell.objective, cell.labels, dealt, spec), dealt, spec)
        results[cell] = {}
        for short in SOLVERS:
            results[cell][short] = _train(short, setup, dealt, spec)
            done(f"{cell.name} {short}")
    return Measured(_numbers(spec, results), results, _table(spec, results))


def _train(short: str, setup: Setup, dealt: Dealt, spec: Spec) -> Curves:
    """By theory, but for what the paper or its code says of a solver."""
    if short == "ascd":
        return train_ascd(setup, dealt, spec)
    given: dict[str, Any] = {}
    if short == "lsgd":  # the released scripts print 0.01 and pass ASVRCD's eta
        reference: Any = solver("asvrcd_pfl", setup)
        given = {"step_size": reference.step_size, "local_steps": spec["local_steps"], "batch_size": 1}
    return train(SOLVERS[short], setup, dealt, spec, **given)


def _end(cell: Cell, spec: Spec, curves: Curves) -> tuple[float, float]:
    """F over its start and the accuracy where the published curve of a cell ends, means over seeds."""
    place = record_at(curves, spec["short_rounds"] if cell.name == spec["short_cell"] else spec["rounds"])
    return published_end(curves, place), float(curves.columns["accuracy"][:, place].mean())


def _numbers(spec: Spec, results: Results) -> dict[str, float]:
    """Ends of curves on data dealt as by the released code, and in what fraction of all cells ASCD is ahead."""
    numbers: dict[str, float] = {}
    for objective in spec["objectives"]:
        rows = [row for cell, row in results.items() if cell.objective == objective]
        numbers[f"{objective}_start"] = float(np.mean([curves.loss[:, 0] for row in rows for curves in row.values()]))
    for cell in (cell for cell in results if cell.data_set in spec["as_released"]):
        for short, curves in results[cell].items():
            loss, accuracy = _end(cell, spec, curves)
            numbers[f"{cell.name}_{short}_loss"] = loss
            if short == "ascd":
                numbers[f"{cell.name}_{short}_accuracy"] = accuracy
    ends = [{short: _last(curves) for short, curves in row.items()} for row in results.values()]
    equal = [_at_equal_gradients(row["lsgd"], row["ascd"]) for row in results.values()]
    numbers["ascd_ahead_of_lsgd"] = float(np.mean([end["ascd"] < end["lsgd"] for end in ends]))
    numbers["ascd_ahead_of_asvrcd"] = float(np.mean([end["ascd"] < end["asvrcd"] for end in ends]))
    numbers["ascd_ahead_of_lsgd_at_equal_gradients"] = float(
        np.mean([end["ascd"] < other for end, other in zip(ends, equal)])
    )
    return numbers


def _table(spec: Spec, results: Results) -> str:
    """Accuracy, and in brackets final over initial loss, of every cell."""
    lines = [f"{'cell':<24}" + "".join(f"{look['label']:>16}" for look in LOOKS.values())]
    for cell, row in results.items():
        ends = [_end(cell, spec, curves) for curves in row.values()]
        lines.append(f"{cell.name:<24}" + "".join(f"{accuracy:>8.3f} ({loss:.3f})" for loss, accuracy in ends))
    return "\n".join(lines)


def _last(curves: Curves) -> float:
    return float(relative_loss(curves)[:, -1].mean())


def _at_equal_gradients(curves: Curves, other: Curves) -> float:
    """The relative loss of `curves` once it has taken as many component gradients as `other` did in all."""
    spent = (curves.shared_gradients + curves.personal_gradients).mean(axis=0)
    budget = (other.shared_gradients + other.personal_gradients).mean(axis=0)[-1]
    return float(np.interp(budget, spent, relative_loss(curves).mean(axis=0)))


def draw(spec: Spec, results: Results) -> Figure:
    """Figures 3, 4 and 5 in one: a row per objective and K."""
    panels = {(_title(cell), cell.data_set): row for cell, row in results.items()}
    rows = list(dict.fromkeys(_title(cell) for cell in results))
    return draw_panels(rows, spec["data_sets"], panels, LOOKS)


def _title(cell: Cell) -> str:
    return f"{TITLES[cell.objective]}, K = {cell.labels}"
