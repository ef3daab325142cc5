# SPDX-License-Identifier: Apache-2.0
"""Folders of killed, damaged and finished runs: what each command says about them."""

from __future__ import annotations

import json

import pytest

from idiolect.cli import interruption
from idiolect.record import standing

ROWS = ("hospitals.csv", "--client", "site", "--target", "ill")


@pytest.fixture
def finished(idiolect, here):
    """A finished run of two methods with all models."""
    assert idiolect("run", "spec.toml", "--out", "out").code == 0
    return here / "out"


def test_verify_names_what_is_damaged_missing_and_extra(idiolect, finished):
    assert idiolect("verify", "out").code == 0
    (finished / "clients.parquet").write_bytes(b"PAR1")
    (finished / "models/clients.json").unlink()
    (finished / "more.txt").write_text("")
    answer = idiolect("verify", "out", "--format", "json")
    assert answer.code == 1
    found = json.loads(answer.out)
    assert not found["sound"]
    assert (found["damaged"], found["missing"], found["extra"]) == (
        ["clients.parquet"],
        ["models/clients.json"],
        ["more.txt"],
    )
    text = idiolect("verify", "out").out
    assert "damaged  clients.parquet" in text
    for command in (("report", "out"), ("predict", "out", "hospitals.csv"), ("run", "out", "--resume")):
        answer = idiolect(*command)
        assert answer.code == 2
        assert "Unexpected" not in answer.err


def test_verify_needs_a_finished_folder(idiolect, here):
    assert idiolect("verify", "nothing").code == 2
    (here / "notes").mkdir()
    (here / "notes" / "read.me").write_text("no run")
    stranger = idiolect("verify", "notes")
    assert stranger.code == 2
    assert "is no run folder" in stranger.error
    (here / "begun").mkdir()
    (here / "begun" / "spec.toml").write_text("")
    begun = idiolect("verify", "begun")
    assert begun.code == 2
    assert "--resume" in begun.error


def test_predict_answers_by_no_other_model_where_one_is_gone(idiolect, finished):
    (finished / "models/fedavg-seed0/personal.safetensors").unlink()
    answer = idiolect("predict", "out", "hospitals.csv", "--method", "fedavg")
    assert (answer.code, answer.out) == (2, "")
    assert "personal.safetensors is missing" in answer.err


def test_a_folder_without_a_manifest_is_read_with_a_warning(idiolect, finished):
    (finished / "manifest.json").unlink()
    (finished / "done").write_bytes(b"")
    answer = idiolect("predict", "out", "hospitals.csv", "--method", "fedavg")
    assert answer.code == 0
    assert "earlier version" in answer.err
    summary = json.loads((finished / "summary.json").read_text())
    summary["methods"][0]["score"] = [1]  # no checksum vouches for it
    (finished / "summary.json").write_text(json.dumps(summary))
    answer = idiolect("report", "out")
    assert answer.code == 2
    assert "methods[0].score must be an object" in answer.err


def test_a_run_without_its_mark_is_not_reported_and_resumed_to_its_end(idiolect, finished):
    (finished / "done").unlink()
    answer = idiolect("report", "out")
    assert (answer.code, answer.out) == (2, "")
    assert "done is missing" in answer.err
    assert idiolect("run", "out", "--resume").code == 0
    assert idiolect("verify", "out").code == 0


def test_what_a_process_left_that_was_killed_after_the_end_is_removed(idiolect, finished):
    before = set(finished.rglob("*"))
    (finished / "checkpoint").mkdir()
    for name in (".lock", ".done.1-1.unfinished", "checkpoint/latest.npz"):
        (finished / name).write_bytes(b"")
    assert idiolect("run", "spec.toml", "--out", "out").code == 2
    assert set(finished.rglob("*")) == before


@pytest.fixture
def unfinished(idiolect, here, monkeypatch):
    """A run that was cut off after training, before its results were written."""
    from idiolect.experiments import execute

    def cut(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(execute, "_write", cut)
        answer = idiolect("run", "spec.toml", "--out", "out")
    assert answer.err.splitlines()[-1].startswith("Error: Interrupted. What was finished is kept in out; ")
    return here / "out"


def test_an_edited_spec_is_not_resumed(idiolect, unfinished):
    path = unfinished / "spec.toml"
    path.write_text(path.read_text().replace("rounds = 3", "rounds = 4", 1))
    answer = idiolect("run", "out", "--resume")
    assert answer.code == 2
    assert "was changed after the run had written it" in answer.err


def test_changed_test_rows_are_not_resumed(idiolect, here, unfinished):
    table = here / "hospitals.csv"
    rows = table.read_text().splitlines()
    table.write_text("\n".join([rows[0], *(row[:-1] + ("0" if row[-1] == "1" else "1") for row in rows[1:])]) + "\n")
    answer = idiolect("run", "out", "--resume")
    assert answer.code == 2
    assert "rows are not those" in answer.err


def test_a_dial_is_not_gone_on_with_by_run(idiolect, here, monkeypatch):
    from idiolect.experiments import dial

    def cut(*arguments, **ways):
        raise KeyboardInterrupt

    command = ("dial", *ROWS, "--values", "1,0", "--rounds", "1", "--l2", "0.1", "--out", "out")
    with monkeypatch.context() as patch:
        patch.setattr(dial.Walk, "train", cut)
        answer = idiolect(*command)
    assert "`idiolect dial` command with --out out --resume" in answer.err
    refused = idiolect("run", "out", "--resume")
    assert refused.code == 2
    assert "begun by `idiolect dial`" in refused.err
    assert idiolect(*command, "--resume").code == 0


def test_before_anything_is_written_an_interrupt_says_so(idiolect, here, monkeypatch):
    from idiolect.experiments import execute

    def cut(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "prepare", cut)
    answer = idiolect("run", "spec.toml", "--out", "out")
    assert answer.err.splitlines()[-1] == "Error: Interrupted. Nothing was written; give the command again."
    assert not (here / "out").exists()
    assert interruption.word() == "Interrupted"
    standing.forget()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.name = 'mlp'\nmodel.hidden = [1000000000]", "use smaller or fewer layers"),
        ("defaults.epochs = 2000000000\ndefaults.batch_size = 1", "below 2^31"),
    ],
)
def test_numbers_that_ask_for_too_much_are_refused_before_the_folder_is_made(idiolect, here, change, words):
    changes = [part for line in change.split("\n") for part in ("--set", line)]
    answer = idiolect("run", "spec.toml", "--out", "out", *changes)
    assert answer.code == 2
    assert words in answer.err
    assert not (here / "out").exists()


def test_a_record_after_more_rounds_than_there_are_takes_no_memory(idiolect, here):
    assert idiolect("run", "spec.toml", "--out", "out", "--set", "training.record_every = 1073741824").code == 0


def test_looped_runs_take_several_seeds(idiolect, here):
    changes = ("--set", "training.executor = 'looped'", "--set", "seeds = [0, 1]", "--set", "training.rounds = 1")
    assert idiolect("run", "spec.toml", "--out", "out", *changes).code == 0
