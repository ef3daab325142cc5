# SPDX-License-Identifier: Apache-2.0
"""Tables into federations: columns found, missing values reported, nothing learnt from test rows."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from idiolect.core.checks import RequestError
from idiolect.data.columns import columns_of
from idiolect.data.federation import Federation
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.split import Split
from idiolect.data.tables import read, read_table

ROWS = 60


def patients(**changes):
    """Three hospitals, one numeric, one holed and one text feature, a two-valued outcome."""
    draws = np.random.default_rng(4)
    bmi = draws.normal(25, 4, ROWS)
    bmi[::7] = np.nan
    columns = {
        "hospital": np.repeat(["north", "south", "west"], ROWS // 3).tolist(),
        "age": draws.integers(20, 90, ROWS),
        "bmi": bmi,
        "ward": draws.choice(["a", "b", "c"], ROWS).tolist(),
        "outcome": draws.integers(0, 2, ROWS),
    }
    return columns | changes


def targets_of(recipe, table):
    return recipe.encode_targets(columns_of(read_table(table, recipe.kinds)))


def load(table=None, **options):
    return Federation.from_table(patients() if table is None else table, client="hospital", target="outcome", **options)


def test_columns_become_inputs():
    federation = load()
    assert federation.preprocessing.feature_names == (
        "age",
        "bmi",
        "bmi is missing",
        "ward = a",
        "ward = b",
        "ward = c",
        "ward is missing or new",
    )
    assert federation.names == ("north", "south", "west")
    assert federation.task.classes == ("0", "1")
    inputs = federation.train.inputs
    assert inputs.dtype == np.float32
    assert np.isfinite(inputs).all()
    np.testing.assert_allclose(inputs[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(inputs[:, 0].std(), 1, rtol=1e-5)
    assert (inputs[:, 3:].sum(axis=1) == 1).all()
    marked = inputs[:, 2] == 1
    assert marked.any()
    fitted = federation.preprocessing.columns[1]
    observed = patients()["bmi"][~np.isnan(patients()["bmi"])]
    assert fitted.fill in observed or fitted.fill == pytest.approx(np.median(observed), abs=3)
    np.testing.assert_allclose(inputs[marked, 1], (fitted.fill - fitted.centre) / fitted.scale, rtol=1e-5)
    assert any("'bmi' misses" in note for note in federation.notes)
    assert any("classification" in note for note in federation.notes)


def test_fill_and_scale_are_those_of_the_training_rows():
    values = [
        1.0,
        2.0,
        6.0,
        np.nan,
        1000.0,
        1000.0,
    ]  # training mean 3, deviation sqrt((4 + 1 + 9) / 3)
    table = {
        "client": ["a", "b", "a", "b", "a", "b"],
        "x": values,
        "y": ["u", "v", "u", "v", "u", "v"],
        "part": ["train", "train", "train", "train", "test", "validation"],
    }
    federation = Federation.from_table(table, client="client", target="y", split=Split(split_column="part"))
    column = federation.preprocessing.columns[0]
    assert column.fill == 3.0
    assert column.centre == pytest.approx(3.0)
    assert column.scale == pytest.approx(np.sqrt(14 / 3))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_nothing_is_learnt_from_rows_that_do_not_train(seed):
    draws = np.random.default_rng(seed)
    parts = np.tile(["train", "train", "validation", "test"], ROWS // 4)
    quiet = parts != "train"
    table = patients(part=parts.tolist())
    changed = {name: list(column) for name, column in table.items()}
    for row in np.flatnonzero(quiet):
        changed["age"][row] = int(draws.integers(-1000, 1000))
        changed["bmi"][row] = float(draws.normal(0, 1e4))
        changed["ward"][row] = str(draws.integers(100))
        changed["outcome"][row] = int(draws.integers(2))
    split = Split(split_column="part")
    first, second = load(table, split=split), load(changed, split=split)
    assert first.preprocessing == second.preprocessing
    np.testing.assert_array_equal(first.train.inputs, second.train.inputs)
    assert not np.array_equal(first.test.inputs, second.test.inputs)


def test_nothing_is_learnt_from_held_out_clients():
    table = patients()
    changed = dict(table, age=np.where(np.array(table["hospital"]) == "west", 10**6, table["age"]))
    first, second = (load(content, held_out=["west"]) for content in (table, changed))
    assert first.preprocessing == second.preprocessing
    assert second.held_out.train.inputs[:, 0].min() > 100  # scaled with the others' scale, so far out


def test_new_rows_are_read_with_the_kept_recipe():
    federation = load()
    again = Preprocessing.from_json(federation.preprocessing.to_json())
    assert again == federation.preprocessing
    json.loads(federation.preprocessing.to_json())
    new = {"age": [40, None], "bmi": [22.0, None], "ward": ["b", "surgery"]}
    inputs = again.apply(new, np.float64)
    assert inputs.shape == (2, 7)
    assert inputs[0, 3:].tolist() == [0, 1, 0, 0]
    assert inputs[1, 2:].tolist() == [1, 0, 0, 0, 1]  # missing mark set, unseen ward in the last column
    np.testing.assert_array_equal(inputs, federation.preprocessing.apply(new, np.float64))
    with pytest.raises(RequestError, match="'ward' is not in the table"):
        again.apply({"age": [40], "bmi": [22.0]})
    with pytest.raises(RequestError, match="must hold numbers"):
        again.apply({"age": ["old"], "bmi": [22.0], "ward": ["a"]})
    with pytest.raises(RequestError, match="'2' is not one of 0, 1"):
        targets_of(again, {"outcome": [2]})
    with pytest.raises(RequestError, match="recipe"):
        Preprocessing.from_json('{"columns": 3}')


def test_applying_to_the_table_gives_the_federation_rows():
    table = patients()
    federation = load(table, split=Split(1.0, 0.0, 0.0))
    # clients stand one after another in the table too, so the rows agree one by one
    np.testing.assert_array_equal(federation.preprocessing.apply(table), federation.train.inputs)
    np.testing.assert_array_equal(targets_of(federation.preprocessing, table), federation.train.targets)


def test_regression_targets_are_scaled_and_come_back():
    federation = Federation.from_table(patients(), client="hospital", target="age", task="regression")
    assert federation.train.targets.mean() == pytest.approx(0, abs=1e-6)
    fitted = federation.preprocessing
    ages = patients()["age"]
    np.testing.assert_allclose(fitted.original_units(targets_of(fitted, patients())), ages, rtol=1e-5)
    plain = Federation.from_table(
        patients(), client="hospital", target="age", task="regression", target_scaling="none", scaling="none"
    )
    assert set(plain.train.targets) <= set(ages.astype(np.float32))
    several = Federation.from_table(patients(bmi=np.linspace(1, 2, ROWS)), client="hospital", target=["age", "bmi"])
    assert several.task.outputs == 2
    assert several.train.targets.shape[1:] == (2,)


@pytest.mark.parametrize("kind", ["pandas", "arrow", "dictionary", "stream"])
def test_frames_of_every_kind_agree(kind):
    class Stream:
        def __init__(self, table):
            self.table = table

        def __arrow_c_stream__(self, requested_schema=None):
            return self.table.__arrow_c_stream__(requested_schema)

    frame = pd.DataFrame(patients())
    frame["ward"] = frame["ward"].astype("category")
    forms = {
        "pandas": frame,
        "arrow": pa.table(patients()),
        "dictionary": patients(),
        "stream": Stream(pa.table(patients())),
    }
    federation = load(forms[kind])
    np.testing.assert_allclose(federation.train.inputs, load().train.inputs)


def test_rows_without_client_or_target_are_dropped_and_reported():
    table = patients()
    table["outcome"] = [None, *table["outcome"][1:].tolist()]
    table["hospital"] = [*table["hospital"][:-2], None, "?"]
    federation = load(table)
    counts = federation.train.counts + federation.validation.counts + federation.test.counts
    assert counts.sum() == ROWS - 3
    assert "2 rows without a value in 'hospital' were dropped." in federation.notes
    assert "1 row without a value in 'outcome' was dropped." in federation.notes


def test_truth_values_dates_and_empty_columns():
    day = datetime.date(1970, 1, 11)
    table = patients(
        smoker=[True, False, None] * (ROWS // 3),
        seen=[day] * (ROWS - 1) + [datetime.date(1970, 1, 21)],
        nothing=[None] * ROWS,
        outcome=[True, False] * (ROWS // 2),
    )
    federation = load(table, scaling="none", split=Split(1.0, 0.0, 0.0))
    assert federation.task.classes == ("false", "true")
    names = federation.preprocessing.feature_names
    assert "smoker is missing" in names
    assert "nothing" not in names
    assert any("'nothing' holds no value" in note for note in federation.notes)
    assert set(federation.train.inputs[:, names.index("seen")]) == {10.0, 20.0}  # days since 1970


def test_marks_among_numbers_in_a_frame_are_missing_values():
    table = patients(lab=(["1", "?", "2.5", " "] * ROWS)[:ROWS])
    names = load(table).preprocessing.feature_names
    assert "lab" in names
    assert "lab is missing" in names


def test_group_column_keeps_groups_together():
    table = patients(visit=np.repeat(np.arange(ROWS // 4), 4), row=np.arange(ROWS))
    federation = load(table, split=Split(group_column="visit"), features=["row"], scaling="none")
    visits = [set(rows.inputs[:, 0] // 4) for rows in (federation.train, federation.validation, federation.test)]
    assert sum(len(part) for part in visits) == ROWS // 4
    assert any("'visit' stay together" in note and "no input" in note for note in federation.notes)


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (None, {"client": "hopital"}, "Did you mean 'hospital'"),
        (None, {"target": "outcom"}, "Did you mean 'outcome'"),
        (None, {"features": ["agee"]}, "Did you mean 'age'"),
        (None, {"features": ["age", "outcome"]}, "already has another role"),
        (None, {"target": "ward", "task": "regression"}, "numeric target, but 'ward' holds texts"),
        (None, {"split": Split(split_column="part")}, "split column 'part' is not in the table"),
        (None, {"split": Split(0.9, 0.9, 0.9)}, "together at most 1"),
        (None, {"scaling": "minmax"}, "standard, none"),
        (None, {"task": "ranking"}, "classification, regression"),
        (patients(outcome=[1] * ROWS), {}, "always '1'"),
        (patients(outcome=[1.5] * ROWS), {}, "always 1.5"),
        (patients(hospital=["one"] * ROWS), {}, "at least 2 clients"),
        (patients(bmi=[np.inf] * ROWS), {}, r"infinite in row 1 \(counted from 1\)"),
        (
            patients(age=[[1]] * ROWS),
            {"features": ["age", "bmi"]},
            "must hold numbers",
        ),
        ({"hospital": [], "outcome": [], "age": []}, {}, "has no rows"),
        ({"hospital": ["a", "b"], "outcome": [0, 1]}, {}, "No column is left"),
        (patients(outcome=[None] * ROWS), {}, "No row has both"),
        (42, {}, "path or an Arrow-compatible frame, got int"),
    ],
)
def test_wrong_tables_earn_a_sentence(table, options, words):
    content = patients() if table is None else table
    with pytest.raises(RequestError, match=words) as caught:
        Federation.from_table(content, **({"client": "hospital", "target": "outcome"} | options))
    assert "\n" not in str(caught.value)


def test_free_text_is_left_out_with_a_warning_and_refused_where_it_is_named():
    rows = 600
    table = {
        "client": ["a", "b"] * (rows // 2),
        "y": [0, 0, 1, 1] * (rows // 4),
        "x": np.sin(np.arange(rows)),
        "remark": [f"remark {row % 550}" for row in range(rows)],
    }
    federation = Federation.from_table(table, client="client", target="y")
    assert federation.preprocessing.feature_names == ("x",)
    assert any("'remark'" in text and "left out" in text for text in federation.warnings)
    for options in ({"features": ["x", "remark"]}, {"categorical": ["remark"]}):
        with pytest.raises(RequestError, match="different texts, more than the 200"):
            Federation.from_table(table, client="client", target="y", **options)


def test_sums_of_few_rows_are_warned_about():
    """The third hospital has four rows: their sums tell their values."""
    few = {name: np.asarray(values)[:44] for name, values in patients().items()}
    warned = [text for text in load(few).warnings if "fewer than 5 rows" in text]
    assert len(warned) == 1
    assert "client 'west'" in warned[0]
    assert "data.preparation" in warned[0]
    for other in (load(few, preparation="local"), load()):
        assert not [text for text in other.warnings if "fewer than 5 rows" in text]


def test_categories_that_are_missing_are_said():
    rows = {"site": ["a", "b"] * 10, "stage": (["I", "II", None, "I"] * 5), "y": [float(one) for one in range(20)]}
    notes = " ".join(Federation.from_table(rows, client="site", target="y").notes)
    assert "Column 'stage' is text: one input for each of 2 values, and one for the " in notes


def saved(folder, frame):
    """The frame, and the same in files of both kinds that keep its index, and as an Arrow table."""
    frame.to_parquet(folder / "table.parquet")
    feather.write_feather(pa.Table.from_pandas(frame), folder / "table.feather")
    return [frame, folder / "table.parquet", folder / "table.feather", pa.Table.from_pandas(frame)]


def test_an_index_of_pandas_without_a_name_is_no_input(tmp_path):
    frame = pd.DataFrame(patients()).sample(frac=1, random_state=1)
    made = [Federation.from_table(one, client="hospital", target="outcome") for one in saved(tmp_path, frame)]
    expected = Federation.from_table(frame.reset_index(drop=True), client="hospital", target="outcome")
    assert {one.preprocessing.feature_names for one in made} == {expected.preprocessing.feature_names}
    said = ["'__index_level_0__' is the unnamed index" in " ".join(one.notes) for one in made]
    assert said == [False, True, True, True]
    with pytest.raises(RequestError, match="pandas index without a name is left out"):
        Federation.from_table(tmp_path / "table.parquet", client="hospital", target="__index_level_0__")


def test_an_index_of_pandas_with_a_name_is_a_column(tmp_path):
    named = pd.DataFrame(patients()).set_index("hospital")
    for source in saved(tmp_path, named):
        assert set(Federation.from_table(source, client="hospital", target="outcome").names) == {
            "north",
            "south",
            "west",
        }
    both = pd.DataFrame(patients()).set_index(["hospital", np.arange(ROWS)])
    for source in saved(tmp_path, both):
        assert read_table(source).column_names == ["age", "bmi", "ward", "outcome", "hospital"]


def test_answers_are_written_beside_all_that_a_file_has(tmp_path):
    _, path, *_ = saved(tmp_path, pd.DataFrame(patients()).sample(frac=1, random_state=1))
    reading = read(path)
    assert reading.unnamed == ("__index_level_0__",)
    assert reading.written.column_names == [*reading.table.column_names, *reading.unnamed]
    # where it was an input of a run, its kind is known
    assert "__index_level_0__" in read_table(path, {"__index_level_0__": "number"}).column_names


@pytest.mark.parametrize("written", [b"{}", b"[]", b"{", b'{"index_columns": [{"kind": "range"}, 1]}'])
def test_metadata_of_others_leaves_every_column(written):
    table = pa.table(patients() | {"__index_level_0__": range(ROWS)}).replace_schema_metadata({"pandas": written})
    assert "__index_level_0__" in read_table(table).column_names
