# SPDX-License-Identifier: Apache-2.0
"""Tables come as files, frames, mappings and arrays, and are the same table in all of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import idiolect as il


class Stream:
    """A frame that speaks Arrow and nothing else, as polars does."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


FORMS = {"mapping": lambda columns: columns, "pandas": pd.DataFrame, "arrow": pa.table, "stream": None}


@pytest.mark.parametrize("form", FORMS)
def test_frames_hold_the_same_rows(small, form):
    source = Stream(pa.table(small.columns)) if form == "stream" else FORMS[form](small.columns)
    table = il.read_table(source, client="site", target="outcome")
    assert table.rows.to_pydict() == small.columns
    assert table.data == {"source": "table", "client": "site", "target": "outcome"}


def test_a_frame_and_its_file_are_the_same_table(small, tmp_path):
    frame = pd.DataFrame(small.columns).sample(frac=1, random_state=1)
    frame.to_parquet(tmp_path / "table.parquet")
    wanted = list(small.columns)
    assert il.read_table(frame, client="site", target="outcome").rows.column_names == wanted
    beside = il.read_table(tmp_path / "table.parquet", client=frame["site"].rename("owner"), target="outcome")
    assert beside.rows.column_names == [*wanted, "owner"]
    named = frame.rename_axis("patient")
    assert il.read_table(named, client="site", target="outcome").rows.column_names == [*wanted, "patient"]


def test_arrays_become_columns_with_names(small):
    columns = small.columns
    inputs = np.stack([columns["age"], columns["dose"]], axis=1)
    table = il.read_table(inputs, np.array(columns["site"]), pd.Series(columns["outcome"], name="ill"), name="made")
    assert table.rows.column_names == ["x1", "x2", "client", "ill"]
    assert (table.name, table.data["target"]) == ("made", "ill")


def test_a_column_beside_a_file(small):
    table = il.read_table(small.path, client=[f"c{place % 3}" for place in range(48)], target="outcome")
    assert table.rows.num_rows == 48
    assert pa.types.is_floating(table.rows.schema.field("age").type)


WRONG = {
    "sit": ({"client": "sit", "target": "outcome"}, "Did you mean 'site'"),
    "short": ({"client": ["a"], "target": "outcome"}, "each of the 48 rows, got 1"),
    "twice": ({"client": pd.Series(range(48), name="age"), "target": "outcome"}, "already have a column 'age'"),
    "setting": ({"client": "site", "target": "outcome", "tasks": "x"}, "has no setting 'tasks'. Did you mean 'task'"),
    "range": ({"client": "site", "target": "outcome", "test": 2.0}, "data.test must be"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_requests_are_refused_when_the_table_is_read(small, case):
    given, sentence = WRONG[case]
    with pytest.raises(il.RequestError, match=sentence.replace("(", r"\(")):
        il.read_table(small.columns, **given)


def test_what_is_no_table_is_refused():
    with pytest.raises(il.RequestError, match=r"two dimensions.*\(2, 2, 2\)"):
        il.read_table(np.zeros((2, 2, 2)), ["a", "b"], [0, 1])
    with pytest.raises(il.RequestError, match="Did you mean 'digits'"):
        il.data_set("digitz")


def test_a_known_data_set_has_its_settings():
    assert il.data_set("digits", clients=4).data == {"source": "digits", "settings": {"clients": 4}}


@pytest.mark.parametrize("form", ["file", "frame"])
def test_packed_rows_train_to_the_same_numbers(small, table, form, tmp_path):
    rows = table if form == "file" else il.read_table(pd.DataFrame(small.columns), client="site", target="outcome")
    packed = il.pack(rows, tmp_path / "packed", seed=3)
    assert packed == il.open_pack(tmp_path / "packed")
    scores = [
        il.train("fedavg", one, rounds=2, step_size=0.1, seed=3, out=tmp_path / name).clients
        for name, one in {"rows": rows, "packed-rows": packed}.items()
    ]
    pd.testing.assert_frame_equal(*scores)


def test_what_cannot_be_packed_or_opened_is_refused(table, tmp_path):
    with pytest.raises(il.RequestError, match=r"read_table\(rows, client"):
        il.pack(table.data, tmp_path / "packed")
    with pytest.raises(il.RequestError, match=r"seed must be a whole number, got 0\.5"):
        il.pack(table, tmp_path / "packed", seed=0.5)
    with pytest.raises(il.RequestError, match="made anew by every run"):
        il.pack(il.data_set("two_clients", zeta=1.0), tmp_path / "packed")
    with pytest.raises(il.RequestError, match=str(tmp_path)):
        il.open_pack(tmp_path)
    assert not any(tmp_path.iterdir())
