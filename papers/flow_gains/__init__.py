# SPDX-License-Identifier: Apache-2.0
"""Beyond Flow (2023): where routing by instance gains over FedAvg with fine-tuning, in clients made to need it.

Every variant chooses its own step on validation rows; gains are over the better of two ways to fine-tune.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from idiolect import RequestError
from papers import flow, flow_figures, flow_variants
from papers.cells import Cell, Cells
from papers.flow import FINE_TUNING, Variant, plain
from papers.flow_variants import Comparison, Found, gain
from papers.reproduction import Measured, Progress, Spec

FLOW = "flow"
TUNED = (FINE_TUNING, "fine_tuning_10")
CHANGES: dict[str, dict[str, Any]] = {
    "local_10": {"personal_epochs": 10},
    "split_25_75": {"local_percent": 25},
    "split_in_training": {"split_rows": "training"},
    "no_split": {"split_rows": "never"},
    "no_split_10": {"split_rows": "never", "personal_epochs": 10},
    "whole": {"routed": "model"},
    "whole_no_split": {"routed": "model", "split_rows": "never"},
    "w_g_held": {"adaptation": "routing"},
    "w_g_held_no_split": {"adaptation": "routing", "split_rows": "never"},
}
VARIANTS = {
    "local": plain("local"),
    FINE_TUNING: plain(FINE_TUNING),
    "fine_tuning_10": Variant("fine_tuning_10", FINE_TUNING, {"fine_tuning_epochs": 10}),
    FLOW: plain(FLOW),
    "flow_printed": plain("flow_printed"),
    **{label: Variant(label, FLOW, changes) for label, changes in CHANGES.items()},
}


class Results(NamedTuple):
    """Cells by column, variant and seed, and which fine-tuning the gains of a column are over."""

    cells: Found
    against: dict[str, str]


def check(spec: Spec) -> None:
    """RequestError for a request that cannot be computed, before anything is written."""
    flow.check(spec, "tables", VARIANTS)
    for name, size in flow.columns(spec).items():
        _check_rows([label for label in spec["methods"] if flow.has_row(size, label)], f"[{spec['name']}] {name}")
    flow.check_data(spec, "tables")


def _check_rows(labels: list[str], where: str) -> None:
    """RequestError unless the rows of a column have the two that its number compares."""
    if FLOW not in labels:
        raise RequestError(f"{where}: methods must have {FLOW!r}, whose gain is measured, got {labels}; add it.")
    if not set(TUNED) & set(labels):
        wanted = " or ".join(map(repr, TUNED))
        raise RequestError(f"{where}: methods must have {wanted}, which the gain is over, got {labels}; add one.")


def measure(spec: Spec, progress: Progress, cells: Cells) -> Measured:
    """Every variant on the columns that the size names, several seeds each."""
    asked = {label: variant for label, variant in VARIANTS.items() if label in spec["methods"]}
    found = flow_variants.fill(spec, "tables", Comparison(asked, {}), progress, cells)
    against = {name: _better(row) for name, row in found.items()}
    numbers = {f"{name}_flow_minus_fine_tuning": gain(row[FLOW], row[against[name]])[0] for name, row in found.items()}
    text = "\n\n".join(flow_variants.table_text(name, row, against[name]) for name, row in found.items())
    return Measured(numbers, Results(found, against), text)


def _better(row: dict[str, list[Cell]]) -> str:
    """The fine-tuning that validation rows prefer after the last round."""
    last = {label: np.mean([one["history"][-1][1] for one in row[label]]) for label in TUNED if label in row}
    return max(last, key=lambda label: last[label])


def draw(spec: Spec, results: Results) -> Figure:
    """Gain of every variant over fine-tuning with its interval over clients, a panel per column."""
    gains = {
        name: {
            label: gain(own, row[results.against[name]]) for label, own in row.items() if label != results.against[name]
        }
        for name, row in results.cells.items()
    }
    return flow_figures.draw_gains(gains)
