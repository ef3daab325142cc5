# SPDX-License-Identifier: Apache-2.0
"""Figure 4, table 8 and appendix D of Flow (2023): Flow without its parts, in other orders, with other splits.

Each for both ways to train w_g: on its own loss (`flow`), and by the letter of equation 5 (`flow_printed`). Variants
run with the step that was chosen for their rule, PC-Flow with the one chosen for FedAvg with fine-tuning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from papers import flow, flow_figures, flow_variants
from papers.cells import Cells
from papers.flow import FINE_TUNING, Variant, plain
from papers.flow_variants import Comparison, Found, accuracy
from papers.reproduction import Measured, Progress, Spec

FLOW, PRINTED = "flow", "flow_printed"
CHANGES: dict[str, dict[str, Any]] = {
    "no_penalty": {"routing_penalty": 0.0},
    "fixed_0.25": {"fixed_share": 0.25},
    "fixed_0.5": {"fixed_share": 0.5},
    "fixed_0.75": {"fixed_share": 0.75},
    "fixed_1": {"fixed_share": 1.0},
    "routing_first": {"training_order": "routing_first"},
    "shared_first": {"training_order": "shared_first"},
    "split_25_75": {"local_percent": 25},
    "split_75_25": {"local_percent": 75},
    "w_g_held": {"adaptation": "routing"},
}
LABELS = {
    FLOW: "Flow",
    PRINTED: "Flow, equation 5",
    "pi_flow": "PI-Flow",
    "pc_flow": "PC-Flow",
    "no_penalty": "no regulariser",
    "fixed_0.25": "$q_0 = 0.25$",
    "fixed_0.5": "$q_0 = 0.5$",
    "fixed_0.75": "$q_0 = 0.75$",
    "fixed_1": "$q_0 = 1$",
    "routing_first": "$\\psi$, then $w_g$",
    "shared_first": "$w_g$, then $\\psi$",
    "split_25_75": "local : shared 25 : 75",
    "split_75_25": "local : shared 75 : 25",
    "w_g_held": "$w_g$ held before predicting",
}
CURVES = (FLOW, PRINTED, "no_penalty", "pi_flow", "pc_flow", "fixed_0.25", "fixed_1", "shared_first", "split_75_25")
EQUATION_5 = "printed_"  # before the label of a variant that trains w_g by the letter of equation 5
COMPARISON = Comparison(
    {FLOW: plain(FLOW), "pi_flow": plain("pi_flow"), "pc_flow": plain(FINE_TUNING)}
    | {label: Variant(label, FLOW, changes) for label, changes in CHANGES.items()}
    | {PRINTED: plain(PRINTED)}
    | {f"{EQUATION_5}pi_flow": Variant(f"{EQUATION_5}pi_flow", "pi_flow", {"shared_loss": "mixture"})}
    | {EQUATION_5 + label: Variant(EQUATION_5 + label, PRINTED, changes) for label, changes in CHANGES.items()},
    steps_of={"pi_flow": FLOW, f"{EQUATION_5}pi_flow": PRINTED}
    | dict.fromkeys(CHANGES, FLOW)
    | {EQUATION_5 + label: PRINTED for label in CHANGES},
    soft=(FLOW, PRINTED),
)


class Results(NamedTuple):
    """Cells by column, variant and seed."""

    cells: Found


def check(spec: Spec) -> None:
    """RequestError for a request that cannot be computed, before anything is written."""
    flow.check(spec, "ablations", (FLOW, PRINTED, FINE_TUNING))
    flow.check_data(spec, "ablations")


def measure(spec: Spec, progress: Progress, cells: Cells) -> Measured:
    """Every variant on the columns that the size names, several seeds each."""
    found = flow_variants.fill(spec, "ablations", COMPARISON, progress, cells)
    numbers: dict[str, float] = {}
    for name, row in found.items():
        numbers |= {f"{name}_{key}": value for key, value in _numbers(row).items()}
    text = "\n\n".join(flow_variants.table_text(name, row) for name, row in found.items())
    return Measured(numbers, Results(found), text)


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    """What the paper says of its ablations, in points of per cent."""

    def mean(label: str, key: str) -> float:
        return float(accuracy(row[label], key).mean())

    numbers = {"flow_minus_printed": mean(FLOW, "personal") - mean(PRINTED, "personal")}
    for name, rule, variants in (("flow", FLOW, ""), ("printed", PRINTED, EQUATION_5)):
        numbers[f"{name}_soft_minus_hard"] = mean(rule, "soft") - mean(rule, "hard")
        for other in ("pc_flow", f"{variants}pi_flow", f"{variants}no_penalty", f"{variants}split_75_25"):
            against = mean(other, "personal")
            numbers[f"{name}_minus_{other.removeprefix(EQUATION_5)}"] = mean(rule, "personal") - against
    return numbers


def draw(spec: Spec, results: Results) -> Figure:
    """Curves, final accuracies and routing shares, a column per data set."""
    curves, bars, routing = {}, {}, {}
    for name, row in results.cells.items():
        curves[name] = {LABELS[label]: flow_variants.curve(row[label]) for label in CURVES}
        bars[name] = {_shown(label): (accuracy(own, "shared"), accuracy(own, "personal")) for label, own in row.items()}
        by_category = {
            category: np.nanmean([one["shares_by_category"][category] for one in row[FLOW]], axis=0)
            for category in row[FLOW][0]["shares_by_category"]
            if any(np.isfinite(one["shares_by_category"][category]).all() for one in row[FLOW])
        }
        routing[name] = (row[FLOW][0]["routes"], by_category)
    return flow_figures.draw_ablations(curves, bars, routing)


def _shown(label: str) -> str:
    return f"eq. 5: {LABELS[label.removeprefix(EQUATION_5)]}" if label.startswith(EQUATION_5) else LABELS[label]
