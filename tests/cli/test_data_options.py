# SPDX-License-Identifier: Apache-2.0
"""Options that say how a table is read: they reach the spec, and wrong ones are refused by their name."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from idiolect.cli.data_options import Columns

TABLE = ("hospitals.csv", "--client", "site", "--target", "ill")


def test_options_become_the_data_table_of_a_spec():
    columns = Columns(
        client="site",
        target="ill",
        features='age,"height, cm"',
        drop="id, remark",
        categorical="ward",
        group="visit",
        weight="exposure",
        task="classification",
    )
    assert columns.data_table("compare", Path("t.csv")) == {
        "source": "table",
        "path": "t.csv",
        "client": "site",
        "target": "ill",
        "features": ["age", "height, cm"],
        "drop": ["id", "remark"],
        "categorical": ["ward"],
        "group_column": "visit",
        "weight_column": "exposure",
        "task": "classification",
    }


@pytest.mark.parametrize("command", ["compare", "advise", "dial"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--drop", "nothing"), "dropped column 'nothing' is not in the table"),
        (("--drop", "ill"), "take it out of --drop"),
        (("--features", "age,,x"), "--features needs column names such as age,weight"),
        (("--categorical", "ill", "--task", "ranking"), "ranking"),
        (("--time", "site"), "time"),
        (("--split-column", "age"), "train, validation or test"),
        (("--weight", "age"), "weight"),
    ],
)
def test_wrong_options_are_refused(idiolect, here, command, options, words):
    answer = idiolect(command, *TABLE, *options)
    assert answer.code == 2, answer
    assert words in answer.error


@pytest.mark.parametrize("command", ["compare", "advise", "dial"])
def test_options_of_tables_are_refused_beside_a_known_data_set(idiolect, command):
    answer = idiolect(command, "--data", "digits", "--drop", "x")
    assert answer.code == 2
    assert "--drop is for a TABLE" in answer.error


def test_dropped_columns_stay_out_of_a_run(idiolect, here):
    names = (here / "hospitals.csv").read_text().splitlines()[0].split(",")
    other = next(name for name in names if name not in ("site", "ill"))
    more = ("--methods", "fedavg", "--rounds", "1", "--step-sizes", "0.1", "--out", "out", "--quiet")
    answer = idiolect("compare", *TABLE, "--categorical", other, *more)
    assert answer.code == 0, answer
    data = tomllib.loads((here / "out/spec.toml").read_text())["data"]
    assert data["categorical"] == [other]


@pytest.mark.parametrize("command", ["advise", "dial"])
def test_commands_that_count_every_row_once_refuse_weights(idiolect, here, command):
    answer = idiolect(command, *TABLE, "--weight", "dose")
    assert answer.code == 2, answer
    assert f"{command} counts every row once" in answer.error
    again = idiolect(command, *TABLE, "--set", "data.weight_column = 'dose'")
    assert again.error == answer.error
