# SPDX-License-Identifier: Apache-2.0
"""Tables 2 and 3 of paper 003 (5, 6 and 7 in its appendix): every method on every data set, one run per seed.

Both tables read the same cells: accuracies of the shared and the personal model, and who is better off with which.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
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
    "knn_per": "kNN-Per",
    "partialfed": "PartialFed",
    "apfl": "APFL",
    "ditto": "Ditto",
    "fedrep": "FedRep",
    "lg_fedavg": "LG-FedAvg",
    "hypcluster": "HypCluster",
    "flow": "Flow",
}
# (Acc_g, Acc_p), per cent, of table 5, and the share of clients helped of table 7, on the paper's own data
_PUBLISHED: dict[str, dict[str, tuple[float | None, float | None, float | None]]] = {
    "shakespeare": {
        "local": (None, 18.70, None),
        "fedavg": (52.00, None, None),
        FINE_TUNING: (52.12, 53.68, 79.00),
        "knn_per": (51.87, 53.10, 68.87),
        "apfl": (52.38, 53.64, 79.22),
        "ditto": (52.44, 53.95, 73.74),
        "fedrep": (46.71, 50.09, 79.78),
        "lg_fedavg": (51.08, 51.43, 88.43),
        "hypcluster": (51.92, 52.74, 74.84),
        "flow": (55.90, 56.20, 89.77),
    },
    "emnist": {
        "local": (None, 28.18, None),
        "fedavg": (85.10, None, None),
        FINE_TUNING: (89.57, 90.14, 81.48),
        "knn_per": (85.20, 88.28, 89.97),
        "apfl": (88.40, 89.44, 93.39),
        "ditto": (89.08, 91.30, 79.26),
        "fedrep": (89.95, 89.77, 82.20),
        "lg_fedavg": (87.43, 91.70, 66.16),
        "hypcluster": (89.47, 90.49, 80.70),
        "flow": (90.88, 94.18, 96.70),
    },
    "cifar10_0.1": {
        "local": (None, 49.78, None),
        "fedavg": (60.98, None, None),
        FINE_TUNING: (61.23, 73.03, 97.18),
        "knn_per": (59.62, 75.14, 90.00),
        "partialfed": (62.57, 73.20, 88.30),
        "apfl": (62.87, 72.86, 87.48),
        "ditto": (62.06, 72.06, 90.52),
        "fedrep": (64.85, 68.62, 92.30),
        "lg_fedavg": (56.63, 73.19, 88.41),
        "hypcluster": (63.64, 71.55, 95.11),
        "flow": (66.26, 76.47, 98.33),
    },
    "cifar10_0.6": {
        "local": (None, 62.74, None),
        "fedavg": (67.50, None, None),
        FINE_TUNING: (68.19, 72.21, 99.33),
        "knn_per": (69.22, 70.14, 90.00),
        "partialfed": (66.93, 70.38, 84.80),
        "apfl": (69.53, 72.53, 90.63),
        "ditto": (68.12, 70.31, 89.61),
        "fedrep": (69.77, 63.61, 84.64),
        "lg_fedavg": (67.48, 68.94, 89.59),
        "hypcluster": (65.44, 72.40, 98.18),
        "flow": (70.88, 77.11, 99.62),
    },
}
PUBLISHED = _PUBLISHED | {"writers": _PUBLISHED["emnist"]}  # writers stand in for its EMNIST by writer


class Results(NamedTuple):
    """Every method on every column."""

    table: dict[str, dict[str, Summary]]  # column -> method
    flow: dict[str, list[dict[str, Any]]]  # column -> Flow's cells
    useful: dict[str, float]  # column -> useful / executed steps, if rounds were epochs


def check(spec: Spec) -> None:
    """RequestError for a request that cannot be computed, before anything is written."""
    flow.check(spec, "tables", NAMES)
    for needed in (FINE_TUNING, "flow"):
        if needed not in spec["methods"]:
            raise RequestError(f"[{spec['name']}] methods must have {needed!r}, which its numbers are about; add it.")


def fill(spec: Spec, progress: Progress, cells: Cells) -> Results:
    """Compute what is missing, in processes of their own where the size says so, and read it all."""
    named = flow.columns(spec)
    # columns of one source and network have the same shapes: together, their programs are compiled once
    groups: dict[tuple[str, str], list[str]] = {}
    for name, size in named.items():
        groups.setdefault((size["source"], size["model"]), []).append(name)
    pairs = [(method, tuple(names)) for names in groups.values() for method in spec["methods"]]
    pairs.sort(key=lambda pair: pair[0] not in flow.ROUTING)  # Flow's take longest: none should be begun last
    tasks = {f"{method} on {', '.join(names)}": (method, names) for method, names in pairs}
    in_processes(functools.partial(_fill_some, dict(spec), cells), tasks, **flow.processes(spec), told=progress)
    table: dict[str, dict[str, Summary]] = {}
    routed: dict[str, list[dict[str, Any]]] = {}
    useful: dict[str, float] = {}
    for name in named:
        subject = flow.column(name, spec)
        found = {method: flow.cells_of(subject, method, spec, cells) for method in NAMES if method in spec["methods"]}
        table[name] = {method: summarise(own) for method, own in found.items()}
        routed[name] = found.get("flow", [])
        useful[name] = flow.useful_steps(subject, spec["seeds"][0])
    return Results(table, routed, useful)


def _fill_some(spec: Spec, cells: Cells, task: tuple[str, tuple[str, ...]]) -> None:
    method, names = task
    for name in names:
        flow.cells_of(flow.column(name, spec), method, spec, cells)


def cell_text(value: float | None) -> str:
    """A number of a table, or a dash."""
    return "-" if value is None or not np.isfinite(value) else f"{value:.1f}"


def of_paper(results: Results, place: int) -> Mapping[str, Mapping[str, float]]:
    """The paper's numbers at one place of `PUBLISHED`, by column and method."""
    return {
        name: {method: one[place] for method, one in PUBLISHED.get(name, {}).items() if one[place] is not None}  # type: ignore[misc]
        for name in results.table
    }
