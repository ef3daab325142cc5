# SPDX-License-Identifier: Apache-2.0
"""Gains against both references, over seeds and groups, and clients without a score."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics

from idiolect.data.federation import Federation
from idiolect.experiments.execute import execute
from idiolect.experiments.gains import _estimates, _frame, _observed, judge_methods
from idiolect.experiments.outcome import unscored
from idiolect.experiments.spec import from_table

ROWS = 24  # of each client


def finished(folder, table, seeds=(0,), scores=(), methods=("local", "fedavg", "fedavg_fine_tuning"), **data):
    path = folder / "table.parquet"
    pq.write_table(pa.table(table), path)
    spec = from_table(
        {
            "name": "gains",
            "seeds": list(seeds),
            "data": {"source": "table", "path": str(path), "client": "client", "target": "y"}
            | {"train": 0.4, "validation": 0.1, "test": 0.5}
            | data,
            "evaluation": {"scores": list(scores)},
            "methods": {name: {"step_size": 0.1} for name in methods},
            "training": {"rounds": 4, "record_every": 2},
        }
    )
    return execute(spec, folder / "run")


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Six clients, the last of which has one class only; recordings of two rows each."""
    draw = np.random.default_rng(0)
    x, client = draw.normal(size=(6 * ROWS, 3)), np.repeat(np.arange(6), ROWS)
    y = (x[:, 0] + 0.3 * draw.normal(size=len(x)) > 0) & (client < 5)
    table = {"client": [f"c{m}" for m in client], "y": np.where(y, "yes", "no"), "recording": np.arange(len(x)) // 2}
    table |= {f"x{place}": x[:, place] for place in range(3)}
    folder = tmp_path_factory.mktemp("classes")
    return finished(folder, table, (0, 1), ("auc", "log_loss"), group_column="recording")


def of_clients(done):
    return pq.read_table(done.folder / "clients.parquet").to_pylist()


def test_clients_without_a_score_are_counted_named_and_explained(classes):
    found = classes.summary.unscored
    assert (found.score, found.clients, found.count) == ("auc", ("c5",), 1)
    assert "one class" in found.reason
    means = {entry.method: entry.other_scores["log_loss"].mean for entry in classes.summary.methods}
    best = min(means, key=means.get)
    assert (
        f"By log loss, which every client with a test row has, best first: {best} {means[best]:.3g}," in found.sentence
    )
    for entry in classes.summary.methods:
        assert (entry.clients, entry.missing) == (5, 1)
        assert entry.other_scores["log_loss"].clients == 6
    rows = [row for row in of_clients(classes) if row["client"] == "c5"]
    assert {row["verdict"] for row in rows} == {None}
    whole = dataclasses.replace(classes.federation)
    assert unscored(classes.trained, whole, ("log_loss", "auc")) is None


def test_gains_are_paired_with_alone_and_with_one_model(classes):
    local, fedavg, tuned = classes.summary.methods
    assert (local.gain, fedavg.gain_over_one) == (None, None)
    assert tuned.gain_over_one.reference == "fedavg"
    assert tuned.gain_over_one.mean == pytest.approx(tuned.score.mean - fedavg.score.mean, abs=1e-6)
    assert tuned.gain.mean == pytest.approx(tuned.score.mean - local.score.mean, abs=1e-6)
    assert tuned.gain.clients == 5
    for row in of_clients(classes):
        if row["method"] == "fedavg" and row["client"] != "c5":
            assert (row["gain_over_one"], row["gain_over_one_low"], row["gain_over_one_high"]) == (0, 0, 0)
        if row["method"] == "local" and row["client"] != "c5":
            assert (row["verdict"], row["gain_expected_low"], row["gain_expected_high"]) == ("same", 0, 0)


def test_a_client_is_judged_once_by_its_mean_over_seeds(classes):
    rows = [row for row in of_clients(classes) if row["method"] == "fedavg_fine_tuning" and row["client"] != "c5"]
    for name in {row["client"] for row in rows}:
        own = [row for row in rows if row["client"] == name]
        shared = ("gain_low", "gain_high", "gain_expected", "verdict", "gain_over_one_low")
        assert [own[0][column] for column in shared] == [own[1][column] for column in shared]
        mean = np.mean([row["gain"] for row in own])
        assert own[0]["gain_low"] <= mean + 1e-9
        assert mean <= own[0]["gain_high"] + 1e-9
        assert own[0]["gain_expected_low"] <= own[0]["gain_expected"] <= own[0]["gain_expected_high"]


def test_the_area_leaves_out_whole_recordings(classes):
    """Pseudo-values by hand: scikit-learn's area with every recording left out in turn."""
    frame = _frame(classes.federation, "auc")
    entry = classes.trained[1]
    found = _observed(entry, classes.federation, "auc", frame)
    run, test, groups = entry.runs[0], classes.federation.test, classes.federation.groups[2]
    logits = np.asarray(run.outputs(run.selected)["personal"])[0]
    _, targets = test.of(0)
    own = groups[: len(targets)]
    assert frame.mask[0].sum() == len(np.unique(own)) < len(targets)

    def area(kept):
        return sklearn.metrics.roc_auc_score(targets[kept], (logits[:, 1] - logits[:, 0])[: len(targets)][kept])

    number = len(np.unique(own))
    order = list(dict.fromkeys(own))
    expected = [number * area(own >= 0) - (number - 1) * area(own != group) for group in order]
    only = dataclasses.replace(entry, runs=entry.runs[:1])
    by_hand = _observed(only, classes.federation, "auc", frame)
    np.testing.assert_allclose(by_hand[0, :number], expected, atol=1e-4)
    assert found.shape == by_hand.shape


def test_rows_of_a_recording_are_one_witness(classes):
    """Against groups of one row each the error of paired rows that err alike is larger."""
    federation, entries = classes.federation, classes.trained
    frame = _frame(federation, "log_loss")
    rows = tuple(_observed(entry, federation, "log_loss", frame) for entry in (entries[2], entries[0]))
    grouped = _estimates(entries[2], entries[0], rows, "log_loss", frame)
    single = _estimates(entries[2], entries[0], rows, "log_loss", frame._replace(groups=None))
    np.testing.assert_array_equal(grouped.value, single.value)
    assert (grouped.freedom < single.freedom).all()


def test_without_references_nothing_is_judged(classes):
    tuned = classes.trained[2]
    found = judge_methods([tuned], classes.federation, "auc", {"fedavg_fine_tuning": None})
    assert found["fedavg_fine_tuning"] == (None, None, None, None)


def test_a_client_without_a_test_row_is_explained(classes):
    federation = classes.federation
    counts = federation.test.counts.copy()
    empty = Federation(
        federation.train,
        federation.validation,
        dataclasses.replace(federation.test, offsets=np.concatenate([[0], np.cumsum([*counts[:5], 0])])),
        federation.names,
        federation.task,
    )
    found = unscored(classes.trained, empty, ("auc", "log_loss"))
    assert "no test row" in found.reason


def test_errors_of_numbers_are_judged_in_the_tables_units(tmp_path):
    draw = np.random.default_rng(1)
    client = np.repeat(np.arange(4), ROWS)
    x = draw.normal(size=len(client))
    table = {
        "client": [f"c{m}" for m in client],
        "x": x,
        "y": 1000 * (x * (client - 1.5) + 0.1 * draw.normal(size=len(x))),
    }
    done = finished(tmp_path, table, scores=("rmse", "r2", "mae", "squared_error"), methods=("local", "fedavg"))
    fedavg = done.summary.methods[1]
    assert 100 < fedavg.score.mean < 5000
    for row in of_clients(done):
        assert row["test_personal_rmse_selected"] ** 2 == pytest.approx(row["test_personal_squared_error_selected"])
        assert row["gain_low"] <= row["gain"] <= row["gain_high"]
    assert set(fedavg.other_scores) == {"r2", "mae", "squared_error"}
    assert "units of 'y'" in done.summary.score_reason
