# SPDX-License-Identifier: Apache-2.0
"""Records to JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.record.codec import MisfitError, decode, from_json, to_json
from idiolect.record.divergence import Divergence
from idiolect.record.errors import DamagedError, RequestError
from idiolect.record.privacy import Array, Aside, FewestRows, LikenessSent, MethodSent, Statement
from idiolect.record.reading import read_rows, read_statement, read_summary
from idiolect.record.schema import Announced, Gain, MethodSummary, OtherScore, RunSummary, Scores, Swept

METHOD = MethodSummary(
    "ditto[penalty=0.1]",
    "ditto",
    settings={"penalty": 0.1, "order": ["a", 1]},
    swept=Swept("ditto", ("penalty",)),
    diverged=Divergence(7, "a"),
    score=Scores(0.5, worst_decile=0.25),
    interval=(0.4, None),
    other_scores={"auc": OtherScore(0.5, None, 3, 1)},
    gain=Gain(0.1, 0.0, 0.2, 3, "local"),
)
RUN = RunSummary("r", ("accuracy",), {"accuracy": True}, (METHOD,), announced=Announced("x", "auc", 0.5, ("y",)))


def test_a_record_comes_back_as_it_was():
    assert from_json(RunSummary, json.loads(json.dumps(to_json(RUN))), "file") == RUN


def test_what_json_cannot_write_is_null_and_numbers_of_numpy_are_numbers():
    odd = dataclasses.replace(METHOD, seconds=np.float32(0.5), last_mean=math.nan, shared_mean=math.inf)
    found = to_json(odd)
    assert (found["seconds"], found["last_mean"], found["shared_mean"]) == (0.5, None, None)
    assert type(found["seconds"]) is float


def _changed(path, value):
    found = to_json(RUN)
    *way, last = path
    inside = found
    for key in way:
        inside = inside[key]
    if value is KeyError:
        del inside[last]
    else:
        inside[last] = value
    return found


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("name",), KeyError, "name is missing"),
        (("extra",), 1, "extra is unknown"),
        (("name",), 3, "name must be a text in quotes, got 3"),
        (("methods", 0, "rounds"), 1.5, r"methods\[0\].rounds must be a whole number, got 1.5"),
        (("methods", 0, "rounds"), True, r"methods\[0\].rounds must be a whole number, got True"),
        (("methods", 0, "gain", "low"), KeyError, r"methods\[0\].gain.low is missing"),
        (("methods", 0, "diverged", "round"), "7", r"diverged.round must be a whole number"),
        (("methods", 0, "interval"), 3, r"interval must be a list, got 3"),
        (("higher_is_better",), [], "higher_is_better must be an object"),
        (("methods", 0, "other_scores", "auc", "mean"), "x", r"other_scores.auc.mean must be "),
    ],
)
def test_damage_is_named_with_its_place(path, value, expected):
    with pytest.raises(DamagedError, match=expected) as caught:
        from_json(RunSummary, _changed(path, value), "some/summary.json")
    assert str(caught.value).startswith("some/summary.json is damaged")


def test_another_schema_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(to_json(RUN) | {"schema": 1}))
    with pytest.raises(RequestError, match=r"schema 3, .* schema 1; use the version"):
        read_summary(tmp_path)


@dataclasses.dataclass(frozen=True)
class Row:
    client: str
    score: float | None


def test_rows_of_a_table_are_records_and_another_column_is_damage(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"client": ["a", "b"], "score": [0.5, None]}), path)
    assert read_rows(Row, path) == [Row("a", 0.5), Row("b", None)]
    pq.write_table(pa.table({"client": ["a"], "scores": [0.5]}), path)
    with pytest.raises(DamagedError, match="score is missing"):
        read_rows(Row, path)
    path.write_bytes(b"no table")
    with pytest.raises(DamagedError, match="not valid Parquet"):
        read_rows(Row, path)


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        (float, 3, 3.0),
        (int | float, 3, 3),  # a whole number stays one
        (tuple[int, ...], [1, 2], (1, 2)),
        (float | list[float], [1, 2.5], [1.0, 2.5]),
        (dict[str, object], {"a": [1]}, {"a": [1]}),
        (str | None, None, None),
    ],
)
def test_settings_and_records_take_their_declared_types(kind, given, kept):
    found = decode(kind, given)
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("kind", "given", "rule"),
    [
        (int, True, "a whole number"),
        (int, 1.0, "a whole number"),
        (float, "1", "a number"),
        (float | None, "1", "a number or left out"),
        (list[int], [1, "x"], r"x\[1\] must be a whole number"),
        (dict[str, int], 3, "an object"),
    ],
)
def test_no_text_and_no_truth_passes_as_a_number(kind, given, rule):
    with pytest.raises(MisfitError, match=rule):
        decode(kind, given, "x")


def test_a_statement_comes_back_as_it_was_and_an_older_one_is_refused(tmp_path):
    assert read_statement(tmp_path) is None
    array = Array("drift", (2, 3), "float32", 24)
    sent = MethodSent("fedavg", (array,), (array,), (), 3, 0, 1, 12, 288, FewestRows(8, "s0"), "none")
    alike = LikenessSent("who is alike", (dataclasses.replace(array, uploads=4, downloads=0),), 96, 0, None, "", "none")
    statement = Statement(None, (Aside("constants", 3), Aside("scores")), alike, (sent,))
    (tmp_path / "privacy.json").write_text(json.dumps(to_json(statement)))
    assert read_statement(tmp_path) == statement
    (tmp_path / "privacy.json").write_text(json.dumps(to_json(statement) | {"schema": 1}))
    with pytest.raises(RequestError, match="schema 1"):
        read_statement(tmp_path)
