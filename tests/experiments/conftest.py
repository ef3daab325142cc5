# SPDX-License-Identifier: Apache-2.0
"""Small tables, specs on them, and a finished run to look at."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.experiments.execute import execute
from idiolect.experiments.spec import from_table

PARTS = ("train", "train", "train", "train", "validation", "test", "test", "test")


def write_table(path, kind, clients=4):
    """A CSV of `clients` sites with eight rows each, whose parts are written down; numbers are far from unit scale."""
    draw = np.random.default_rng(11)
    lines = ["site,age,dose,part,outcome"]
    for client in range(clients):
        for part in PARTS:
            age, dose = draw.normal(size=2)
            score = age + 0.5 * client * dose
            outcome = int(score > 0) if kind == "classification" else f"{500 + 40 * score:.4f}"
            lines.append(f"s{client},{age:.5f},{dose:.5f},{part},{outcome}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """`small.spec(kind, **tables)`: a checked spec of two methods, three rounds, on a table of that kind of target."""
    folder = tmp_path_factory.mktemp("tables")
    for kind in ("classification", "regression"):
        write_table(folder / f"{kind}.csv", kind)

    def spec(kind="classification", **tables):
        path = str(folder / f"{kind}.csv")
        data = {"source": "table", "path": path, "client": "site", "target": "outcome", "split_column": "part"}
        given = {
            "name": "small",
            "data": data,
            "training": {"rounds": 3, "record_every": 1, "executor": "batched"},
            "defaults": {"step_size": 0.1, "batch_size": 2},
            "methods": {"local": {}, "fedavg": {}},
            "output": {"models": "all"},
        }
        for key, value in tables.items():
            merge = isinstance(value, dict) and key not in ("methods", "defaults")
            given[key] = given.get(key, {}) | value if merge else value
        return from_table(given)

    return SimpleNamespace(spec=spec, folder=folder)


@pytest.fixture(scope="session")
def finished(small, tmp_path_factory):
    """(spec, folder) of a run of local and FedAvg with two seeds and one client that never trains."""
    spec = small.spec(seeds=[0, 1], data={"held_out": 1})
    folder = tmp_path_factory.mktemp("finished") / "run"
    execute(spec, folder)
    return spec, folder
