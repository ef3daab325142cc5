# SPDX-License-Identifier: Apache-2.0
"""Figure 4, table 8 and appendix D of Flow 2023: Flow without its parts, in other orders, with other splits.

Every variant runs with the step that was chosen for Flow, PC-Flow with the one chosen for FedAvg with fine-tuning.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from papers import flow, flow_figures
from papers.cells import Cell, Cells, in_processes
from papers.flow import FINE_TUNING, Column
from papers.reproduction import Measured, Progress, Spec

FLOW = "flow"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {  # label -> method, changes
    FLOW: (FLOW, {}),
    "no_penalty": (FLOW, {"routing_penalty": 0.0}),
    "own_loss": (FLOW, {"shared_loss": "own"}),
    "pi_flow": ("pi_flow", {}),
    "pc_flow": (FINE_TUNING, {}),
    "fixed_0.25": (FLOW, {"fixed_share": 0.25}),
    "fixed_0.5": (FLOW, {"fixed_share": 0.5}),
    "fixed_0.75": (FLOW, {"fixed_share": 0.75}),
    "fixed_1": (FLOW, {"fixed_share": 1.0}),
    "routing_first": (FLOW, {"training_order": "routing_first"}),
    "shared_first": (FLOW, {"training_order": "shared_first"}),
    "split_25_75": (FLOW, {"local_percent": 25}),
    "split_75_25": (FLOW, {"local_percent": 75}),
}
LABELS = {
    FLOW: "Flow",
    "no_penalty": "no regulariser",
    "own_loss": "$w_g$ by its own loss",
    "pi_flow": "PI-Flow",
    "pc_flow": "PC-Flow",
    "fixed_0.25": "$q_0 = 0.25$",
    "fixed_0.5": "$q_0 = 0.5$",
    "fixed_0.75": "$q_0 = 0.75$",
    "fixed_1": "$q_0 = 1$",
    "routing_first": "$\\psi$, then $w_g$",
    "shared_first": "$w_g$, then $\\psi$",
    "split_25_75": "local : shared 25 : 75",
    "split_75_25": "local : shared 75 : 25",
}
SOFT = (FLOW, "own_loss")  # asked for soft answers too
CURVES = (FLOW, "no_penalty", "own_loss", "pi_flow", "pc_flow", "fixed_0.25", "fixed_1", "shared_first", "split_75_25")


class Results(NamedTuple):
    """Cells by column, variant and seed."""

    cells: dict[str, dict[str, list[Cell]]]


def check(spec: Spec) -> None:
    """RequestError for a request that cannot be computed, before anything is written."""
    flow.check(spec, "ablations", (FLOW, FINE_TUNING))


def measure(spec: Spec, progress: Progress, cells: Cells) -> Measured:
    """Every variant on the columns that the size names, several seeds each."""
    named = list(flow.columns(spec, "ablations"))
    processes = flow.processes(spec)
    # the steps first: no two processes may look for the same one
    steps = {f"steps of {method} on {name}": (method, name) for name in named for method in (FLOW, FINE_TUNING)}
    in_processes(functools.partial(_choose_step, dict(spec), cells), steps, **processes, told=progress)
    tasks = {f"{label} on {name}": (label, name) for label in VARIANTS for name in named}
    in_processes(functools.partial(_fill, dict(spec), cells), tasks, **processes, told=progress)
    found = {
        name: {label: _variant(flow.column(name, spec), label, spec, cells) for label in VARIANTS} for name in named
    }
    numbers: dict[str, float] = {}
    for name, row in found.items():
        numbers |= {f"{name}_{key}": value for key, value in _numbers(row).items()}
    return Measured(numbers, Results(found), _text(found))


def _choose_step(spec: Spec, cells: Cells, task: tuple[str, str]) -> None:
    method, name = task
    flow.best_step(flow.column(name, spec), method, spec, cells)


def _fill(spec: Spec, cells: Cells, task: tuple[str, str]) -> None:
    label, name = task
    _variant(flow.column(name, spec), label, spec, cells)


def _variant(subject: Column, label: str, spec: Spec, cells: Cells) -> list[Cell]:
    method, changes = VARIANTS[label]
    step = flow.best_step(subject, FINE_TUNING if method == FINE_TUNING else FLOW, spec, cells)
    plain = method if not changes else label  # an unchanged method is the cell of table 2
    settings: dict[str, Any] = {"label": plain, "step": step, "changes": changes, "soft": label in SOFT}
    return flow.cells_of(subject, method, spec, cells, **settings)


def _numbers(row: dict[str, list[Cell]]) -> dict[str, float]:
    """The facts of ALGORITHMS 8.4, in points of per cent or shares of rows."""

    def mean(label: str, key: str) -> float:
        return 100 * float(np.nanmean([np.nanmean(np.array(one[key], float)) for one in row[label]]))

    def taken(label: str) -> float:
        return float(np.mean([np.mean(one["taken"]) for one in row[label]]))

    return {
        "soft_minus_hard": mean(FLOW, "soft") - mean(FLOW, "hard"),
        "flow_minus_pc_flow": mean(FLOW, "personal") - mean("pc_flow", "personal"),
        "own_loss_soft_minus_hard": mean("own_loss", "soft") - mean("own_loss", "hard"),
        "own_loss_minus_pc_flow": mean("own_loss", "personal") - mean("pc_flow", "personal"),
        "fixed_0.25_taken": taken("fixed_0.25"),
        "fixed_0.5_taken": taken("fixed_0.5"),
        "fixed_0.75_taken": taken("fixed_0.75"),
        "fixed_1_taken": taken("fixed_1"),
        "fixed_0.5_gain": mean("fixed_0.5", "personal") - mean("fixed_0.5", "shared"),
    }


def _text(found: dict[str, dict[str, list[Cell]]]) -> str:
    lines = []
    for name, row in found.items():
        lines.append(f"{name}: accuracy in per cent, mean over clients and seeds (spread over seeds)")
        lines.append(f"{'':16} {'shared':>13} {'personal':>13} {'soft':>7} {'shared route taken':>19}")
        for label, own in row.items():
            shared, personal = (_of(own, key) for key in ("shared", "personal"))
            soft = f"{_of(own, 'soft').mean():.1f}" if "soft" in own[0] else "-"
            taken = f"{np.mean([np.mean(one['taken']) for one in own]):.2f}" if "taken" in own[0] else "-"
            accuracies = " ".join(f"{f'{part.mean():.1f} ({part.std():.1f})':>13}" for part in (shared, personal))
            lines.append(f"{label:16} {accuracies} {soft:>7} {taken:>19}")
        lines.append("")
    return "\n".join(lines).rstrip()


def _of(own: list[Cell], key: str) -> np.ndarray:
    """(seeds,): per cent, mean over clients."""
    return 100 * np.array([np.nanmean(np.array(one[key], float)) for one in own])


def draw(spec: Spec, results: Results) -> Figure:
    """Curves, final accuracies and routing shares, a column per data set."""
    curves, bars, routing = {}, {}, {}
    for name, row in results.cells.items():
        curves[name] = {LABELS[label]: _curve(row[label]) for label in CURVES}
        bars[name] = {LABELS[label]: (_of(own, "shared"), _of(own, "personal")) for label, own in row.items()}
        by_category = {
            category: np.nanmean([one["shares_by_category"][category] for one in row[FLOW]], axis=0)
            for category in row[FLOW][0]["shares_by_category"]
            if any(np.isfinite(one["shares_by_category"][category]).all() for one in row[FLOW])
        }
        routing[name] = (row[FLOW][0]["routes"], by_category)
    return flow_figures.draw_ablations(curves, bars, routing)


def _curve(own: list[Cell]) -> tuple[np.ndarray, np.ndarray]:
    history = np.array([[line[:2] for line in one["history"]] for one in own], float)
    return history[0, :, 0], 100 * history[:, :, 1].mean(axis=0)
