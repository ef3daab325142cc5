# SPDX-License-Identifier: Apache-2.0
"""What `predict` is given may be damaged in any part: one sentence and exit code 2, never an answer from it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from idiolect.record.manifest import write_manifest

RECIPE, CLIENTS, SHARED = "models/preprocessing.json", "models/clients.json", "models/fedavg-seed0/shared.safetensors"
OWN = "models/fedavg-seed0/personal.safetensors"


def text(name, content):
    return lambda run: (run / name).write_text(content)


def content(name, change):
    def apply(run):
        found = json.loads((run / name).read_text())
        change(found)
        (run / name).write_text(json.dumps(found))

    return apply


def column(key, value):
    """Change a field of the first column of the recipe, where its fields stand now or stood earlier."""

    def change(recipe):
        first = recipe["columns"][0]
        first.get("column", first)[key] = value

    return content(RECIPE, change)


def arrays(name, change):
    return lambda run: save_file({key: change(array) for key, array in load_file(run / name).items()}, run / name)


FOLDERS = {
    "a file": lambda run: (shutil.rmtree(run), run.write_text("")),
    "no folder": shutil.rmtree,
    "no spec": lambda run: (run / "spec.toml").unlink(),
    "spec of garbage": text("spec.toml", "[[["),
    "spec of bytes": lambda run: (run / "spec.toml").write_bytes(b"\xff\xfe\x00"),
    "empty spec": text("spec.toml", ""),
    "not finished": lambda run: (run / "done").unlink(),
    "no models": lambda run: shutil.rmtree(run / "models"),
    "no clients": lambda run: (run / CLIENTS).unlink(),
    "clients of garbage": text(CLIENTS, "{"),
    "clients no list": text(CLIENTS, "{}"),
    "clients doubled": text(CLIENTS, '["a", "a"]'),
    "clients too few": text(CLIENTS, '["s0"]'),
    "no recipe": lambda run: (run / RECIPE).unlink(),
    "empty recipe": text(RECIPE, ""),
    "recipe of null": text(RECIPE, "null"),
    "recipe a list": text(RECIPE, "[]"),
    "recipe without columns": content(RECIPE, lambda recipe: recipe.update(columns=[])),
    "recipe with a number for columns": content(RECIPE, lambda recipe: recipe.update(columns=3)),
    "scale a text": column("scale", "wide"),
    "scale null": column("scale", None),
    "scale zero": column("scale", 0),
    "centre infinite": column("centre", float("inf")),
    "name null": column("name", None),
    "classes a text": content(RECIPE, lambda recipe: recipe["target"].update(classes="01")),
    "target without names": content(RECIPE, lambda recipe: recipe["target"].update(names=None)),
    "client a list": content(RECIPE, lambda recipe: recipe.update(client=["site"])),
    "summary of garbage": text("summary.json", "{"),
    "summary a list": text("summary.json", "[]"),
    "summary without lines": text("summary.json", '{"methods": null}'),
    "shared of garbage": text(SHARED, "garbage"),
    "shared empty": text(SHARED, ""),
    "shared cut": lambda run: (run / SHARED).write_bytes((run / SHARED).read_bytes()[:-4]),
    "shared of another method": lambda run: save_file({"other": np.zeros(3, np.float32)}, run / SHARED),
    "shared of another shape": arrays(SHARED, lambda array: np.zeros((7, 7), np.float32)),
    "shared not a number": arrays(SHARED, lambda array: np.full_like(array, np.nan)),
    "own of garbage": text(OWN, "garbage"),
    "own of another method": lambda run: save_file({"other": np.zeros((4, 3), np.float32)}, run / OWN),
    "own of another shape": arrays(OWN, lambda array: np.zeros((4, 7), np.float32)),
    "own of too few": arrays(OWN, lambda array: array[:2].copy()),
    "own not a number": arrays(OWN, lambda array: np.full_like(array, np.nan)),
    "no model": lambda run: shutil.rmtree(run / "models/fedavg-seed0"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_damaged_folder_is_refused(idiolect, here, finished, name):
    (here / "new.csv").write_text("site,age,dose\ns1,1,1\nelsewhere,1,1\n")
    FOLDERS[name](here / "run")
    answer = idiolect("predict", "run", "new.csv", "--method", "fedavg")
    assert (answer.code, answer.out) == (2, "")
    assert answer.error.startswith("Error: ")
    assert "Unexpected" not in answer.err


TABLES = {
    "empty": "",
    "header alone": "site,age,dose\n",
    "a column missing": "site,age\ns1,1\n",
    "another case": "site,Age,dose\ns1,1,1\n",
    "a text for a number": "site,age,dose\ns1,old,1\n",
    "infinite": "site,age,dose\ns1,inf,1\n",
    "too large": "site,age,dose\ns1,1e300,1\n",
    "ragged": "site,age,dose\ns1,1\n",
    "a column twice": "site,age,age,dose\ns1,1,1,1\n",
    "answered before": "site,age,dose,model\ns1,1,1,shared\n",
    "probabilities before": "site,age,dose,probability of 0\ns1,1,1,0.5\n",
    "zero bytes": "site,age,dose\ns1,\0,1\n",
}
COLUMNS = {
    "lists": {"age": [[1.0]]},
    "structs": {"age": [{"a": 1.0}]},
    "durations": {"age": pa.array([5], pa.duration("s"))},
    "infinite": {"age": [float("inf")]},
    "clients in lists": {"site": [["s1"]]},
    "lists that CSV cannot hold": {"more": [[1, 2]]},
}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_text_table_is_refused(idiolect, here, finished, name):
    (here / "new.csv").write_text(TABLES[name])
    answer = idiolect("predict", "run", "new.csv", "--method", "fedavg")
    assert (answer.code, answer.out) == (2, "")
    assert "Unexpected" not in answer.err


@pytest.mark.parametrize("name", COLUMNS)
def test_a_bad_column_is_refused(idiolect, here, finished, name):
    pq.write_table(pa.table({"site": ["s1"], "age": [1.0], "dose": [1.0]} | COLUMNS[name]), here / "new.parquet")
    answer = idiolect("predict", "run", "new.parquet", "--method", "fedavg")
    assert (answer.code, answer.out) == (2, "")
    assert "Unexpected" not in answer.err


def test_columns_that_csv_cannot_hold_go_into_parquet_and_json(idiolect, here, finished):
    pq.write_table(
        pa.table({"site": ["s1"], "age": [1.0], "dose": [1.0], "more": [[1.0, float("nan")]]}), "new.parquet"
    )
    assert idiolect("predict", "run", "new.parquet", "--out", "new/answers.parquet").code == 0
    assert pq.read_table(here / "new/answers.parquet")["more"].to_pylist()[0][0] == 1.0
    rows = json.loads(idiolect("predict", "run", "new.parquet", "--format", "json").out)
    assert rows[0]["more"] == [1.0, None]


def test_predict_says_what_other_folders_are(idiolect, here, finished):
    for file, word in (("advise.json", "advise"), ("numbers.json", "reproduce")):
        folder = here / word
        folder.mkdir()
        (folder / "spec.toml").write_text("")
        (folder / file).write_text("{}")
        answer = idiolect("predict", word, "hospitals.csv")
        assert answer.code == 2
        assert f"`idiolect {word}` keeps no models" in answer.error


WRITTEN = 'site,when,age,note,dose\ns1,2024-01-31T09:30,1.50,NA,+1\nelsewhere,2024-01-31 10:00+02:00,2,"a, ""b""",1e0\n'


