# SPDX-License-Identifier: Apache-2.0
"""The dial: its arithmetic by hand, its folder against the runs it stands for, its refusals, and the cold grid."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.core.checks import RequestError
from idiolect.engines.simulate import open_session
from idiolect.experiments import dial
from idiolect.experiments import execute as executing
from idiolect.experiments.choice import choose
from idiolect.experiments.dial import parse_values
from idiolect.experiments.predict import predict
from idiolect.experiments.sweeping import expand, parse_over
from idiolect.record.codec import to_json

NAN = float("nan")
VALUES = (1.0, 0.5, 0.0)


def walk(*arguments, **named):
    """What dial.json holds."""
    return to_json(dial.walk(*arguments, **named))


def flix_spec(small, kind="classification", **tables):
    given = {"methods": {"scafflix": {}}, "defaults": {}, "model": {"l2": 0.1}, "training": {"rounds": 4}}
    return small.spec(kind, **(given | tables))


@pytest.fixture(scope="module")
def dialled(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dials") / "run"
    return walk(flix_spec(small), folder, "personalization", VALUES), folder


def test_ties_go_to_the_least_personal_value():
    scores = np.array([[0.5, 0.5, 0.2], [0.9, 0.5, 0.2], [0.9, 0.4, 0.3]])  # (values, clients)
    for values, wanted in (((1, 0.5, 0), [1, 0, 2]), ((0, 0.5, 1), [2, 1, 2])):
        places, own = choose(scores, [-value for value in values], higher_is_better=True)
        assert places.tolist() == wanted
        assert own.all()


def test_a_lower_error_is_the_better_choice():
    places, _ = choose(np.array([[3.0, 1.0], [2.0, 1.5]]), (-1, -0.5), higher_is_better=False)
    assert places.tolist() == [1, 0]


def test_a_client_without_a_score_takes_what_is_best_on_average():
    scores = np.array([[0.5, 0.9, NAN], [0.8, 0.8, NAN]])  # means 0.7 and 0.8
    places, own = choose(scores, (-1, -0.5), higher_is_better=True)
    assert places.tolist() == [1, 0, 1]
    assert own.tolist() == [True, True, False]


def test_the_folder_says_what_was_found(dialled):
    found, folder = dialled
    assert json.loads((folder / "dial.json").read_text()) == found
    files = {
        "dial.json",
        "dial.parquet",
        "spec.toml",
        "request.json",
        "machine.json",
        "privacy.json",
        "models",
        "done",
        "rows.json",
        "manifest.json",
    }
    assert files == {file.name for file in folder.iterdir()}
    assert [entry["value"] for entry in found["values"]] == list(VALUES)
    assert sum(entry["chosen_by"] for entry in found["values"]) == len(found["clients"]) == 4
    rows = pq.read_table(folder / "dial.parquet").to_pylist()
    assert len(rows) == 3 * 4
    for client, name in enumerate(found["clients"]):
        own = [row for row in rows if row["client"] == name]
        best = max(row["validation"] for row in own)
        chosen = next(row for row in own if row["chosen"])
        # the first of the path with the best validation score is the least personal: the path goes down from 1
        assert chosen["value"] == next(row["value"] for row in own if row["validation"] == best)
        assert chosen["value"] == found["chosen"]["values"][client]
        assert chosen["test"] == found["chosen"]["test"]["clients"][client]
    assert found["chosen"]["test"]["mean"] == pytest.approx(np.mean([row["test"] for row in rows if row["chosen"]]))
    for entry in found["values"]:
        paid = [row["traffic_bytes"] for row in rows if row["value"] == entry["value"]]
        assert sum(paid) == entry["spent"]["total_bytes"]
        at = [row["test"] for row in rows if row["value"] == entry["value"]]
        assert entry["test"]["mean"] == pytest.approx(np.mean(at))
        assert entry["test"]["worst_decile"] == min(at)  # one client of four


def test_prices_add_up_and_own_optima_are_paid_once(dialled):
    found, _ = dialled
    entries = found["values"]
    for name in ("upload_bytes", "total_bytes", "gradients", "gradients_personal"):
        spent = [entry["spent"][name] for entry in entries]
        assert [entry["spent_so_far"][name] for entry in entries] == np.cumsum(spent).tolist()
    # alpha = 1 needs no x*_m; 0.5 pays for it; 0 has it already, and asks nothing of anybody
    personal = [entry["spent"]["gradients_personal"] for entry in entries]
    assert personal[0] == personal[2] == 0
    assert personal[1] > 0
    assert [entry["rounds"] for entry in entries] == [4, 4, 0]
    assert entries[2]["spent"]["total_bytes"] == entries[2]["spent"]["gradients"] == 0
    first, second = (entry["spent"] for entry in entries[:2])
    assert first["total_bytes"] - first["preparation_bytes"] == second["total_bytes"] > 0  # prepared once
    assert first["preparation_bytes"] > second["preparation_bytes"] == 0


def test_several_seeds_are_lanes_of_the_same_path(small, tmp_path, dialled):
    found = walk(flix_spec(small, seeds=[0, 5]), tmp_path / "run", "personalization", VALUES)
    assert found["seeds"] == [0, 5]
    for entry, alone in zip(found["values"], dialled[0]["values"]):
        assert entry["test"]["seed_means"][0] == pytest.approx(alone["test"]["mean"], rel=1e-6)  # seed 0 by itself
        assert entry["test"]["mean"] == pytest.approx(np.mean(entry["test"]["seed_means"]))
        low, high = entry["test"]["interval"]
        assert low <= entry["test"]["mean"] <= high
        # over clients: full batches train both seeds alike, and clients differ all the same
        assert high - low > 1e-3 > np.ptp(entry["test"]["seed_means"])
        assert entry["spent"]["total_bytes"] == alone["spent"]["total_bytes"]  # of one seed, not of both


def test_an_interrupted_dial_goes_on_to_the_same_bits(small, tmp_path, dialled):
    spec, folder = flix_spec(small, output={"checkpoint_every": 1}), tmp_path / "run"

    def interrupt(label, done, total):
        if done == 6:  # in the middle of the second value
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walk(spec, folder, "personalization", VALUES, progress=interrupt)
    assert not (folder / "done").exists()
    with pytest.raises(RequestError, match="Add --resume to go on with it"):
        walk(spec, folder, "personalization", VALUES)
    with pytest.raises(
        RequestError, match=r"was started with personalization = 1, 0\.5, 0, and this asks for .* = 1, 0;"
    ):
        walk(spec, folder, "personalization", (1.0, 0.0), resume=True)
    with pytest.raises(RequestError, match=r"was started with training\.rounds = 4, and this asks for 5"):
        walk(flix_spec(small, training={"rounds": 5}), folder, "personalization", VALUES, resume=True)
    reached = []
    found = walk(spec, folder, "personalization", VALUES, resume=True, progress=lambda *at: reached.append(at[1]))
    assert reached == [7, 8]
    for part in ("values", "chosen"):
        assert found[part] == dialled[0][part]
    assert not (folder / "checkpoint").exists()


def test_every_client_predicts_with_the_model_it_chose(small, dialled):
    found, folder = dialled
    models = {path.name for path in (folder / "models" / "scafflix-seed0").iterdir()}
    assert models == {"personal.safetensors", "at-1", "at-0.5", "at-0"}  # output.models = "all"
    answers = predict(folder, small.folder / "classification.csv").to_pylist()
    assert {row["model"] for row in answers} == {"personal"}
    for client, name in enumerate(found["clients"]):
        own = [row for row in answers if row["site"] == name and row["part"] == "test"]
        right = np.mean([str(row["outcome"]) == row["prediction"] for row in own])
        assert right == pytest.approx(found["chosen"]["test"]["clients"][client])


def test_at_zero_every_client_is_alone(small, tmp_path):
    """alpha = 0 is x*_m wherever the path comes from."""
    ends = [
        walk(flix_spec(small), tmp_path / str(place), "personalization", values)["values"]
        for place, values in enumerate(((1.0, 0.0), (0.0, 0.7)))
    ]
    assert ends[0][1]["test"] == ends[1][0]["test"]
    assert ends[0][1]["validation"] == ends[1][0]["validation"]


def test_errors_of_a_regression_are_in_the_tables_own_units(small, tmp_path):
    found = walk(flix_spec(small, "regression"), tmp_path / "run", "personalization", (1.0, 0.2))
    assert found["score"] == "squared_error"
    assert not found["higher_is_better"]
    assert found["values"][0]["test"]["mean"] > 10  # outcomes spread over about 40 units


def test_a_penalty_can_be_dialled(small, tmp_path):
    spec = flix_spec(small, methods={"local": {}, "acd_pfl": {"objective": "mt2"}})
    found = walk(spec, tmp_path / "run", "penalty", (1.0, 0.3))
    assert (found["method"], found["objective"]) == ("acd_pfl", "mt2")
    assert [entry["rounds"] for entry in found["values"]] == [4, 4]


REFUSED = [  # (setting, values, changes of the spec, a part of the sentence)
    ("personalisation", VALUES, {}, r"--setting must be personalization \(of flix\) or penalty"),
    ("step_size", VALUES, {}, "`idiolect sweep` tries values of any other setting"),
    ("penalty", VALUES, {}, "--setting penalty needs a method on the objective mx2 or mt2, and scafflix has none"),
    ("personalization", (0.5,), {}, "--values needs at least 2 values to choose from, got 0.5"),
    ("personalization", (1.0, 1.0), {}, "--values names 1 twice"),
    ("personalization", (1.0, 2.0), {}, r"personalization must be at least 0 and at most 1, got 2\. 1 trains one"),
    ("personalization", (1.0, NAN), {}, "personalization must be a finite number, got nan"),
    ("personalization", VALUES, {"training": {"rounds": 0}}, "must be at least 1 for every value of a dial, got 0"),
    (
        "personalization",
        VALUES,
        {"methods": {"flix_sgd": {}}, "tuning": {"step_size": [0.1, 1.0]}},
        "A dial takes one step size, got tuning.step_size",
    ),
    (
        "personalization",
        VALUES,
        {"methods": {"scafflix": {}, "flix_gd": {}}},
        "A dial walks with one method, and scafflix, flix_gd all have personalization; choose with --method",
    ),
    (
        "personalization",
        VALUES,
        {"data": {"split_column": None, "features": ["age", "dose"], "validation": 0.0}},
        "No client has a validation row to choose a value on",
    ),
    ("personalization", VALUES, {"model": {"l2": None}}, "l2"),  # no unique x*_m
]


@pytest.mark.parametrize(("setting", "values", "changes", "sentence"), REFUSED)
def test_a_wrong_dial_is_refused_before_anything_is_made(small, tmp_path, setting, values, changes, sentence):
    spec = flix_spec(small, **changes)
    with pytest.raises(RequestError, match=sentence):
        walk(spec, tmp_path / "run", setting, values)
    assert not (tmp_path / "run").exists()


def test_the_method_is_chosen_by_its_label(small, tmp_path):
    spec = flix_spec(small, methods={"scafflix": {}, "gd": {"name": "flix_gd"}})
    with pytest.raises(RequestError, match=r"There is no method 'gdd' in the spec\. Did you mean 'gd'"):
        walk(spec, tmp_path / "run", "personalization", VALUES, label="gdd")
    assert walk(spec, tmp_path / "run", "personalization", VALUES, label="gd")["algorithm"] == "flix_gd"


def test_values_are_numbers():
    assert parse_values("1, 0.5,0") == [1.0, 0.5, 0.0]
    with pytest.raises(RequestError, match=r"--values needs numbers such as 1,0.5,0.1,0, got '1,half'"):
        parse_values("1,half")


def test_a_sweep_over_alpha_is_one_batched_program(small, tmp_path, monkeypatch):
    """The cold grid: every alpha a lane of one session, each equal to the run it stands for."""
    lanes = []

    def counted(algorithms, *rest):
        lanes.append(len(algorithms))
        return open_session(algorithms, *rest)

    monkeypatch.setattr(executing, "open_session", counted)
    spec = flix_spec(small)
    done = executing.execute(expand(spec, {"personalization": list(VALUES)}), tmp_path / "sweep")
    assert lanes == [3]
    (found,) = json.loads((tmp_path / "sweep" / "choices.json").read_text())["choices"]
    assert (found["kind"], found["method"], found["setting"]) == ("sweep", "scafflix", "personalization")
    assert [entry["value"] for entry in found["values"]] == list(VALUES)
    recorders = [entry.runs[0].recorder for entry in done.trained]
    validation, test = (
        np.array([recorder.selected[split]["personal"][found["score"]] for recorder in recorders])
        for split in ("validation", "test")
    )
    places, _ = choose(validation, [-value for value in VALUES], found["higher_is_better"])
    assert found["chosen"]["places"] == places.tolist()
    assert found["chosen"]["test"]["clients"] == test[places, np.arange(4)].tolist()
    for entry, recorder in zip(found["values"], recorders):
        assert entry["spent"]["total_bytes"] == sum(entry["client_bytes"]) == recorder.ledger.total_bytes
    assert [entry["rounds"] for entry in found["values"]] == [4, 4, 0]  # alpha = 0 asks no client for anything
    assert len(pq.read_table(tmp_path / "sweep" / "choices.parquet")) == 3 * 4
    for value, entry in zip(VALUES[:2], done.trained):
        single = expand(spec, {"personalization": [value]})
        (alone,) = executing.execute(single, tmp_path / f"single-{value}").trained
        ours, theirs = (one.runs[0].recorder.last["test"]["personal"]["log_loss"] for one in (entry, alone))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
        assert entry.runs[0].ledger.gradients_personal > 0 or value == 1


def test_a_sweep_varies_who_has_the_setting_and_keeps_the_others(small):
    spec = flix_spec(small, methods={"local": {"step_size": 0.1}, "scafflix": {}, "gd": {"name": "flix_gd"}})
    labels = [method.label for method in expand(spec, {"personalization": [1.0, 0.5]}).methods]
    assert labels == [
        "local",
        *(f"{name}[personalization={value}]" for name in ("scafflix", "gd") for value in VALUES[:2]),
    ]
    axes = parse_over(["methods.gd.personalization = [1.0, 0.5]"])
    labels = [method.label for method in expand(spec, axes).methods]
    assert labels == ["local", "scafflix", "gd[personalization=1.0]", "gd[personalization=0.5]"]
    with pytest.raises(RequestError, match=r"--over: no method of the spec has a setting 'alpha'\."):
        expand(spec, {"alpha": [1.0, 0.5]})
