# SPDX-License-Identifier: Apache-2.0
"""Columns that are rarely meant as inputs are named, and left out or kept by rule; rare values are not blown up."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.split import Split

ROWS = 120
DRAWS = np.random.default_rng(3)
X = DRAWS.normal(size=ROWS)


def load(target=None, **columns):
    table = {
        "c": np.tile(["a", "b", "c"], ROWS // 3),
        "x": X,
        "y": np.arange(ROWS) // 5 % 2 if target is None else target,
    }
    return Federation.from_table(table | columns, client="c", target="y")


@pytest.mark.parametrize(
    ("name", "values", "kept"),
    [
        ("nr", np.arange(ROWS), False),
        ("nr", 1 + DRAWS.permutation(ROWS), False),
        ("nr", 5 + np.arange(ROWS) * 2, True),
        ("patient_id", 5 + np.arange(ROWS) * 2, False),
        ("PassengerId", 500 + DRAWS.permutation(ROWS), False),
        ("humid", 500 + DRAWS.permutation(ROWS), True),
        ("name", [f"row {number}" for number in range(ROWS)], False),
        ("name", [f"row {number % 100}" for number in range(ROWS)], True),
        ("part", ["Train", "test"] * (ROWS // 2), False),
        ("is_train", np.arange(ROWS) % 3 == 0, False),
        ("smoker", np.arange(ROWS) % 3 == 0, True),
        ("nested", [[1]] * ROWS, False),
        ("long", 2**60 + np.arange(ROWS), False),
    ],
)
def test_indices_ids_and_splits_are_left_out_with_a_warning(name, values, kept):
    federation = load(**{name: values})
    used = {output.split(" = ")[0] for output in federation.preprocessing.feature_names}
    warned = any(repr(name) in text and "left out" in text for text in federation.warnings)
    assert (name in used, warned) == ((kept, False) if kept else (False, True))


def test_an_index_that_is_named_or_alone_is_kept():
    table = {"c": ["a", "b"] * 20, "nr": np.arange(40), "y": np.arange(40) // 3 % 2}
    assert any("'nr'" in text for text in Federation.from_table(table, client="c", target="y").warnings)
    named = Federation.from_table(table | {"x": X[:40]}, client="c", target="y", features=["nr", "x"])
    assert named.preprocessing.feature_names == ("nr", "x")


def test_pandas_index_without_a_name_is_left_out(tmp_path):
    lines = "".join(f"{number * 3},{'ab'[number % 2]},{X[number]:.4f},{number // 3 % 2}\n" for number in range(40))
    (tmp_path / "table.csv").write_text(",c,x,y\n" + lines)
    federation = Federation.from_table(tmp_path / "table.csv", client="c", target="y")
    assert federation.preprocessing.feature_names == ("x",)


def test_dates_stay_as_days_with_a_warning():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(int(day)) for day in DRAWS.integers(0, 99, ROWS)]
    federation = load(when=days)
    assert "when" in federation.preprocessing.feature_names
    assert any("'when' holds dates" in text and "--drop when" in text for text in federation.warnings)


def test_suggested_options_can_be_pasted():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(int(day)) for day in DRAWS.integers(0, 99, ROWS)]
    copy = np.tile(["north", "south", "west"], ROWS // 3)
    federation = load(**{"admission date": days, "its clinic, ward": copy})
    said = " ".join(federation.warnings)
    assert "--time 'admission date' splits" in said
    assert "--drop 'admission date' leaves" in said
    assert """--drop '"its clinic, ward"' if""" in said


@pytest.mark.parametrize(
    ("target", "leak", "settled"),
    [
        (np.arange(ROWS) // 5 % 2, np.array(["no", "yes"])[np.arange(ROWS) // 5 % 2], True),
        (np.arange(ROWS) // 5 % 2, np.arange(ROWS) // 5 % 2 + 0.01 * np.abs(X), True),
        (np.arange(ROWS) // 5 % 2, DRAWS.normal(size=ROWS), False),
        (X[::-1], 3 * X[::-1] + 1, True),
        (X[::-1], X[::-1] + DRAWS.normal(size=ROWS), False),
        (np.arange(ROWS) % 24 + 0.5, np.array([f"level {number % 24 % 23}" for number in range(ROWS)]), False),
    ],
)
def test_a_column_that_settles_the_target_is_kept_and_named(target, leak, settled):
    federation = load(target, leak=leak)
    assert any(output.startswith("leak") for output in federation.preprocessing.feature_names)
    found = [text for text in federation.warnings if "'leak' alone settles" in text]
    assert bool(found) == settled
    assert all("--drop leak" in text for text in found)


def test_another_name_of_the_client_is_kept_and_named():
    copy, other = np.tile(["north", "south", "west"], ROWS // 3), np.tile(["n", "n", "w"], ROWS // 3)
    federation = load(clinic=copy, code=np.tile([11, 5, 7], ROWS // 3), region=other)
    named = [text for text in federation.warnings if "one value per client" in text]
    assert ["'clinic'" in named[0], "'code'" in named[1]] == [True, True]
    assert len(named) == 2
    assert "clinic = north" in federation.preprocessing.feature_names


def test_rare_marks_are_not_blown_up():
    rows = 60_000
    rare, heavy = np.zeros(rows), np.zeros(rows)
    rare[:6] = 1
    heavy[6:12] = [1, 2, 3, 1, 2, 400]
    table = {"c": np.arange(rows) % 50, "rare": rare, "heavy": heavy, "y": np.arange(rows) // 50 % 2}
    federation = Federation.from_table(table, client="c", target="y", split=Split(1.0, 0.0, 0.0))
    recipe = federation.preprocessing
    assert recipe.columns[0].scale == 1
    assert np.abs(federation.train.inputs).max(axis=0) == pytest.approx([1, 20], abs=0.01)
    assert any("'heavy'" in note and "beyond 20" in note for note in recipe.notes)
    wide = Federation.from_table(table | {"rare": 7 * rare}, client="c", target="y", split=Split(1.0, 0.0, 0.0))
    np.testing.assert_allclose(wide.train.inputs, federation.train.inputs, rtol=1e-5, atol=1e-6)  # whatever the unit


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop": ["z"]}, "dropped column 'z' is not in the table"),
        ({"drop": ["y"]}, "another role, target; take it out of --drop"),
        ({"drop": ["x"]}, "No column is left"),
        ({"drop": ["x"], "categorical": ["x"]}, "both used and dropped"),
        ({"categorical": ["z"]}, "categorical column 'z' is not"),
    ],
)
def test_wrong_roles_are_refused_with_the_option(options, words):
    table = {"c": ["a", "b"] * 20, "x": X[:40], "y": np.arange(40) // 3 % 2}
    with pytest.raises(RequestError, match=words):
        Federation.from_table(table, client="c", target="y", **options)


def test_dropped_columns_are_not_used():
    table = {"c": ["a", "b"] * 20, "x": X[:40], "z": X[40:80], "y": np.arange(40) // 3 % 2}
    federation = Federation.from_table(table, client="c", target="y", drop=["z"])
    assert federation.preprocessing.feature_names == ("x",)
    assert "Each row has 1 input." in federation.describe()