def test_columns_that_are_passed_through_come_out_as_they_were_written(idiolect, here, finished):
    (here / "new.csv").write_text(WRITTEN)
    lines = idiolect("predict", "run", "new.csv", "--method", "fedavg").out.splitlines()
    assert all(line.startswith(f"{own},") for line, own in zip(lines, WRITTEN.splitlines(), strict=True))
    assert idiolect("predict", "run", "new.csv", "--method", "fedavg", "--out", "answers.csv").code == 0
    assert (here / "answers.csv").read_text().splitlines() == lines
    rows = json.loads(idiolect("predict", "run", "new.csv", "--method", "fedavg", "--format", "json").out)
    assert [row["when"] for row in rows] == ["2024-01-31T09:30", "2024-01-31 10:00+02:00"]
    assert [row["age"] for row in rows] == [1.5, 2.0]
    pq.write_table(pa.table({"site": ["s1"], "age": [1.0], "dose": [1.0], "when": ["2024-01-31 09:30"]}), "new.parquet")
    assert idiolect("predict", "run", "new.parquet", "--out", "answers.parquet").code == 0
    assert pq.read_table(here / "answers.parquet")["when"].to_pylist() == ["2024-01-31 09:30"]


def test_a_format_that_the_file_does_not_have_is_refused(idiolect, here, finished):
    (here / "new.csv").write_text("site,age,dose\ns1,1,1\n")
    answer = idiolect("predict", "run", "new.csv", "--format", "json", "--out", "answers.csv")
    assert answer.code == 2
    assert "--format json" in answer.error
    assert not (here / "answers.csv").exists()


@pytest.mark.parametrize("options", [(), ("--method", "fedavg")])
def test_a_run_without_a_sound_method_says_so_and_the_way_out(idiolect, here, finished, options):
    (here / "new.csv").write_text("site,age,dose\ns1,1,1\n")

    def diverge(summary):
        summary["announced"] = None
        for line in summary["methods"]:
            line["diverged"] = {"round": 2, "client": "s1", "reason": ""}

    content("summary.json", diverge)(here / "run")
    write_manifest(here / "run")  # no damage: it ended so
    answer = idiolect("predict", "run", "new.csv", *options)
    assert answer.code == 2
    assert "Every method" in answer.error
    assert "--step-sizes" in answer.error
