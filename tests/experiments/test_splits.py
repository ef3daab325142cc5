# SPDX-License-Identifier: Apache-2.0
"""Repeated splits: a run folder for each, and what they say together."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.core.checks import RequestError
from idiolect.experiments import splits as splits_module
from idiolect.experiments.execute import execute
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.spec import from_table
from idiolect.experiments.splits import asked_splits, check_splits, run_splits, split_folder
from idiolect.experiments.splits_summary import read_splits, summarise_splits
from idiolect.metrics import gain_estimates, student_intervals
from idiolect.record.codec import to_json


def summarised(splits):
    """What splits.json holds."""
    return to_json(summarise_splits("small", splits)[0])


@pytest.fixture(scope="session")
def spec(tmp_path_factory):
    """Three clients, two methods, three rounds."""
    draw = np.random.default_rng(5)
    lines = ["site,age,dose,outcome"]
    for client in range(3):
        for age, dose in draw.normal(size=(15, 2)):
            lines.append(f"s{client},{age:.5f},{dose:.5f},{500 + 40 * (age + client * dose):.4f}")
    path = tmp_path_factory.mktemp("table") / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return from_table(
        {
            "name": "small",
            "data": {"source": "table", "path": str(path), "client": "site", "target": "outcome", "seed": 4},
            "training": {"rounds": 3, "record_every": 1, "executor": "batched"},
            "defaults": {"step_size": 0.1, "batch_size": 0, "local_steps": 2},
            "methods": {"local": {}, "fedavg": {}},
        }
    )


@pytest.fixture(scope="session")
def finished(spec, tmp_path_factory):
    """A folder of two finished splits; copy it before changing it."""
    folder = tmp_path_factory.mktemp("splits") / "run"
    run_splits(spec, folder, 2)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def read_json(path):
    return json.loads(path.read_text())


def files_without_clocks(folder):
    clients = pq.read_table(folder / "clients.parquet").to_pylist()
    return clients, pq.read_table(folder / "split.parquet").to_pylist()


def test_every_split_is_a_complete_run_of_its_own_seed(spec, finished, tmp_path):
    for place in range(2):
        folder = RunFolder(split_folder(finished, place))
        assert folder.done
        assert folder.read_spec().data.seed == 4 + place
    data = dataclasses.replace(spec.data, seed=5)
    execute(dataclasses.replace(spec, data=data), tmp_path / "alone")
    assert files_without_clocks(tmp_path / "alone") == files_without_clocks(split_folder(finished, 1))


def test_means_are_those_of_the_splits_with_the_corrected_interval(finished):
    found = read_json(finished / "splits.json")
    own = [read_json(split_folder(finished, place) / "summary.json")["methods"][1] for place in range(2)]
    line = found["methods"][1]
    assert found["test_over_train"] == pytest.approx(9 / 27)  # the step size is given, so that nothing was refitted
    assert line["score"]["mean"] == pytest.approx(np.mean([one["score"]["mean"] for one in own]))
    gains = np.array([[one["gain"]["mean"] for one in own]])
    expected = student_intervals(gain_estimates(gains, 9 / 27))
    for name in ("mean", "low", "high"):
        value = expected.value if name == "mean" else getattr(expected, name)
        assert line["gain"][name] == pytest.approx(value[0])
    announced = [read_json(split_folder(finished, place) / "summary.json")["announced"]["method"] for place in range(2)]
    assert [one["announced"] for one in found["each"]] == announced
    assert sum(one["announced"] for one in found["methods"]) == 2
    assert found["methods"][0]["gain"] is None
    assert found["methods"][1]["gain_over_one"] is None


def test_clients_are_judged_over_splits(finished):
    rows = pq.read_table(finished / "splits.parquet").to_pylist()
    assert [(row["method"], row["client"]) for row in rows] == [
        (m, f"s{c}") for m in ("local", "fedavg") for c in range(3)
    ]
    assert {row["verdict"] for row in rows[:3]} == {"same"}
    own = [pq.read_table(split_folder(finished, place) / "clients.parquet").to_pylist()[4] for place in range(2)]
    assert rows[4]["gain"] == pytest.approx(np.mean([row["gain"] for row in own]))
    expected = student_intervals(gain_estimates(np.array([[row["gain"] for row in own]]), 3 / 9))
    assert (rows[4]["gain_low"], rows[4]["gain_high"]) == pytest.approx((expected.low[0], expected.high[0]))
    assert rows[4]["splits"] == 2


def test_resume_keeps_what_is_finished_and_refuses_another_request(spec, copied, monkeypatch):
    before = read_json(copied / "splits.json")
    for name in ("done", "splits.json", "splits.parquet"):
        (copied / name).unlink()
    shutil.rmtree(split_folder(copied, 1))
    with pytest.raises(RequestError, match="--splits 2, and this asks for --splits 3"):
        run_splits(spec, copied, 3, resume=True)
    other = dataclasses.replace(spec, training=dataclasses.replace(spec.training, rounds=4))
    with pytest.raises(RequestError, match=r"training\.rounds"):
        run_splits(other, copied, 2, resume=True)
    with pytest.raises(RequestError, match="was begun by `idiolect compare --splits 2`"):
        RunFolder(copied).check(resume=False)
    trained = []
    run = splits_module.execute
    monkeypatch.setattr(splits_module, "execute", lambda *a, **k: trained.append(a[1].name) or run(*a, **k))
    run_splits(spec, copied, 2, resume=True)
    assert trained == ["split-02"]
    assert read_json(copied / "splits.json") == before


def test_an_interrupted_split_goes_on(spec, tmp_path):
    def interrupt(label, done, total):
        if label == "fedavg":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_splits(spec, tmp_path / "run", 2, progress=interrupt)
    assert asked_splits(tmp_path / "run") == 2
    found = run_splits(spec, tmp_path / "run", 2, resume=True)
    assert found.splits == 2


def test_a_wrong_request_leaves_nothing(spec, tmp_path):
    wrong = dataclasses.replace(spec, data=dataclasses.replace(spec.data, target="nothing"))
    with pytest.raises(RequestError, match="nothing"):
        run_splits(wrong, tmp_path / "run", 2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("splits", "data", "words"),
    [
        (0, {}, "from 1 to"),
        (-2, {}, "got -2"),
        (2, {"split_column": "part"}, "--split-column part"),
        (2, {"time_column": "day"}, "--time day"),
        (2, {"source": "digits"}, "'digits'"),
    ],
)
def test_what_cannot_be_split_again_is_refused(spec, splits, data, words):
    with pytest.raises(RequestError, match=words):
        check_splits(dataclasses.replace(spec, data=dataclasses.replace(spec.data, **data)), splits)


def test_one_split_is_asked_of_any_rows(spec):
    check_splits(dataclasses.replace(spec, data=dataclasses.replace(spec.data, source="digits")), 1)


def test_scores_minutes_and_seeds_of_the_splits(spec, copied):
    timed = dataclasses.replace(spec, tuning=dataclasses.replace(spec.tuning, minutes=6.0))
    second = splits_module._spec_of(timed, [split_folder(copied, place) for place in range(2)], 1, 5)
    assert second.tuning.minutes == 3
    assert second.evaluation.scores == read_json(split_folder(copied, 0) / "summary.json")["scores"]
    assert second.data.seed == 5
    assert second.seeds == spec.seeds


def test_a_method_that_diverged_in_a_split_is_left_out_of_that_split(copied):
    path = split_folder(copied, 1) / "summary.json"
    summary = read_json(path)
    summary["methods"][1]["diverged"] = {"round": 2, "client": None, "reason": ""}
    summary["announced"] = {"method": "local", "score": "squared_error", "choosing_mean": None, "tied": []}
    path.write_text(json.dumps(summary))
    found = summarised(read_splits([split_folder(copied, place) for place in range(2)], [4, 5]))
    fedavg = found["methods"][1]
    assert (fedavg["diverged"], fedavg["score"]["splits"]) == (1, 1)
    assert fedavg["score"]["mean"] == pytest.approx(found["each"][0]["means"]["fedavg"])
    assert fedavg["score"]["low"] is None
    assert found["methods"][0]["gain_over_one"]["splits"] == 1  # no gain over a reference without an answer
    assert found["each"][1]["best"] == ["local"]


@pytest.mark.parametrize(("local", "fedavg", "first"), [(1.0, 2.0, "local"), (2.0, 1.0, "fedavg")])
def test_validation_rows_decide_between_methods_announced_as_often(copied, local, fedavg, first):
    for place, announced in enumerate(("local", "fedavg")):
        path = split_folder(copied, place) / "summary.json"
        summary = read_json(path)
        for line, mean in zip(summary["methods"], (local, fedavg)):
            line["choosing_mean"] = mean
        summary["announced"] = {"method": announced, "score": "squared_error", "choosing_mean": None, "tied": []}
        path.write_text(json.dumps(summary))
    found = summarised(read_splits([split_folder(copied, place) for place in range(2)], [4, 5]))
    assert found["announced"]["most"] == first  # a squared error chooses: the lower one
    assert [line["choosing_mean"] for line in found["methods"]] == [local, fedavg]


def test_the_interval_of_an_error_does_not_begin_below_zero(finished):
    found = summarised(read_splits([split_folder(finished, place) for place in range(2)], [4, 5]))
    assert all(line["score"]["low"] >= 0 for line in found["methods"])  # two splits: a wide interval
    assert any(line["score"]["low"] == 0 for line in found["methods"])
