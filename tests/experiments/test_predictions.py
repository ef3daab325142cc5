# SPDX-License-Identifier: Apache-2.0
"""predictions.parquet and split.parquet: enough to compute any other score, and bounded."""

from __future__ import annotations

import csv
import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.data.federation import Federation
from idiolect.data.split import Split
from idiolect.experiments import predictions
from idiolect.experiments.execute import execute
from idiolect.experiments.predictions import split_table
from idiolect.experiments.run_folder import RunFolder


@pytest.fixture(scope="module")
def regression_run(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("regression") / "run"
    execute(small.spec("regression", methods={"local": {}, "ditto": {}}, seeds=[0, 1]), folder)
    return folder


def rows_by(folder, *keys):
    """The rows of predictions.parquet, grouped."""
    found = {}
    for row in pq.read_table(folder / "predictions.parquet").to_pylist():
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def test_classes_have_predictions_and_probabilities(finished, small):
    _, folder = finished
    kinds = {"method": pa.string(), "seed": pa.int64(), "client": pa.string(), "row": pa.int64()}
    kinds |= dict.fromkeys(("target", "prediction", "shared_prediction"), pa.string())
    kinds |= dict.fromkeys(("probability_0", "probability_1"), pa.float64())
    schema = pq.read_schema(folder / "predictions.parquet")
    assert {field.name: field.type for field in schema} == kinds
    with open(small.folder / "classification.csv", newline="") as file:
        table = list(csv.DictReader(file))
    recorded = pq.read_table(folder / "clients.parquet").to_pylist()
    found = rows_by(folder, "method", "seed", "client")
    assert len(found) == 2 * 2 * 3  # methods, seeds, clients that train
    for line in recorded:
        if line["held_out"]:
            continue
        rows = found[line["method"], line["seed"], line["client"]]
        assert len(rows) == line["test_rows"]
        for row in rows:
            assert (table[row["row"]]["site"], table[row["row"]]["outcome"]) == (row["client"], row["target"])
            assert table[row["row"]]["part"] == "test"
            assert row["probability_0"] + row["probability_1"] == pytest.approx(1)
            assert row["prediction"] == max("01", key=lambda name: row[f"probability_{name}"])
            assert (row["shared_prediction"] is None) == (row["method"] == "local")
        assert line["score"] == pytest.approx(np.mean([row["prediction"] == row["target"] for row in rows]))
        loss = np.mean([-np.log(row[f"probability_{row['target']}"]) for row in rows])
        assert line["test_personal_log_loss_selected"] == pytest.approx(loss, rel=1e-5)
        if line["method"] == "fedavg":
            right = np.mean([row["shared_prediction"] == row["target"] for row in rows])
            assert line["test_shared_accuracy_selected"] == pytest.approx(right)


def test_numbers_are_in_the_tables_units(regression_run, small):
    with open(small.folder / "regression.csv", newline="") as file:
        table = list(csv.DictReader(file))
    found = rows_by(regression_run, "method", "seed", "client")
    for line in pq.read_table(regression_run / "clients.parquet").to_pylist():
        rows = found[line["method"], line["seed"], line["client"]]
        for row in rows:
            assert row["target"] == pytest.approx(float(table[row["row"]]["outcome"]), rel=1e-5)
        error = np.mean([(row["prediction"] - row["target"]) ** 2 for row in rows])
        assert line["score"] == pytest.approx(error, rel=1e-4)
        if line["method"] == "ditto":
            error = np.mean([(row["shared_prediction"] - row["target"]) ** 2 for row in rows])
            assert line["test_shared_squared_error_selected"] == pytest.approx(error, rel=1e-4)
        else:
            assert {row["shared_prediction"] for row in rows} == {None}


def test_every_row_of_the_table_has_a_part(finished, small):
    _, folder = finished
    with open(small.folder / "classification.csv", newline="") as file:
        table = list(csv.DictReader(file))
    split = pq.read_table(folder / "split.parquet").to_pylist()
    assert [row["row"] for row in split] == list(range(len(table)))
    assert [(row["client"], row["part"]) for row in split] == [(row["site"], row["part"]) for row in table]
    assert len({row["client"] for row in split if row["held_out"]}) == 1


def test_unused_and_dropped_rows_are_said_to_be_so():
    table = {
        "site": [None if row == 4 else f"s{row % 2}" for row in range(40)],
        "age": np.sin(np.arange(40)),
        "outcome": [None if row == 9 else 5 * np.cos(row) for row in range(40)],
    }
    federation = Federation.from_table(table, client="site", target="outcome", split=Split(0.5, 0.2, 0.2))
    rows = split_table(federation).to_pylist()
    assert {row["row"]: row["client"] for row in rows if row["part"] == "dropped"} == {4: None, 9: None}
    unused = [row for row in rows if row["part"] == "unused"]
    assert len(unused) == 40 - 2 - sum(
        len(getattr(federation.places, part)) for part in ("train", "validation", "test")
    )
    assert all(row["client"] == f"s{row['row'] % 2}" for row in rows if row["part"] != "dropped")


def test_beyond_the_bound_the_announced_methods_answers_alone_are_kept(small, tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "MOST_ROWS", 30)
    execute(small.spec("regression", seeds=[0, 1]), tmp_path / "run")  # 2 methods, 2 seeds, 12 test rows
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    best = summary["announced"]["method"]
    assert set(rows_by(tmp_path / "run", "method", "seed")) == {(best, 0), (best, 1)}
    assert any("predictions.parquet holds the answers of" in note for note in summary["notes"])


def test_many_classes_have_the_probability_of_the_predicted_one(tmp_path, small, monkeypatch):
    monkeypatch.setattr(predictions, "MOST_CLASSES", 1)
    execute(small.spec(methods={"fedavg": {}}), tmp_path / "run")
    table = pq.read_table(tmp_path / "run/predictions.parquet")
    assert [name for name in table.column_names if name.startswith("probability")] == ["probability"]
    assert min(table["probability"].to_pylist()) >= 0.5


def test_a_method_that_diverged_has_no_predictions(small, tmp_path):
    execute(small.spec("regression", methods={"local": {}, "fedavg": {"step_size": 1e38}}), tmp_path / "run")
    assert set(rows_by(tmp_path / "run", "method")) == {("local",)}


def test_a_million_rows_are_written_quickly_and_piece_by_piece(tmp_path):
    parts = (
        pa.table({"row": pa.array(np.arange(500_000)), "name": pa.array(["a"]).take(pa.array(np.zeros(500_000, int)))})
        for _ in range(2)
    )
    began = time.perf_counter()
    RunFolder(tmp_path).write_table("rows.parquet", parts)
    assert time.perf_counter() - began < 10
    assert pq.read_metadata(tmp_path / "rows.parquet").num_rows == 1_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
