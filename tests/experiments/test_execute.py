# SPDX-License-Identifier: Apache-2.0
"""Runs: repeatable to the bit, resumable, a sweep equals its single runs, errors in the table's own units."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from idiolect.core.checks import RequestError
from idiolect.experiments import outcome
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import predict
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.spec import MethodSpec, Resolved, from_table, to_table
from idiolect.experiments.sweeping import chosen_settings, expand
from idiolect.record.schema import Swept

CLOCKED = ("machine.json", "manifest.json", "done")
CLOCKS = ("seconds",)  # the only column that may differ between equal runs


def untimed(folder):
    """Everything in a run folder that does not depend on the clock."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (*CLOCKED, "summary.json", "history.parquet")
        if path.parent.name != "tuning"
    }
    for path in (folder / "tuning").glob("*.json"):
        files[f"tuning/{path.name}"] = _without_clocks(json.loads(path.read_text()))
    summary = json.loads((folder / "summary.json").read_text())
    for entry in summary["methods"]:
        del entry["seconds"]
    history = pq.read_table(folder / "history.parquet").drop_columns(list(CLOCKS))
    return files, summary, history.to_pylist()


def _without_clocks(tuned):
    return tuned | {
        "sha256": None,  # of the clocks too
        "history": [{key: row[key] for key in row if key not in CLOCKS} for row in tuned["history"]],
    }


def test_two_runs_of_one_resolved_spec_are_the_same_but_for_clocks(finished, tmp_path):
    _, folder = finished
    execute(RunFolder(folder).read_spec(), tmp_path / "again")
    assert untimed(tmp_path / "again") == untimed(folder)


@pytest.mark.parametrize("stage", ["tuning", "training", "writing"])
def test_an_interruption_anywhere_changes_nothing(small, tmp_path, monkeypatch, stage):
    changes = {"tuning": {"step_size": [0.05, 0.1]}, "training": {"rounds": 6}, "output": {"checkpoint_every": 2}}
    spec = small.spec(defaults={"batch_size": 2}, **changes)
    execute(spec, tmp_path / "whole")

    def stop(label, done, total):
        place = {"tuning": ("fedavg (choosing)", 2), "training": ("fedavg", 3)}.get(stage)
        if place is not None and (label, done) == place:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if stage == "writing":
            patch.setattr(outcome, "method_summary", lambda *arguments: stop_now())
        with pytest.raises(KeyboardInterrupt):
            execute(spec, tmp_path / "cut", progress=stop)
    assert not (tmp_path / "cut/done").exists()
    execute(spec, tmp_path / "cut", resume=True)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")


def stop_now():
    raise KeyboardInterrupt


def test_a_sweep_equals_its_single_runs(small, tmp_path):
    """Lanes of one compiled program against a program each; float32 sums may be taken in another order."""
    spec = small.spec(methods={"fedavg": {"step_size": 0.1}}, seeds=[0, 3])
    execute(expand(spec, {"step_size": [0.05, 0.2]}), tmp_path / "sweep")
    for step in (0.05, 0.2):
        for seed in (0, 3):
            single = small.spec(methods={"fedavg": {"step_size": step}}, seeds=[seed])
            alone = tmp_path / f"single-{step}-{seed}"
            execute(single, alone)
            lane = next((tmp_path / "sweep/models").glob(f"fedavg_step_size_{step}_-*-seed{seed}"))
            swept, own = (
                load_file(path / "shared.safetensors") for path in (lane, alone / f"models/fedavg-seed{seed}")
            )
            assert all(np.abs(own[name]).max() > 1e-3 for name in own)  # it has moved from zero
            for name in own:
                np.testing.assert_allclose(swept[name], own[name], rtol=1e-5, atol=1e-6)
    steps = {row["method"]: row["settings"]["step_size"] for row in _summary(tmp_path / "sweep")["methods"]}
    assert steps == {"fedavg[step_size=0.05]": 0.05, "fedavg[step_size=0.2]": 0.2}
    lines = _summary(tmp_path / "sweep")["methods"]
    rows = pq.read_table(tmp_path / "sweep/clients.parquet").to_pylist()
    loss = {
        line["method"]: np.mean(
            [row["validation_personal_log_loss_selected"] for row in rows if row["method"] == line["method"]]
        )
        for line in lines
    }
    best = min(loss, key=loss.get)  # log loss chooses, whatever is shown
    assert [line["chosen"] for line in lines] == [line["method"] == best for line in lines]


def test_validation_rows_choose_among_the_settings_of_each_method():
    tried = {"a[s=1]": 0.2, "a[s=2]": 0.3, "a[s=3]": None, "b": 0.5, "c[s=1]": 0.9, "d[small]": 0.1, "d[large]": 0.2}
    nothing = {"b": None, "c[s=1]": None, "d[small]": None, "d[large]": None}  # one of a kind, or a label of one's own
    swept = {"a[s=1]": "a", "a[s=2]": "a", "a[s=3]": "a", "c[s=1]": "c"}
    methods = [
        MethodSpec(label, "fedavg", swept=Swept(swept[label], ("s",)) if label in swept else None) for label in tried
    ]
    assert chosen_settings(methods, tried, True) == {"a[s=1]": False, "a[s=2]": True, "a[s=3]": False} | nothing
    assert chosen_settings(methods, tried, False) == {"a[s=1]": True, "a[s=2]": False, "a[s=3]": False} | nothing
    blind = {"a[s=1]": None, "a[s=2]": None}
    assert chosen_settings(methods[:2], blind, True) == blind


