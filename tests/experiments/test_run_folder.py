# SPDX-License-Identifier: Apache-2.0
"""The run folder: every file and column of schema 3, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from idiolect.accounting.ledger import FIELDS
from idiolect.core.checks import RequestError
from idiolect.experiments import run_folder
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import from_table

SCORES = ("accuracy", "log_loss")
FILES = {
    *("spec.toml", "history.parquet", "clients.parquet", "summary.json", "machine.json", "done"),
    *("predictions.parquet", "split.parquet", "manifest.json", "rows.json", "privacy.json"),
    *("models/clients.json", "models/preprocessing.json"),
    *(f"models/fedavg-seed{seed}/{kind}.safetensors" for seed in (0, 1) for kind in ("shared", "personal")),
    *(f"models/local-seed{seed}/personal.safetensors" for seed in (0, 1)),
}
METHOD_KEYS = {
    *("method", "algorithm", "objective", "summary", "seeds", "settings", "score", "seed_means", "interval"),
    *("shared_mean", "last_mean", "selected_rounds", "helped", "hurt", "same", "unclear", "gain", "rounds"),
    *("seconds", "better", "worse", "gain_over_one", "clients", "missing", "other_scores"),
    *("new_clients", "diverged", "tuned", "personalization", "routing", "storage", "flops"),
    *(name for name in FIELDS if name != "rounds"),
}


def test_a_finished_folder_holds_every_file_and_no_other(finished):
    _, folder = finished
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == FILES
    digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert (folder / "done").read_text() == f"{digest}\n"
    assert set(json.loads((folder / "manifest.json").read_text())["files"]) == FILES - {"manifest.json", "done"}


def test_history_has_the_columns_of_the_schema(finished):
    _, folder = finished
    schema = pq.read_schema(folder / "history.parquet")
    kinds = {"method": pa.string(), "seed": pa.int64(), "round": pa.int64(), "seconds": pa.float64()}
    kinds |= {name: pa.int64() for name in FIELDS} | {"modelled_seconds": pa.float64()}
    for score in SCORES:
        for model in ("shared", "personal"):
            for part in ("mean", "worst_decile", "spread"):
                kinds[f"validation_{model}_{score}_{part}"] = pa.float64()
    assert {name: schema.field(name).type for name in kinds} == kinds
    rows = pq.read_table(folder / "history.parquet").to_pylist()
    # two methods, two seeds, the start and three recorded rounds
    assert [(row["method"], row["seed"], row["round"]) for row in rows] == [
        (method, seed, number) for method in ("local", "fedavg") for seed in (0, 1) for number in range(4)
    ]
    # `local` has no shared model: null, not a number that looks like one
    assert {row["validation_shared_accuracy_mean"] for row in rows if row["method"] == "local"} == {None}
    assert all(row["upload_bytes"] == 0 for row in rows if row["method"] == "local")


def test_clients_have_the_columns_of_the_schema(finished):
    _, folder = finished
    schema = pq.read_schema(folder / "clients.parquet")
    kinds = dict.fromkeys(("method", "client", "verdict"), pa.string()) | {"held_out": pa.bool_(), "seed": pa.int64()}
    kinds |= {f"{part}_rows": pa.int64() for part in ("train", "validation", "test")}
    ends = ("", "_low", "_high")
    kinds |= {f"{gain}{end}": pa.float64() for gain in ("gain", "gain_over_one", "gain_expected") for end in ends}
    kinds |= dict.fromkeys(("local_score", "one_score", "score"), pa.float64())
    for score in SCORES:
        for model in ("shared", "personal"):
            for split in ("test", "validation"):
                for when in ("last", "selected"):
                    kinds[f"{split}_{model}_{score}_{when}"] = pa.float64()
    for who in ("both", "shared_only", "personal_only", "neither"):
        kinds[f"test_instances_{who}_selected"] = pa.float64()
    assert {name: schema.field(name).type for name in kinds} == kinds
    rows = pq.read_table(folder / "clients.parquet").to_pylist()
    assert len(rows) == 2 * 2 * 4  # methods, seeds, clients (one of them held out)
    assert sum(row["held_out"] for row in rows) == 4
    for row in rows:
        assert (row["train_rows"], row["validation_rows"], row["test_rows"]) == (4, 1, 3)
        if not row["held_out"]:
            assert row["score"] == row["test_personal_accuracy_selected"]
            assert row["gain"] == pytest.approx(row["score"] - row["local_score"], abs=1e-6)
            assert row["gain_over_one"] == pytest.approx(row["score"] - row["one_score"], abs=1e-6)
            assert row["verdict"] in ("helped", "hurt", "same", "unclear")


def test_the_summary_agrees_with_the_clients(finished):
    _, folder = finished
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["schema"], summary["scores"]) == (3, list(SCORES))
    assert summary["higher_is_better"] == {"accuracy": True, "log_loss": False}
    assert summary["score_reason"].startswith("Scored by accuracy")
    clients = pq.read_table(folder / "clients.parquet").to_pylist()
    for entry in summary["methods"]:
        assert set(entry) >= METHOD_KEYS
        own = [row for row in clients if row["method"] == entry["method"]]
        trained = {
            seed: [row["score"] for row in own if row["seed"] == seed and not row["held_out"]] for seed in (0, 1)
        }
        assert entry["seed_means"] == pytest.approx([np.mean(scores) for scores in trained.values()])
        assert entry["score"]["mean"] == pytest.approx(np.mean(entry["seed_means"]))
        assert entry["new_clients"]["mean"] == pytest.approx(np.mean([row["score"] for row in own if row["held_out"]]))
    local, fedavg = summary["methods"]
    assert (local["personalization"]["acc_g"], local["new_clients"]["shared_mean"]) == (None, None)
    assert local["personalization"]["acc_p"] == pytest.approx(local["score"]["mean"], abs=1e-6)
    before_and_after = [fedavg["personalization"][name] for name in ("acc_g", "acc_p", "same")]
    assert before_and_after == pytest.approx([fedavg["score"]["mean"]] * 2 + [100], abs=1e-6)
    assert fedavg["new_clients"]["personalization"]["acc_g"] == pytest.approx(fedavg["new_clients"]["shared_mean"])
    assert {f"p{percent}" for percent in range(10, 100, 10)} <= set(fedavg["score"])
    assert fedavg["storage"]["client_bytes"] == local["storage"]["server_bytes"] == 0
    assert fedavg["storage"]["server_bytes"] == local["storage"]["client_bytes"] > 0
    assert fedavg["flops"] is fedavg["routing"] is None
    own = [row for row in clients if row["method"] == "fedavg" and not row["held_out"]]
    names = sorted({row["client"] for row in own})  # a client's seeds count once, by their mean
    gains = [np.mean([row["gain"] for row in own if row["client"] == name]) for name in names]
    assert fedavg["better"] == pytest.approx(100 * np.mean([gain > 0 for gain in gains]))
    assert fedavg["worse"] == pytest.approx(100 * np.mean([gain < 0 for gain in gains]))
    verdicts = {row["client"]: row["verdict"] for row in own}  # the same for all seeds of a client
    assert {(row["client"], row["verdict"]) for row in own} == set(verdicts.items())
    for word in ("helped", "hurt", "same", "unclear"):
        assert fedavg[word] == pytest.approx(100 * np.mean([verdict == word for verdict in verdicts.values()]))
    assert fedavg["gain_over_one"] is None  # it is the one model
    over = [row["gain_over_one"] for row in clients if row["method"] == "local" and not row["held_out"]]
    assert local["gain_over_one"]["mean"] == pytest.approx(np.mean(over), abs=1e-6)
    assert (local["clients"], local["missing"], summary["unscored"]) == (3, 0, None)
    losses = [row["test_personal_log_loss_selected"] for row in own]
    assert fedavg["other_scores"]["log_loss"]["mean"] == pytest.approx(np.mean(losses))
    assert fedavg["gain"]["mean"] == pytest.approx(np.mean(gains), abs=1e-6)


def test_the_spec_in_the_folder_is_resolved(finished):
    spec, folder = finished
    written = from_table(tomllib.loads((folder / "spec.toml").read_text()))
    assert written.methods == spec.methods
    for entry in written.resolved.values():
        assert (entry.executor, entry.block) == ("batched", 1)
    assert set(written.resolved) == {"local", "fedavg"}


def test_models_are_stacked_over_the_clients_that_trained(finished):
    _, folder = finished
    names = json.loads((folder / "models/clients.json").read_text())
    personal = load_file(folder / "models/fedavg-seed0/personal.safetensors")
    shared = load_file(folder / "models/fedavg-seed0/shared.safetensors")
    assert len(names) == 3
    assert personal["weights"].shape == (3, *shared["weights"].shape)
    # FedAvg's personal model is the shared one
    assert all(np.array_equal(row, shared["weights"]) for row in personal["weights"])


def test_what_another_program_was_given_is_not_kept(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["here/ipykernel_launcher.py", "-f", "there/kernel.json"])
    assert run_folder.machine_facts("hospital")["command"] == ["ipykernel_launcher.py"]
    monkeypatch.setattr(sys, "argv", ["here/idiolect", "compare", "a.csv"])
    assert run_folder.machine_facts("hospital")["command"] == ["idiolect", "compare", "a.csv"]


def test_machine_facts_name_versions_and_no_place(finished):
    _, folder = finished
    facts = json.loads((folder / "machine.json").read_text())
    assert {"python", "jax", "numpy", "devices", "cpu_count", "load_average", "date", "command", "time_model"} <= set(
        facts
    )
    assert not any(str(value).startswith("/") for value in facts.values())


@pytest.fixture
def folder(tmp_path):
    opened = RunFolder(tmp_path / "run")
    opened.open(resume=False)
    return opened


def test_a_write_that_fails_keeps_the_file_before(folder, monkeypatch):
    folder.write_json("summary.json", {"a": 1})
    folder.write_table("rows.parquet", [{"a": 1}])

    def fail(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder.os, "replace", fail)
    for write in (
        lambda: folder.write_json("summary.json", {"a": 2}),
        lambda: folder.write_table("rows.parquet", [{"a": 2}]),
        lambda: folder.write_model("m/shared", {"w": np.zeros(2)}),
    ):
        with pytest.raises(OSError, match="No space left"):
            write()
    assert json.loads((folder.path / "summary.json").read_text()) == {"a": 1}
    assert pq.read_table(folder.path / "rows.parquet").to_pylist() == [{"a": 1}]
    assert not list(folder.path.rglob("*.safetensors"))
    assert not list(folder.path.rglob("*unfinished*"))


def test_not_a_number_is_null(folder):
    folder.write_json("x.json", {"a": math.nan, "b": [np.float32(1.5), math.inf], "c": np.int64(3)})
    assert json.loads((folder.path / "x.json").read_text()) == {"a": None, "b": [1.5, None], "c": 3}
    folder.write_table("x.parquet", [{"a": math.nan, "b": 1.0}, {"b": math.nan, "c": 2}])
    assert pq.read_table(folder.path / "x.parquet").to_pylist() == [
        {"a": None, "b": 1.0, "c": None},
        {"a": None, "b": None, "c": 2},
    ]


def test_a_column_without_a_value_keeps_its_type(folder):
    folder.write_table("x.parquet", [{"verdict": None, "gain": None, "method": "a"}])
    schema = pq.read_schema(folder.path / "x.parquet")
    assert [schema.field(name).type for name in ("verdict", "gain")] == [pa.string(), pa.float64()]


def test_a_folder_may_be_used_once(folder):
    folder.check(resume=False)  # made, still empty
    with pytest.raises(RequestError, match="There is no run to resume in"):
        folder.check(resume=True)
    folder.write_text("spec.toml", "")
    folder.check(resume=True)
    with pytest.raises(RequestError, match=r"already holds a run\. Add --resume to go on with it"):
        folder.check(resume=False)
    folder.finish()
    for resume in (True, False):
        with pytest.raises(RequestError, match="is finished, and"):
            folder.check(resume)


LABELS = [
    "fedavg",
    "a/b",
    "a_b",
    "a b",
    "..",
    ".",
    "../x",
    "x",
    ".x",
    "ü",
    "日本",
    'q"q',
    "a\nb",
    "fedavg[step_size=0.1]",
]


def test_labels_become_different_names_inside_the_folder(tmp_path):
    names = [safe_name(label) for label in LABELS]
    assert len(set(names)) == len(names)
    assert names[0] == "fedavg"
    for name in names:
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        (tmp_path / name).mkdir()
