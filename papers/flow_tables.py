# SPDX-License-Identifier: Apache-2.0
"""Tables 2 and 3 of Flow 2023 (5, 6 and 7 in its appendix): every method on every data set, one run per seed.

Both tables read the same cells: accuracies of the shared and the personal model, and who is better off with which.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idiolect import RequestError
from papers import flow
from papers.cells import Cells, in_processes
from papers.flow import FINE_TUNING
from papers.flow_summary import Summary, summarise
from papers.reproduction import Progress, Spec

NAMES = {
    "local": "Local",
    "fedavg": "FedAvg",
    FINE_TUNING: "FedAvgFT",
    "fine_tuning_more_steps": "FedAvgFT, 3 times the steps",
    "fine_tuning_momentum": "FedAvgFT, momentum",
    "knn_per": "kNN-Per",
    "partialfed": "PartialFed",
    "apfl": "APFL",
    "ditto": "Ditto",
    "fedrep": "FedRep",
    "lg_fedavg": "LG-FedAvg",
    "hypcluster": "HypCluster",
    "flow": "Flow",
    "flow_no_split": "Flow, no split",
    "flow_equal_steps": "Flow, as many steps",
    "flow_momentum": "Flow, momentum",
    "flow_printed": "Flow, eq. 5",
}
MOMENTUM = {"client_optimizer": "momentum"}  # 0.9, as the released codes have it
# the paper's own numbers by column, method and quantity; writers stand in for its EMNIST by writer
PUBLISHED: dict[str, dict[str, dict[str, float]]] = tomllib.loads(
    Path(__file__).with_name("flow_published.toml").read_text(encoding="utf-8")
)
PUBLISHED["writers"] = PUBLISHED["emnist"]
PUBLISHED |= {f"long_{name}": PUBLISHED[name] for name in ("cifar10_0.1", "cifar10_0.6", "shakespeare")}


class Results(NamedTuple):
    """Every method on every column."""

    table: dict[str, dict[str, Summary]]  # column -> method
    flow: dict[str, list[dict[str, Any]]]  # column -> Flow's cells
    useful: dict[str, float]  # column -> useful / executed steps, if rounds were epochs


def variant(name: str, size: Mapping[str, Any]) -> flow.Variant:
    """A row of the table, on a column."""
    epochs, gradients = size.get("epochs", 0), size["gradients"]
    # of w_g as many as FedAvg makes, and of w_l and psi beside it: three times FedAvg's gradients
    whole = {} if epochs else {"local_steps": gradients}
    # the control: as many for FedAvgFT's one model
    thrice = {"local_steps": 3 * gradients, "fine_tuning_steps": 3 * gradients}
    if epochs:
        thrice = {"epochs": 3 * epochs, "fine_tuning_epochs": 3 * epochs}
    changed: dict[str, tuple[str, dict[str, Any]]] = {
        "fine_tuning_more_steps": (FINE_TUNING, thrice),
        "fine_tuning_momentum": (FINE_TUNING, MOMENTUM),
        "flow_no_split": ("flow", {"split_rows": "never"}),
        "flow_equal_steps": ("flow", whole),
        "flow_momentum": ("flow", MOMENTUM),
    }
    return flow.Variant(name, *changed.get(name, (name, {})))


def check(spec: Spec) -> None:
    """RequestError for a request that cannot be computed, before anything is written."""
    flow.check(spec, "tables", NAMES)
    for needed in (FINE_TUNING, "flow", "flow_equal_steps"):
        if needed not in spec["methods"]:
            raise RequestError(f"[{spec['name']}] methods must have {needed!r}, which its numbers are about; add it.")
    flow.check_data(spec, "tables")


def fill(spec: Spec, progress: Progress, cells: Cells) -> Results:
    """Compute what is missing, in processes of their own where the size says so, and read it all."""
    named = flow.columns(spec)
    # columns of one source and network have the same shapes: together, their programs are compiled once
    groups: dict[tuple[str, str], list[str]] = {}
    for name, size in named.items():
        groups.setdefault((size["source"], size["model"]), []).append(name)
    pairs = [
        (method, tuple(own))
        for names in groups.values()
        for method in spec["methods"]
        if (own := [name for name in names if flow.has_row(named[name], method)])
    ]
    pairs.sort(key=lambda pair: not pair[0].startswith("flow"))  # these take longest: begun first
    tasks = {f"{method} on {', '.join(names)}": (method, names) for method, names in pairs}
    in_processes(functools.partial(_fill_some, dict(spec), cells), tasks, **flow.processes(spec), told=progress)
    table: dict[str, dict[str, Summary]] = {}
    routed: dict[str, list[dict[str, Any]]] = {}
    useful: dict[str, float] = {}
    for name in named:
        subject = flow.column(name, spec)
        asked = [method for method in NAMES if method in spec["methods"] and flow.has_row(subject.size, method)]
        found = {method: flow.cells_of(subject, variant(method, subject.size), spec, cells) for method in asked}
        table[name] = {method: summarise(own) for method, own in found.items()}
        routed[name] = found.get("flow", [])
        useful[name] = flow.useful_steps(subject, spec["seeds"][0])
    return Results(table, routed, useful)


def _fill_some(spec: Spec, cells: Cells, task: tuple[str, tuple[str, ...]]) -> None:
    method, names = task
    for name in names:
        subject = flow.column(name, spec)
        flow.cells_of(subject, variant(method, subject.size), spec, cells)


def cell_text(value: float | None) -> str:
    """A number of a table, or a dash."""
    return "-" if value is None or not np.isfinite(value) else f"{value:.1f}"


def of_paper(results: Results, quantity: str) -> dict[str, dict[str, float]]:
    """The paper's numbers of one quantity, by column and method."""
    return {
        name: {method: one[quantity] for method, one in PUBLISHED.get(name, {}).items() if quantity in one}
        for name in results.table
    }