def test_what_a_sweep_varied_is_in_its_spec_and_read_back():
    table = {"data": {"source": "table", "path": "x.csv", "client": "c", "target": "y"}}
    spec = expand(
        from_table(table | {"methods": {"fedavg": {}, "b[s=1]": {"name": "local"}}}), {"step_size": [0.1, 0.2]}
    )
    again = from_table(to_table(spec))
    assert [method.swept for method in again.methods] == [method.swept for method in spec.methods]
    assert [method.base for method in again.methods[:2]] == ["fedavg", "fedavg"]
    assert again.methods[0].swept == Swept("fedavg", ("step_size",))


@pytest.mark.parametrize("bad", [1e-6, 1e38])  # one that learns nothing, one that diverges
def test_gains_of_a_sweep_are_against_the_chosen_way_to_train_alone(small, tmp_path, bad):
    spec = small.spec("regression", methods={"local": {}, "fedavg": {"step_size": 0.2}}, seeds=[0])
    execute(expand(spec, {"methods.local.step_size": [bad, 0.1]}), tmp_path / "sweep")
    lines = {line["method"]: line for line in _summary(tmp_path / "sweep")["methods"]}
    assert lines["local[step_size=0.1]"]["chosen"] is True
    mean = {name: line["score"]["mean"] for name, line in lines.items()}  # an error: less is better
    assert lines["fedavg"]["gain"]["mean"] == pytest.approx(mean["local[step_size=0.1]"] - mean["fedavg"])
    rows = pq.read_table(tmp_path / "sweep/clients.parquet").to_pylist()
    scores = {(row["method"], row["client"]): row["score"] for row in rows}
    for row in rows:
        if row["method"] == "fedavg":
            assert row["local_score"] == scores["local[step_size=0.1]", row["client"]]


def _summary(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module")
def regression_run(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("regression") / "run"
    execute(small.spec("regression", methods={"local": {}, "fedavg": {}}), folder)
    return folder


@pytest.mark.parametrize("method", ["local", "fedavg"])
def test_errors_of_a_regression_are_in_the_tables_own_units(small, regression_run, method):
    """Against predictions of the same rows, in the table's units, squared and averaged by hand."""
    table = pyarrow.csv.read_csv(small.folder / "regression.csv")
    rows = predict(regression_run, table, method).to_pylist()
    clients = {
        row["client"]: row
        for row in pq.read_table(regression_run / "clients.parquet").to_pylist()
        if row["method"] == method
    }
    for name, recorded in clients.items():
        for part in ("test", "validation"):
            own = [row for row in rows if (row["site"], row["part"]) == (name, part)]
            error = np.mean([(row["prediction"] - row["outcome"]) ** 2 for row in own])
            assert recorded[f"{part}_personal_squared_error_selected"] == pytest.approx(error, rel=1e-4)
        assert recorded["score"] == recorded["test_personal_squared_error_selected"]
        assert recorded["gain"] == pytest.approx(recorded["local_score"] - recorded["score"], rel=1e-3, abs=1e-2)
    summary = next(entry for entry in _summary(regression_run)["methods"] if entry["method"] == method)
    assert summary["score"]["mean"] == pytest.approx(np.mean([row["score"] for row in clients.values()]))
    assert summary["last_mean"] == pytest.approx(
        np.mean([row["test_personal_squared_error_last"] for row in clients.values()])
    )


def test_history_and_reason_of_a_regression_are_in_the_tables_own_units(regression_run):
    history = pq.read_table(regression_run / "history.parquet").to_pylist()
    clients = pq.read_table(regression_run / "clients.parquet").to_pylist()
    for method in ("local", "fedavg"):
        last = next(row for row in history if (row["method"], row["round"]) == (method, 3))
        errors = [row["validation_personal_squared_error_last"] for row in clients if row["method"] == method]
        assert last["validation_personal_squared_error_mean"] == pytest.approx(np.mean(errors), rel=1e-6)
        assert last["validation_personal_squared_error_mean"] > 10  # outcomes spread over about 40 units
    reason = _summary(regression_run)["score_reason"]
    assert reason.endswith("Errors are in squared units of 'outcome' as the table has it.")


def test_a_tuned_step_is_read_back_and_not_chosen_again(small, tmp_path):
    spec = small.spec(methods={"fedavg": {}}, tuning={"step_size": [0.01, 0.1]}, defaults={"batch_size": 2})
    known = {"fedavg": Resolved("batched", 0, 1, 2, {"step_size": 0.07})}
    execute(dataclasses.replace(spec, resolved=known), tmp_path / "run")
    (line,) = _summary(tmp_path / "run")["methods"]
    assert (line["settings"]["step_size"], line["rounds"]) == (0.07, 2)


def test_a_step_in_a_folder_from_before_strengths_were_tuned_is_read(small):
    old = {"executor": "batched", "chunk": 0, "block": 1, "step_size": 0.07}
    assert small.spec(resolved={"fedavg": old}).resolved["fedavg"].tuned == {"step_size": 0.07}


def test_a_run_without_local_has_no_gains(small, tmp_path):
    execute(small.spec(methods={"fedavg": {}}), tmp_path / "run")
    clients = pq.read_table(tmp_path / "run/clients.parquet")
    for name in ("local_score", "gain", "gain_low", "gain_high", "verdict"):
        assert clients[name].null_count == len(clients)
    entry = _summary(tmp_path / "run")["methods"][0]
    assert (entry["gain"], entry["helped"]) == (None, None)


def test_a_refused_run_leaves_no_folder(small, tmp_path):
    with pytest.raises(RequestError, match="cohort"):
        execute(small.spec(training={"cohort": 5}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
