# SPDX-License-Identifier: Apache-2.0
"""`idiolect dial`: what it prints and leaves, on a table and on a spec; what it refuses."""

from __future__ import annotations

import json

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
    assert head[1].split()[0] == "personalization"
    assert [line.split()[0].rstrip("*") for line in head[3:7]] == ["1", "0.5", "0", "own"]
    assert sum(line.count("[") for line in head) == 4  # every client's choice is marked
    assert "Each client's own personalization, chosen on its validation rows, gives" in answer.out
    assert head[-1].startswith("Run folder: runs/hospitals-dial ")
    folder = here / "runs" / "hospitals-dial"
    assert (folder / "figures" / "dial.png").read_bytes().startswith(b"\x89PNG")
    assert "personalization, in the order of the path" in (folder / "figures" / "dial.svg").read_text()
    again = idiolect("report", folder, "--quiet")
    assert again.code == 0
    assert again.out.strip() == answer.out[: answer.out.index("Run folder:")].strip()
    once_more = idiolect(*TABLE, "--values", "1,0.5,0")
    assert once_more.code == 2
    assert "is finished, and it will not be overwritten" in once_more.error


def test_a_spec_is_dialled_to_json(idiolect, here):
    (here / "flix.toml").write_text(FLIX)
    answer = idiolect(
        "dial", "flix.toml", "--values", "0.9,0.3", "--format", "json", "--quiet", "--out", "d", "--seed", 4
    )
    assert answer.code == 0, answer.err
    assert answer.err == ""
    found = json.loads(answer.out)
    assert [entry["value"] for entry in found["values"]] == [0.9, 0.3]
    assert [entry["rounds"] for entry in found["values"]] == [2, 2]
    assert found["seed"] == 4
    assert found["clients"] == ["s0", "s1", "s2", "s3"]
    assert len(found["chosen"]["values"]) == 4
    assert set(found["chosen"]["values"]) <= {0.9, 0.3}
    assert found["figure"] == "d/figures/dial.png"


def test_a_penalty_is_dialled(idiolect):
    answer = idiolect(*TABLE, "--setting", "penalty", "--values", "2,0.5", "--format", "json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert (found["setting"], found["algorithm"], found["objective"]) == ("penalty", "acd_pfl", "mx2")


WRONG = [
    ("dial", "dial needs either a TABLE or --data NAME"),
    ("dial hospitals.csv --client site", "dial TABLE needs --target COLUMN, the column that is to be predicted."),
    ("dial flix.toml --client site", "dial SPEC.toml takes its data from the spec, got --client site; leave it out."),
    ("dial flix.toml --setting alpha", "--setting must be personalization (of flix) or penalty (of mx2 and mt2)"),
    ("dial flix.toml --setting penalty", "--setting penalty needs a method on the objective mx2 or mt2"),
    ("dial flix.toml --values 0.5", "--values needs at least 2 values to choose from, got 0.5"),
    ("dial flix.toml --values 1,x", "--values needs numbers such as 1,0.5,0.1,0, got '1,x'."),
    ("dial flix.toml --values 1,-0.5", "personalization must be at least 0 and at most 1, got -0.5"),
    ("dial flix.toml --rounds 0", "training.rounds must be at least 1 for every value of a dial, got 0"),
    ("dial flix.toml --method local", "--setting personalization needs a method on the objective flix, and local has"),
    ("dial flix.toml --set data.validation=0.0", "No client has a validation row to choose a value on."),
    ("dial flix.toml --seed -1", "seeds must be one or more different whole numbers of at least 0, got [-1]."),
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
