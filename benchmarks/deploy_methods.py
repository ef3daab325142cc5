# SPDX-License-Identifier: Apache-2.0
"""Every registered method over a server and four site processes with TLS, against the simulation of the same spec.

Methods that need layers train a small network, the others a linear model. What is compared are the scores of every
client on validation and test rows, and the bytes of the ledger.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from benchmarks.measure import Result, Target
from idiolect.algorithms import ALGORITHMS
from idiolect.core.checks import RequestError
from idiolect.experiments.deploy.demo import run_demo
from idiolect.experiments.execute import execute
from idiolect.experiments.prepare import prepare
from idiolect.experiments.spec import Spec, from_table

SITES = ("amber", "birch", "cedar", "dogwood")
ROUNDS, ROWS = 5, 24
TOLERANCE = 1e-6  # of a score; sites compute in processes of their own, in float64
MODELS: dict[str, dict[str, Any]] = {
    "linear": {"name": "linear", "l2": 0.1},
    "network": {"name": "mlp", "hidden": [4], "settings": {"normalize": "batch"}},
}
FEW = ("scaffold",)


def run(quick: bool) -> Result:
    """The largest difference of a score, and of bytes, over all methods; which could not be deployed, and why."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = {site: _table(place) for place, site in enumerate(SITES[:2] if quick else SITES)}
        pooled = [table.append_column("site", pa.array([site] * ROWS)) for site, table in tables.items()]
        pacsv.write_csv(pa.concat_tables(pooled), folder / "pooled.csv")
        found: dict[str, Any] = {}
        refused: dict[str, str] = {}
        for model, names in _placed(folder / "pooled.csv", FEW if quick else tuple(ALGORITHMS), refused).items():
            if names:
                found |= _compare(folder / model, _spec(folder / "pooled.csv", model, names), tables)
    scores = max(line["score"] for line in found.values())
    sent = max(line["bytes"] for line in found.values())
    targets = (
        Target("largest difference of a score", scores, TOLERANCE),
        Target("largest difference of the ledgers, bytes", sent, 0.0),
    )
    return Result({"methods": len(found), "refused": refused, "differences": found}, targets)


def _table(place: int) -> pa.Table:
    draw = np.random.default_rng([7, place])
    rows = draw.normal(size=(ROWS, 3)).round(4)
    signs = rows @ [1.0, -0.5, 0.3 * place] + 0.3 * draw.normal(size=ROWS) > 0
    return pa.table({**dict(zip("abc", rows.T)), "y": np.where(signs, "yes", "no")})


def _spec(path: Path, model: str, names: tuple[str, ...]) -> Spec:
    return from_table(
        {
            "name": "methods",
            "seeds": [1],
            "data": {"source": "table", "path": str(path), "client": "site", "target": "y"},
            "model": MODELS[model],
            "training": {"rounds": ROUNDS, "record_every": ROUNDS, "precision": "float64", "executor": "looped"},
            "tuning": {"auto": False},
            "evaluation": {"scores": ["log_loss"], "optimum": "never"},
            "methods": {name: {} for name in names},
        }
    )


def _placed(path: Path, names: tuple[str, ...], refused: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """The methods of each model: the first one that a method takes; what takes none is written into `refused`."""
    placed: dict[str, tuple[str, ...]] = dict.fromkeys(MODELS, ())
    for name in names:
        for model in MODELS:
            try:
                prepare(_spec(path, model, (name,)))
            except RequestError as error:
                refused.setdefault(name, str(error))  # the first model's reason: it is the plainest
                continue
            placed[model] += (name,)
            refused.pop(name, None)
            break
    return placed


def _compare(folder: Path, spec: Spec, tables: dict[str, pa.Table]) -> dict[str, Any]:
    deployed = run_demo(folder / "deployed", spec, tables, lambda text: None)
    execute(spec, folder / "simulated")
    found = {}
    for method in spec.methods:
        ours, theirs = (_read(at, method.label) for at in (deployed, folder / "simulated"))
        found[method.label] = {
            "score": max(float(np.max(np.abs(ours[name] - theirs[name]))) for name in sorted(set(ours) & set(theirs))),
            "bytes": abs(_sent(deployed, method.label) - _sent(folder / "simulated", method.label)),
        }
    return found


def _read(folder: Path, method: str) -> dict[str, np.ndarray]:
    """Every client's scores by what they are, in order of clients."""
    table = pq.read_table(folder / "clients.parquet", filters=[("method", "=", method)]).sort_by("client")
    wanted = [name for name in table.column_names if name.startswith(("validation_", "test_")) and "log_loss" in name]
    columns = {name: table[name].to_numpy().astype(float) for name in wanted if table[name].null_count == 0}
    assert columns, f"{method} has no score in {folder}"
    return columns


def _sent(folder: Path, method: str) -> float:
    rows = pq.read_table(folder / "history.parquet", filters=[("method", "=", method)]).to_pylist()
    last = max(rows, key=lambda row: row["round"])
    return float(last["upload_bytes"] + last["download_bytes"])
