# SPDX-License-Identifier: Apache-2.0
"""Mangled tables: the right federation with every guess said, or one sentence. MANGLED_TABLES=500 tries more."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import datetime
import decimal
import io
import os
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.tables import read_table
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import predict
from idiolect.experiments.spec import from_table

AMOUNT = int(os.environ.get("MANGLED_TABLES", "80"))
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
MISSING = ("", "?", "NA", "NaN", "null", " ", "None")
CLIENTS = (
    *("007", "7", "7.0", "0x10", "16", "1e3", "1000", "1.10", "1.1", "A", "A ", "a", "true", "True", "2024-01-31"),
    *("12345678901234567890", "12345678901234567891", "Zürich", "north, east", 'the "old"', "-1", "+1", "inf", "東京"),
    *("two\nlines", "semi;colon", "tab\tbed", "'quoted'", "=1+1", "#4", "x|y", "0", "00"),
)
NAMES = ("x", "x", "age", "id", "when", " spaced", "a,b", "ünï", "part", "index", "", "", "client", "Unnamed: 0")


@dataclasses.dataclass(frozen=True)
class Mangled:
    """A file, which columns mean what, and what a reader must find in it if it reads it at all."""

    ending: str
    content: bytes
    client: str
    target: str
    clients: dict[str, int] | None  # rows of each client as written; None: not known
    single_rows: tuple[bytes, ...] = ()  # files of one row each, in the order of the rows that are read


def cells(kind: str, draw_number: int, row: int) -> str:
    """One cell of a feature, by kind, as a program writes it."""
    number = (draw_number * 7919 + row * 104729) % 1000
    return {
        "whole": str(number - 500),
        "few": str(number % 3),
        "decimal": f"{number / 7:.3f}",
        "exponent": f"{number}e-3",
        "flag": str(int(number > 900)),
        "truth": "TRUE" if number % 2 else "false",
        "word": ("red", "green", "blue", "dark red")[number % 4],
        "free": f"remark {number} on row {row}, and more",
        "id": f"id-{row:05d}",
        "index": str(row),
        "long": str(2**60 + number),
        "zeros": f"{number:06d}",
        "date": f"2023-{number % 12 + 1:02d}-{number % 28 + 1:02d}",
        "moment": f"2023-{number % 12 + 1:02d}-{number % 28 + 1:02d}T0{number % 9}:30:00Z",
        "slashes": f"{number % 12 + 1}/{number % 28 + 1}/2023",
        "percent": f"{number / 10}%",
        "thousands": f"{number},{number:03d}",
        "comma": f"{number // 10},{number % 10}",
        "split": ("train", "test")[number % 2],
        "empty": "",
        "infinite": "inf" if number % 50 == 0 else str(number),
        "huge": f"{number}e{300 + number % 20}",
        "mixed": ("12", "twelve", "3.5", "true", "2020-01-01")[number % 5],
        "mostly": "n.a." if number % 20 == 0 else str(number),
        "padded": f" {number} ",
        "newline": f"line {number % 3}\nnext",
    }[kind]


KINDS = (
    *("whole", "few", "decimal", "exponent", "flag", "truth", "word", "free", "id", "index", "long", "zeros", "date"),
    *("moment", "slashes", "percent", "thousands", "comma", "split", "empty", "mixed", "mostly"),
    *("padded", "newline"),
)
RARE = ("infinite", "huge")
TARGETS = (
    *("few", "decimal", "whole", "word", "truth", "few", "decimal", "whole", "word", "truth", "padded", "exponent"),
    *("date", "long", "zeros", "free", "comma", "empty", "huge"),
)


@st.composite
def text_tables(draw):
    """A delimited text file, well-formed or not."""
    rows = draw(st.one_of(st.integers(20, 90), st.integers(20, 90), st.integers(1, 90)))
    names = draw(
        st.lists(st.sampled_from(CLIENTS), min_size=draw(st.sampled_from([2, 2, 2, 1])), max_size=8, unique=True)
    )
    owners = [names[(row * 5 + draw_row) % len(names)] for row, draw_row in enumerate(_salt(draw, rows))]
    kinds = draw(st.lists(st.sampled_from(KINDS * 2 + RARE), min_size=draw(st.sampled_from([1, 1, 1, 0])), max_size=6))
    columns = {"client": owners, "target": _column(draw, draw(st.sampled_from(TARGETS)), rows)}
    headers = ["client", "target"]
    for kind in kinds:
        headers.append(draw(st.sampled_from([*[f"x{len(headers)}"] * 80, *NAMES])))
        columns[f"feature {len(headers)}"] = _column(draw, kind, rows)
    order = draw(st.permutations(range(len(headers))))
    table = [list(row) for row in zip(*columns.values())]
    header = [headers[place] for place in order]
    table = [[row[place] for place in order] for row in table]
    style = {
        "delimiter": draw(st.sampled_from([",", ",", ";", "\t", "|"])),
        "quoting": draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])),
        "lineterminator": draw(st.sampled_from(["\n", "\r\n"])),
    }
    encoding = draw(st.sampled_from([*["utf-8"] * 12, *["utf-8-sig"] * 4, "utf-16", "latin-1", "utf-16-le"]))
    damage = draw(st.sampled_from([*[""] * 12, "ragged", "cut", "trailing separator", "blank lines"]))
    content = _written([header, *table], style, damage).encode(encoding, "replace")
    client, target = header.index("client"), header.index("target")
    kept = [number for number, row in enumerate(table) if _present(row[client], row[target])]
    counts = Counter(table[number][client] for number in kept)
    known = encoding.startswith("utf-8") and damage in ("", "blank lines", "trailing separator")
    singles = [_written([header, table[number]], style, "").encode("utf-8") for number in kept[:6]]
    ending = draw(st.sampled_from([".csv", ".csv", ".tsv"]))
    return Mangled(
        ending, content, "client", "target", dict(counts) if known else None, tuple(singles) if known else ()
    )


def _salt(draw, rows: int) -> list[int]:
    seed = draw(st.integers(0, 2**16))
    return np.random.default_rng(seed).integers(0, 50, rows).tolist()


def _column(draw, kind: str, rows: int) -> list[str]:
    salt, holes = draw(st.integers(0, 99)), draw(st.sampled_from([0, 0, 3, 7]))
    mark = draw(st.sampled_from(MISSING))
    return [mark if holes and row % holes == holes - 1 else cells(kind, salt, row) for row in range(rows)]


def _present(owner: str, target: str) -> bool:
    return owner.strip() not in MISSING and target.strip() not in MISSING


def _written(rows: list[list[str]], style: dict, damage: str) -> str:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, **style)
    for row in rows:
        writer.writerow([*row, ""] if damage == "trailing separator" else row)
        if damage == "blank lines":
            sink.write(style["lineterminator"])
    text = sink.getvalue()
    if damage == "ragged":
        text += "1" + style["delimiter"] * 40 + style["lineterminator"]
    return text[: len(text) * 2 // 3] if damage == "cut" else text


def typed_columns(rows: int) -> dict[str, pa.Array]:
    """A column of every Arrow type that a Parquet file brings, some with gaps."""
    numbers = np.arange(rows)
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(int(day) % 90) for day in numbers]
    moments = [datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)] * rows
    texts = pa.array([("red", "blue", None)[number % 3] for number in numbers], pa.string())
    return {
        "int8": pa.array(numbers % 7, pa.int8()),
        "uint64": pa.array([2**63 + int(number) for number in numbers], pa.uint64()),
        "half": pa.array((numbers % 9).astype(np.float16)),
        "float": pa.array(np.where(numbers % 4 == 0, np.nan, numbers / 3)),
        "infinite": pa.array(np.where(numbers % 9 == 8, np.inf, numbers / 3)),
        "decimal": pa.array([decimal.Decimal(int(number) % 50) / 4 for number in numbers], pa.decimal128(20, 4)),
        "truth": pa.array([None if number % 5 == 0 else bool(number % 2) for number in numbers], pa.bool_()),
        "text": texts,
        "large": texts.cast(pa.large_string()),
        "view": texts.cast(pa.string_view()),
        "dictionary": texts.dictionary_encode(),
        "codes": pa.array(numbers % 4).dictionary_encode(),
        "date": pa.array(days, pa.date32()),
        "moment": pa.array(moments, pa.timestamp("ns", tz="UTC")),
        "time": pa.array([datetime.time(1, 2)] * rows, pa.time64("us")),
        "duration": pa.array([datetime.timedelta(1)] * rows, pa.duration("s")),
        "list": pa.array([[1, 2]] * rows),
        "struct": pa.array([{"a": 1}] * rows),
        "bytes": pa.array([b"\xff\x00"] * rows, pa.binary()),
        "nothing": pa.nulls(rows),
        "id": pa.array([f"u{number}" for number in numbers]),
        "": pa.array(numbers),
    }


@st.composite
def typed_tables(draw):
    """A Parquet or Feather file with columns of many types."""
    rows = draw(st.sampled_from([1, 2, 5, 20, 30, 40, 50, 60]))
    columns = typed_columns(rows)
    usable = ("int8", "half", "truth", "text", "large", "dictionary", "codes", "uint64")
    client = draw(st.sampled_from([*usable * 3, *(name for name in columns if name)]))
    target = draw(st.sampled_from([name for name in columns if name and name != client]))
    chosen = draw(st.lists(st.sampled_from(list(columns)), min_size=2, max_size=7, unique=True))
    table = pa.table({name: columns[name] for name in dict.fromkeys([client, target, *chosen])})
    ending = draw(st.sampled_from([".parquet", ".feather"]))
    sink = io.BytesIO()
    (parquet.write_table if ending == ".parquet" else feather.write_feather)(table, sink)
    content = sink.getvalue()
    if draw(st.integers(0, 19)) == 13:
        content = content[: len(content) // 2]
    return Mangled(ending, content, client, target, _typed_counts(table, client, target))


def _typed_counts(table: pa.Table, client: str, target: str) -> dict[str, int] | None:
    if {client, target} - set(table.column_names) or client == target:
        return None
    counts: dict[str, int] = {}
    for owner, value in zip(table[client].to_pylist(), table[target].to_pylist()):
        if owner is None or value is None or owner != owner or value != value:
            continue
        whole = isinstance(owner, float) and owner.is_integer()
        name = str(owner).lower() if isinstance(owner, bool) else str(int(owner)) if whole else str(owner)
        counts[name] = counts.get(name, 0) + 1
    return counts


def read(folder, table: Mangled) -> Federation | None:
    """The federation, or None where it is refused with one sentence."""
    path = folder / f"table{table.ending}"
    path.write_bytes(table.content)
    try:
        return Federation.from_table(path, client=table.client, target=table.target)
    except RequestError as error:
        sentence = str(error)
    event(sentence.replace(str(path), "PATH")[:60])
    assert "\n" not in sentence
    assert len(sentence) < 900
    return None


def assert_right(federation: Federation, table: Mangled) -> None:
    rows = federation.train.counts + federation.validation.counts + federation.test.counts
    found = dict(zip(federation.names, rows.tolist()))
    assert table.clients is None or found == table.clients
    for part in (federation.train, federation.validation, federation.test):
        assert np.isfinite(part.inputs).all()
        assert np.isfinite(part.targets).all()
    assert np.abs(federation.train.inputs).max(initial=0) <= 20.001
    said = " ".join((*federation.notes, *federation.warnings))
    assert "so the task is" in said
    assert all(len(text) < 900 and "\n" not in text for text in (*federation.notes, *federation.warnings))


@settings(max_examples=AMOUNT, derandomize=True, deadline=None, suppress_health_check=QUIET)
@given(table=text_tables())
def test_a_mangled_text_table_is_read_rightly_or_refused(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("text")
    federation = read(folder, table)
    event("read" if federation else "refused")
    if federation is None:
        return
    assert_right(federation, table)
    recipe = federation.preprocessing
    whole = recipe.apply(folder / f"table{table.ending}", np.float64)
    everyone = read_table(folder / f"table{table.ending}", recipe.kinds)
    kept = [place for place, row in enumerate(everyone.to_pylist()) if None not in (row["client"], row["target"])]
    for place, content in zip(kept, table.single_rows):  # a row reads the same whatever else is in the file
        (folder / f"row{table.ending}").write_bytes(content)
        alone = read_table(folder / f"row{table.ending}", recipe.kinds)
        assert alone["client"].to_pylist() == [everyone["client"][place].as_py()]
        np.testing.assert_array_equal(recipe.apply(folder / f"row{table.ending}", np.float64)[0], whole[place])
        recipe.doubts(folder / f"row{table.ending}")


@settings(max_examples=AMOUNT, derandomize=True, deadline=None, suppress_health_check=QUIET)
@given(table=typed_tables())
def test_a_mangled_typed_table_is_read_rightly_or_refused(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("typed")
    federation = read(folder, table)
    event("read" if federation else "refused")
    if federation is not None:
        assert_right(federation, table)
        with contextlib.suppress(RequestError):  # rows that were dropped may hold what is refused
            federation.preprocessing.doubts(folder / f"table{table.ending}")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Runs on clients of the same names that predict from one column, of numbers or of texts."""
    folder = tmp_path_factory.mktemp("trained")
    for kind in ("whole", "word"):
        rows = [[owner, str(row % 7), cells(kind, row, row)] for owner in CLIENTS for row in range(6)]
        content = _written([["client", "target", "x2"], *rows], {"lineterminator": "\n"}, "")
        (folder / f"{kind}.csv").write_text(content, encoding="utf-8")
        data = {"source": "table", "path": str(folder / f"{kind}.csv"), "client": "client", "target": "target"}
        asked = {"data": data | {"task": "regression"}, "training": {"rounds": 1}, "methods": {"fedavg": {}}}
        execute(from_table(asked), folder / kind)
    return folder


