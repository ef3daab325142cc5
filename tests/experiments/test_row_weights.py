# SPDX-License-Identifier: Apache-2.0
"""`data.weight_column` through a whole run: scores, gains, predictions and who listens to whom."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.split import Split
from idiolect.experiments.collaboration import find_collaboration
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import predict
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import CollaborationSpec, DataSpec, from_table

CLIENTS, ROWS = 4, 14
PARTS = np.array(["train"] * 6 + ["validation"] * 3 + ["test"] * 5)
WEIGHTS = np.array([1, 2, 0, 1, 3, 1, 1, 2, 1, 2, 1, 0, 1, 3])  # of every client, by part


def table(repeated):
    draw = np.random.default_rng(4)
    x = draw.normal(size=(CLIENTS * ROWS, 2))
    site, weights = np.repeat(np.arange(CLIENTS), ROWS), np.tile(WEIGHTS, CLIENTS)
    y = x[:, 0] + 0.4 * site * x[:, 1] + draw.normal(size=len(x))
    columns = {"site": site, "a": x[:, 0], "b": x[:, 1], "part": np.tile(PARTS, CLIENTS), "y": y}
    if repeated:
        return {name: np.repeat(values, weights) for name, values in columns.items()}
    return columns | {"weight": weights}


def run(folder, repeated, scores=("squared_error", "r2")):
    folder.mkdir()
    path = folder / "table.parquet"
    pq.write_table(pa.table(table(repeated)), path)
    data = {"source": "table", "path": str(path), "client": "site", "target": "y", "split_column": "part"}
    data |= {"task": "regression", "settings": {"scaling": "none", "target_scaling": "none"}}
    spec = {
        "name": "weights",
        "data": data if repeated else data | {"weight_column": "weight"},
        "evaluation": {"scores": list(scores)},
        "training": {"rounds": 4, "record_every": 2, "executor": "batched", "precision": "float64"},
        "defaults": {"step_size": 0.1, "batch_size": 0, "local_steps": 3},
        "methods": {"local": {}, "fedavg": {}, "ditto": {}},
        "tuning": {"refit": True},
        "output": {"models": "all"},
    }
    return execute(from_table(spec), folder / "run")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    return run(folder / "weighted", False), run(folder / "repeated", True)


def test_scores_and_gains_are_those_of_repeated_rows(pair):
    found, expected = (pq.read_table(done.folder / "clients.parquet").to_pylist() for done in pair)
    assert len(found) == len(expected) == 3 * CLIENTS
    for ours, theirs in zip(found, expected):
        assert (ours["method"], ours["client"], ours["test_rows"]) == (theirs["method"], theirs["client"], 5)
        assert theirs["test_rows"] == 7
        for name in ("score", "test_personal_squared_error_selected", "test_personal_r2_selected", "gain"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name


def test_fewer_rows_say_less(pair):
    """Four rows of weights 1 to 3 are less evidence than seven rows."""
    ours, theirs = (
        [row for row in pq.read_table(done.folder / "clients.parquet").to_pylist() if row["method"] == "fedavg"]
        for done in pair
    )
    wider = [a["gain_high"] - a["gain_low"] > b["gain_high"] - b["gain_low"] for a, b in zip(ours, theirs)]
    assert all(wider)


def test_predictions_carry_the_weights_of_the_table(pair):
    rows = pq.read_table(pair[0].folder / "predictions.parquet").to_pylist()
    given = table(False)["weight"]
    assert all(row["weight"] == given[row["row"]] for row in rows)
    assert "weight" not in pq.read_schema(pair[1].folder / "predictions.parquet").names


def test_weights_are_asked_of_tables_only():
    with pytest.raises(RequestError, match="weight_column is for tables"):
        build_data(DataSpec(source="digits", weight_column="w"))


def test_answers_need_no_weights(pair):
    rows = {name: values[:3] for name, values in table(False).items() if name not in ("weight", "y", "part")}
    assert predict(pair[0].folder, pa.table(rows), method="fedavg").num_rows == 3


def test_neighbours_are_found_on_rows_that_count():
    draw = np.random.default_rng(1)
    x, owner = draw.normal(size=(60, 2)), np.repeat(np.arange(3), 20)
    weights = np.where(np.arange(60) % 4 == 0, 0.0, 2.0)
    options = {"task": "regression", "split": Split(1, 0, 0), "dtype": np.float64}
    y = x[:, 0] + 0.1 * draw.normal(size=60)
    weighted, kept = Federation.from_arrays(x, y, owner, weights=weights, **options), weights > 0
    counted = Federation.from_arrays(x[kept], y[kept], owner[kept], **options)
    found, plain = (find_collaboration(CollaborationSpec("models"), rows) for rows in (weighted, counted))
    assert "counts alike" in found.sentence
    assert "counts alike" not in plain.sentence
    assert found.exchange == plain.exchange
    with pytest.raises(RequestError, match="weight_column"):
        find_collaboration(CollaborationSpec("data", accuracy=0.1), weighted)
