# SPDX-License-Identifier: Apache-2.0
"""`idiolect dial`: what it prints and leaves, on a table and on a spec; what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

TABLE = ("dial", "hospitals.csv", "--client", "site", "--target", "ill", "--rounds", "2")
FLIX = """
[data]
source = "table"
path = "hospitals.csv"
client = "site"
target = "ill"
[model]
l2 = 0.1
[training]
rounds = 2
executor = "batched"
[methods.local]
step_size = 0.1
[methods.scafflix]
"""


def test_a_table_is_dialled(idiolect, here):
    answer = idiolect(*TABLE, "--values", "1,0.5,0")
    assert answer.code == 0, answer.err
    head = answer.out.splitlines()
    assert head[0].startswith("Each client's own personalization, chosen on its validation rows, gives")
    table = next(place for place, line in enumerate(head) if line.startswith("personalization "))
    assert [line.split()[0].rstrip("*") for line in head[table + 2 : table + 6]] == ["1", "0.5", "0", "own"]
    assert head[table + 2].startswith("1 (one model)")
    assert head[table + 4].startswith("0 (alone)")
    clients = next(place for place, line in enumerate(head) if line.startswith("client "))
    assert sum(line.count("[") for line in head[clients + 2 :]) == 4  # every client's choice is marked
    assert "paper" not in answer.out + answer.err
    assert head[-1].startswith("Run folder: runs/hospitals-dial ")
    folder = here / "runs" / "hospitals-dial"
    assert (folder / "figures" / "dial.png").read_bytes().startswith(b"\x89PNG")
    assert "personalization, in the order of the path" in (folder / "figures" / "dial.svg").read_text()
    page = (folder / "report.html").read_text()
    assert "Values side by side" in page
    assert page.count('class="best"') == 4  # every client's choice
    assert "{{" not in page
    again = idiolect("report", folder, "--quiet")
    assert again.code == 0
    assert again.out.strip() == answer.out[: answer.out.index("Run folder:")].strip()
    once_more = idiolect(*TABLE, "--values", "1,0.5,0")
    assert once_more.code == 0
    assert "Run folder: runs/hospitals-dial-2 " in once_more.out  # as advise does
    same = idiolect(*TABLE, "--values", "1,0.5,0", "--out", folder)
    assert same.code == 2
    assert "is finished, and it will not be overwritten" in same.error


def test_a_spec_is_dialled_to_json(idiolect, here):
    (here / "flix.toml").write_text(FLIX)
    answer = idiolect(
        "dial", "flix.toml", "--values", "0.9,0.3", "--format", "json", "--quiet", "--out", "d", "--seeds", "4"
    )
    assert answer.code == 0, answer.err
    assert answer.err == ""
    found = json.loads(answer.out)
    assert [entry["value"] for entry in found["values"]] == [0.9, 0.3]
    assert [entry["rounds"] for entry in found["values"]] == [4, 4]  # the path and its refit
    assert found["seeds"] == [4]
    assert found["clients"] == ["s0", "s1", "s2", "s3"]
    assert len(found["chosen"]["values"]) == 4
    assert set(found["chosen"]["values"]) <= {0.9, 0.3}
    assert (found["figure"], found["report"]) == ("d/figures/dial.png", "d/report.html")


def test_a_penalty_is_dialled(idiolect):
    answer = idiolect(*TABLE, "--setting", "penalty", "--values", "2,0.5", "--format", "json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert (found["setting"], found["algorithm"], found["objective"]) == ("penalty", "acd_pfl", "mx2")


@pytest.mark.parametrize("setting", ["personalization", "penalty"])
def test_every_setting_works_without_values(idiolect, setting):
    """A path from one model to every client alone, trained to its end, whose ends are named."""
    asked = ("dial", "hospitals.csv", "--client", "site", "--target", "ill", "--setting", setting, "--l2", "0.3")
    answer = idiolect(*asked, "--format", "json", "--quiet")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    values = [entry["value"] for entry in found["values"]]
    assert values == sorted(values, reverse=True)
    assert found["score"] == "log_loss"
    assert found["refit"]
    rows = pq.read_table(f"{found['folder']}/dial.parquet").to_pylist()[0]
    shown = idiolect("report", found["folder"], "--quiet").out.splitlines()
    line = next(line for line in shown if line.split()[:1] == [rows["client"]])
    assert line.split()[1] == str(rows["train_rows"] + rows["validation_rows"])  # the tested models saw both
    alone, one = found["values"][-1], found["values"][0]
    assert min(entry["rounds"] for entry in found["values"][:-1]) >= 60
    assert len(set(one["test"]["clients"])) > 1
    assert alone["test"]["mean"] != pytest.approx(one["test"]["mean"], rel=1e-3)
    assert "alone)" in idiolect("report", found["folder"], "--quiet").out


def test_the_alone_end_is_what_training_alone_scores_in_advise(idiolect, here):
    """Same split, same test rows, the same rows to learn from and near the same ridge."""
    draws = np.random.default_rng(4)
    lines = ["site,a,b,y"]
    for site in range(5):
        for a, b in draws.normal(size=(50, 2)):
            lines.append(f"s{site},{a:.3f},{b:.3f},{(1 + site / 4) * a - b + draws.normal():.3f}")
    (here / "five.csv").write_text("\n".join(lines) + "\n")
    asked = ("five.csv", "--client", "site", "--target", "y", "--format", "json", "--quiet")
    dial = json.loads(idiolect("dial", *asked, "--values", "1,0", "--seed", "3").out)
    advice = json.loads(idiolect("advise", *asked, "--verify", "--seeds", "3").out)
    for place, way in ((1, "alone"), (0, "everybody")):
        told = [entry["loss"][way] for entry in advice["verify"]["clients"]]
        assert dial["values"][place]["test"]["clients"] == pytest.approx(told, rel=0.1)
        assert dial["values"][place]["test"]["mean"] == pytest.approx(np.mean(told), rel=0.03)


WRONG = [
    ("dial", "dial needs either a TABLE or --data NAME"),
    ("dial hospitals.csv --client site", "dial TABLE needs --target COLUMN, the column that is to be predicted."),
    ("dial flix.toml --client site", "dial SPEC.toml takes its data from the spec, got --client site; leave it out."),
    ("dial flix.toml --setting alpha", "--setting must be personalization (of flix) or penalty (of mx2 and mt2)"),
    ("dial flix.toml --setting penalty", "--setting penalty needs a method on the objective mx2 or mt2"),
    ("dial flix.toml --values 0.5", "--values needs at least 2 values to choose from, got 0.5"),
    ("dial flix.toml --values 1,x", "--values needs numbers such as 1,0.5,0.1,0, got '1,x'."),
    ("dial flix.toml --values 1,-0.5", "--values must be at least 0 and at most 1, got -0.5"),
    ("dial flix.toml --rounds 0", "--rounds (training.rounds in a spec) must be at least 1 for every value"),
    (
        "dial hospitals.csv --client site --target ill --setting penalty --values 1,0",
        "must be above 0, got 0: at 0 noth",
    ),
    ("dial flix.toml --method local", "--setting personalization needs a method on the objective flix, and local has"),
    ("dial flix.toml --set data.validation=0.0", "No client has a validation row to choose a value on."),
    ("dial flix.toml --seed 3", "dial SPEC.toml takes its data from the spec, got --seed 3; leave it out."),
    ("dial flix.toml --seeds -1", "--seeds needs numbers such as 0,1,2 or 0-9, got '-1'."),
    ("dial flix.toml --resume", "There is no run to resume in runs/flix-dial; start one without --resume."),
    ("dial spec.toml", "--setting personalization needs a method on the objective flix, and local, fedavg has none"),
]


@pytest.mark.parametrize(("line", "sentence"), WRONG, ids=[line for line, _ in WRONG])
def test_a_wrong_dial_is_refused_before_anything_is_made(idiolect, here, line, sentence):
    (here / "flix.toml").write_text(FLIX)
    before = sorted(here.rglob("*"))
    answer = idiolect(*line.split())
    assert answer.code == 2, answer
    assert answer.out == ""
    assert sentence in answer.error
    assert sorted(here.rglob("*")) == before


def test_a_dial_that_diverges_is_a_miss(idiolect, here):
    (here / "flix.toml").write_text(FLIX)
    change = ("--set", "methods.scafflix.local_step = 1e30", "--set", "methods.scafflix.communication_probability = 1")
    answer = idiolect("dial", "flix.toml", "--values", "1,0.5", "--rounds", "20", *change)
    assert answer.code == 1
    assert "scafflix at personalization = 1: Training diverged" in answer.error


def test_a_sweep_shows_what_each_client_would_choose(idiolect, here):
    (here / "flix.toml").write_text(FLIX)
    asked = ("sweep", "flix.toml", "--over", "personalization = [1, 0.5, 0]", "--out", "s")
    answer = idiolect(*asked)
    assert answer.code == 0, answer.err
    assert "scafflix[personalization=0.5]" in answer.out
    assert "Each client's own personalization, chosen on its validation rows, gives" in answer.out
    assert "All runs together cost" in answer.out
    page = (here / "s" / "report.html").read_text()
    assert "Each client&#39;s own choice" in page
    assert "personalization, each from a cold start" in (here / "s" / "figures" / "choice-0.svg").read_text()
    again = idiolect("report", "s", "--format", "json")
    (choice,) = json.loads(again.out)["choices"]
    assert [entry["value"] for entry in choice["values"]] == [1, 0.5, 0]
    assert choice["seeds"] == [0]
    spent = choice["values"][2]["spent"]
    assert spent["total_bytes"] == spent["preparation_bytes"]  # nothing was sent while training
