# SPDX-License-Identifier: Apache-2.0
"""`idiolect compare --splits`: its table, JSON, report, what it refuses, and how it goes on."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from idiolect.cli import app
from idiolect.cli.failures import exit_code_of

TABLE = ("hospitals.csv", "--client", "site", "--target", "ill")
QUICK = ("--methods", "local,fedavg", "--rounds", "2", "--step-sizes", "0.1")


@pytest.fixture(scope="module")
def split_once(tmp_path_factory, workshop):
    """A finished comparison over two splits, trained once; copy it before changing it."""
    folder = tmp_path_factory.mktemp("split")
    shutil.copy(workshop / "hospitals.csv", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["idiolect", "compare", *TABLE, *QUICK, "--splits", "2", "--out", "run", "--quiet"])
        assert exit_code_of(app) == 0
    return folder / "run"


@pytest.fixture
def split(here, split_once):
    return shutil.copytree(split_once, here / "run")


def test_report_prints_the_answer_over_splits(idiolect, split):
    answer = idiolect("report", "run")
    assert answer.code == 0, answer
    assert "was announced in" in answer.out
    assert "2 splits" in answer.out
    assert "Client by client" in (split / "report.html").read_text()


def test_json_has_methods_clients_and_files(idiolect, split):
    found = json.loads(idiolect("report", "run", "--format", "json").out)
    assert [line["method"] for line in found["methods"]] == ["local", "fedavg"]
    assert sum(line["announced"] for line in found["methods"]) == 2
    assert [row["client"] for row in found["clients"]] == ["s0", "s1", "s2", "s3"]
    assert found["folder"] == "run"
    assert found["answer"].endswith(".")


def test_each_split_is_reported_and_predicted_from(idiolect, split):
    assert idiolect("report", "run/split-02").code == 0
    refused = idiolect("predict", "run", "hospitals.csv")
    assert refused.code == 2
    assert "run/split-01" in refused.error
    assert idiolect("predict", "run/split-01", "hospitals.csv", "--quiet").code == 0


def test_each_split_states_what_left_its_clients(idiolect, split):
    stated = json.loads(idiolect("explain", str(split), "--format", "json").out)
    assert list(stated) == ["split-01", "split-02"]
    assert all(one["methods"] for one in stated.values())
    assert "That of split-01:" in idiolect("explain", str(split)).out


def test_an_unfinished_folder_is_named_and_gone_on_with(idiolect, split):
    for name in ("done", "splits.json", "splits.parquet", "split-02/done"):
        (split / name).unlink()
    refused = idiolect("report", "run")
    assert refused.code == 2
    assert "idiolect run run --resume" in refused.error
    other = idiolect("compare", *TABLE, *QUICK, "--out", "run", "--resume")
    assert other.code == 2
    assert "--splits 2" in other.error
    answer = idiolect("run", "run", "--resume")
    assert answer.code == 0, answer
    assert "Split 2 of 2 is finished" in answer.err
    again = idiolect("run", "run", "--resume")
    assert again.code == 2
    assert "idiolect report run" in again.error


def test_ctrl_c_says_how_to_go_on(idiolect, split, monkeypatch):
    from idiolect.experiments import splits

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for name in ("done", "splits.json", "split-02/done"):
        (split / name).unlink()
    monkeypatch.setattr(splits, "execute", interrupt)
    answer = idiolect("run", "run", "--resume")
    assert answer.code == 1
    assert "1 of 2 splits are finished in run." in answer.err
    assert "kept in run; `idiolect run run --resume` goes on" in answer.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--splits", "0"), "--splits must be"),
        (("--splits", "2", "--split-column", "age"), "--split-column age"),
        (("--splits", "2", "--time", "age"), "--time age"),
        (("--splits", "2", "--set", "data.time_column = 'age'"), "--time age"),
    ],
)
def test_what_cannot_be_split_again_is_refused(idiolect, here, options, words):
    answer = idiolect("compare", *TABLE, *options)
    assert answer.code == 2
    assert words in answer.error
    assert not (here / "runs").exists()


def test_one_split_is_a_plain_run(idiolect, here):
    answer = idiolect("compare", *TABLE, *QUICK, "--splits", "1", "--out", "plain", "--quiet")
    assert answer.code == 0, answer
    assert (here / "plain/summary.json").is_file()
    assert not (here / "plain/split-01").exists()