@settings(max_examples=AMOUNT, derandomize=True, deadline=None, suppress_health_check=QUIET)
@given(table=text_tables(), kind=st.sampled_from(["whole", "word"]))
def test_predict_answers_every_row_of_a_mangled_table_or_refuses_it(tmp_path_factory, finished, table, kind):
    path, said, refusal = tmp_path_factory.mktemp("asked") / f"table{table.ending}", [], ""
    path.write_bytes(table.content)
    try:
        answers = predict(finished / kind, path, say=said.append)
    except RequestError as error:
        refusal = str(error)
    event(refusal.replace(str(path), "PATH")[:60] or "answered")
    assert "\n" not in refusal
    assert len(refusal) < 900
    if refusal:
        return
    assert np.isfinite(answers["prediction"].to_numpy()).all()
    assert said[0].startswith("Answered by fedavg")
    assert all(text.startswith("Warning: ") and len(text) < 900 and "\n" not in text for text in said[1:])
    if table.clients is not None and "client" in answers.column_names:
        own = Counter(name for name in answers["client"].to_pylist() if name is not None)
        assert all(own[name] >= rows for name, rows in table.clients.items())


def test_ten_thousand_clients_of_one_row_are_read_quickly(tmp_path):
    rows = [f"c{number},{number % 17},{number % 2}\n" for number in range(10_000)]
    (tmp_path / "table.csv").write_text("client,x,y\n" + "".join(rows))
    began = time.perf_counter()
    federation = Federation.from_table(tmp_path / "table.csv", client="client", target="y")
    assert time.perf_counter() - began < 10
    assert federation.clients == 10_000
    assert any("10,000 clients have a single row each" in note for note in federation.notes)
