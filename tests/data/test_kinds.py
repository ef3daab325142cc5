# SPDX-License-Identifier: Apache-2.0
"""What columns hold: one rule for the whole column of a text file, names as written, the kinds of training kept."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.names import lookalike_warnings
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.tables import read, read_table

ALIKE = (
    "007",
    "7",
    "12345678901234567890",
    "12345678901234567891",
    "0x10",
    "16",
    "1e3",
    "1000",
    "1.10",
    "1.1",
    "A",
    "A ",
)


def write(folder, text, name="table.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows_of(federation):
    return dict(zip(federation.names, (federation.train.counts + federation.test.counts).tolist()))


def visits(folder, clients, rows=60, name="visits.csv"):
    """A file with a number, a code with a leading zero and a target; clients in turns."""
    lines = [f"{clients[r % len(clients)]},{r * 37 % 11}.5,0{r % 3},{r % 2}\n" for r in range(rows)]
    return write(folder, "site,dose,code,ill\n" + "".join(lines), name)


def test_clients_that_look_alike_stay_different_and_are_named(tmp_path):
    federation = Federation.from_table(visits(tmp_path, ALIKE), client="site", target="ill")
    assert set(federation.names) == set(ALIKE)
    (warning,) = (text for text in federation.warnings if "look alike" in text)
    assert "'007' and '7'" in warning
    long = lookalike_warnings(
        ("12345678901234567890", "12345678901234567891", "1e99999999999999999999", "0", "-0"), "c"
    )
    assert ["'0' and '-0'" in text and "1234" not in text for text in long] == [True]


def test_categories_and_classes_that_look_alike_are_named(tmp_path):
    lines = "".join(
        f"{'ab'[r % 2]},{('red', 'red ', 'blue')[r % 3]},{('yes', ' yes', 'no')[r // 2 % 3]}\n" for r in range(60)
    )
    federation = Federation.from_table(write(tmp_path, "site,colour,ill\n" + lines), client="site", target="ill")
    assert set(federation.task.classes) == {"yes", " yes", "no"}
    alike = [text for text in federation.warnings if "look alike" in text]
    assert ["'colour'" in text for text in alike] == [True, False]
    assert "' yes' and 'yes'" in alike[1]


def test_the_same_row_is_read_alike_whatever_else_is_in_the_file(tmp_path):
    federation = Federation.from_table(visits(tmp_path, ("007", "7", "north")), client="site", target="ill")
    recipe = Preprocessing.from_json(federation.preprocessing.to_json())
    assert recipe.client == "site"
    assert recipe.kinds == {"site": "text", "dose": "number", "code": "text", "ill": "number"}
    whole = recipe.apply(write(tmp_path, "site,dose,code\n007,3,01\nnorth,2.5,02\n"), np.float64)
    alone = write(tmp_path, "site,dose,code\n007,3,01\n", "alone.csv")
    np.testing.assert_array_equal(recipe.apply(alone, np.float64)[0], whole[0])
    assert read_table(alone, recipe.kinds)["site"].to_pylist() == ["007"]
    assert read_table(alone, recipe.kinds)["code"].to_pylist() == ["01"]


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        (["1", "2.5", "-3e2"], "double", ""),
        (["1", "2", "+3"], "int64", ""),
        (["TRUE", "false", "True"], "bool", ""),
        (["2024-01-31", "2024-02-01 09:30", "2023-12-01T00:00:00Z"], "timestamp[us]", ""),
        (["007", "12", "3"], "string", "leading zeros as in '007'"),
        (["9007199254740993", "2", "3"], "string", "more digits"),
        (["0x10", "16", "3"], "string", ""),
        (["1/2/2024", "3/4/2024", "5/6/2024"], "string", "'1/2/2024' can be read in more than one way"),
        (["08.08.2022", "06.11.2022"], "string", "'06.11.2022' can be read in more than one way"),
        (["08.08.2022", "06.11.2022", "13.05.2020"], "timestamp[us]", "dates, day first as in '13.05.2020'"),
        (["8/8/2022", "6/11/2022 09:30", "5/13/2020"], "timestamp[us]", "dates, month first as in '5/13/2020'"),
        (["08.08.2022", "09.09.2022"], "timestamp[us]", ""),
        (["13.05.2020", "05.13.2020"], "string", "do not stand in the same order"),
        (["13.05.20", "14.05.20"], "string", "more than one way"),
        (["32.05.2020", "14.05.2020"], "string", "same order"),
        (["1", "2", "3", "4", "5", "six"], "string", "'six' is not a number"),
        (["1,234", "5", "7"], "string", "decimal or a thousands comma"),
        (["5%", "7%", "12%"], "string", ""),
        (["", "?", "NA"], "null", ""),
    ],
)
def test_one_rule_decides_for_the_whole_column(tmp_path, values, kind, said):
    cells = "".join(f'a,"{value}"\n' if "," in value else f"a,{value}\n" for value in values)
    found = read(write(tmp_path, "client,x\n" + cells))
    assert str(found.table.schema.field("x").type) == kind
    sentences = {name: one.note or one.warning for name, one in found.decisions.items()}
    assert said in sentences.get("x", "")
    assert bool(sentences.get("x")) == bool(said)


def test_quotes_make_a_text_unless_everything_is_quoted(tmp_path):
    some = read(write(tmp_path, 'id,x,y\n"1",2,"red, dark"\n"2",3,blue\n"5",3,"a\nb"\n'))
    assert str(some.table.schema.field("id").type) == "string"
    assert "quotes" in some.decisions["id"].note
    everything = read(write(tmp_path, '"id","x"\n"1","2"\n"2","3"\n'))
    assert str(everything.table.schema.field("id").type) == "int64"


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("mark", ["", '"'])
def test_a_cell_of_megabytes_is_read_as_any_other(tmp_path, place, mark):
    rows = [["a", "1", '"7"'], ["b", "2", '"8"'], ["c", "3", '"9"']]
    long = "x" * 3_000_000
    rows.insert(place, [f"{mark}{long}{mark}", "4", '"6"'])
    (tmp_path / "long.csv").write_text("name,value,code\n" + "".join(f"{','.join(row)}\n" for row in rows))
    found = read_table(tmp_path / "long.csv")
    assert found.column("name").to_pylist()[place] == long
    assert found.column("value").to_pylist()[place] == 4
    assert found.column("code").to_pylist()[place] == "6"  # in quotes: a text


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_recognised_and_said(tmp_path, separator):
    text = "site;dose;ill\nnorth;1,5;0\nsouth;2,25;1\n".replace(";", separator)
    found = read(write(tmp_path, text))
    assert found.table["dose"].to_pylist() == [1.5, 2.25]
    assert "separated by" in found.notes[0]
    assert "decimal comma" in found.decisions["dose"].note
    assert read(write(tmp_path, "sep=;\na;b\n1;2\n")).table.column_names == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("site,x\nZürich,1\n".encode("latin-1"), "Latin-1"),
        ("site,x\n“A”,1\n".encode("cp1252"), "Windows-1252"),
        ("site,x\na,1\n".encode("utf-16"), "UTF-16"),
        ("site,x\na,1\n".encode("utf-16-le"), "UTF-16"),
        ("site,x\na,1\n".encode("utf-32"), "UTF-32"),
        (b"PK\x03\x04\x14\x00\xff", "zip"),
    ],
)
def test_other_encodings_are_refused_by_name(tmp_path, content, name):
    with pytest.raises(RequestError, match=name):
        read_table(write(tmp_path, content))


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert read_table(write(tmp_path, "\ufeffsite, x\na,1\n")).column_names == ["site", "x"]


def test_columns_without_a_name_are_called_by_their_place(tmp_path):
    found = read(write(tmp_path, ",x,\n0,1,\n1,5,\n"))
    assert found.table.column_names == ["column 1", "x", "column 3"]
    assert any("no name" in note for note in found.notes)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (pa.array([2**63 + 1, 2**63 + 2] * 10, pa.uint64()), (str(2**63 + 1), str(2**63 + 2))),
        (pa.array([1.0, 2.5] * 10), ("1", "2.5")),
        (pa.array([True, False] * 10), ("false", "true")),
        (pa.array(["10", "9"] * 10).dictionary_encode(), ("9", "10")),
        (pa.array([decimal.Decimal("1.10"), decimal.Decimal("2.20")] * 10), ("1.10", "2.20")),
    ],
)
def test_typed_clients_are_written_as_their_type_says(tmp_path, values, names):
    table = pa.table({"c": values, "x": np.sin(np.arange(20)), "y": np.arange(20) // 2 % 2})
    parquet.write_table(table, tmp_path / "table.parquet")
    federation = Federation.from_table(tmp_path / "table.parquet", client="c", target="y")
    assert federation.names == names


def test_decimals_are_numbers_as_target_and_as_feature():
    values = [decimal.Decimal(number) / 8 for number in range(40)]
    table = pa.table({"c": ["a", "b"] * 20, "x": pa.array(values[::-1]), "y": pa.array(values)})
    federation = Federation.from_table(table, client="c", target="y")
    assert federation.task.kind == "regression"
    assert federation.preprocessing.feature_names == ("x",)


def test_a_long_target_says_that_digits_are_lost():
    table = {"c": ["a", "b"] * 20, "x": np.sin(np.arange(40)), "y": 2**60 + np.arange(40) * 2**50}
    assert any("beyond 2^53" in note for note in Federation.from_table(table, client="c", target="y").notes)


def test_dates_are_no_classes(tmp_path):
    days = [datetime.date(2024, 1, 1 + number % 9) for number in range(40)]
    table = {"c": ["a", "b"] * 20, "x": np.sin(np.arange(40)), "when": days}
    path = write(tmp_path, pd.DataFrame(table).to_csv(index=False))
    for source in (table, path):
        with pytest.raises(RequestError, match="holds dates"):
            Federation.from_table(source, client="c", target="when")
        with pytest.raises(RequestError, match="not classes"):
            Federation.from_table(source, client="c", target="when", task="classification")
        federation = Federation.from_table(source, client="c", target="when", task="regression")
        assert federation.task.kind == "regression"


def test_a_target_of_texts_in_every_row_is_refused():
    table = {"c": ["a", "b"] * 20, "x": np.sin(np.arange(40)), "y": [f"text {number}" for number in range(40)]}
    with pytest.raises(RequestError, match="too many to be classes"):
        Federation.from_table(table, client="c", target="y")


def test_quoted_numbers_can_be_the_target_of_a_regression(tmp_path):
    lines = "".join(f'{"ab"[n % 2]},{n * 7 % 13},"{n / 4}"\n' for n in range(40))
    path = write(tmp_path, "c,x,y\n" + lines)
    assert Federation.from_table(path, client="c", target="y", task="regression").task.kind == "regression"


def test_integer_codes_become_categories_where_they_are_named(tmp_path):
    path = visits(tmp_path, ("a", "b"))
    federation = Federation.from_table(path, client="site", target="ill", categorical=["dose"])
    assert federation.preprocessing.kinds["dose"] == "text"
    assert "dose = 0.5" in federation.preprocessing.feature_names
    typed = {"c": ["a", "b"] * 20, "x": np.arange(40) % 4, "y": np.arange(40) // 3 % 2}
    federation = Federation.from_table(typed, client="c", target="y", categorical=["x"])
    assert federation.preprocessing.feature_names[:4] == ("x = 0", "x = 1", "x = 2", "x = 3")


def test_the_order_of_day_and_month_is_kept_for_new_rows(tmp_path):
    days = [f"{1 + r % 28:02d}.0{1 + r % 7}.2024" for r in range(60)]
    lines = "".join(f"{'ab'[r % 2]},{day},{r * 7 % 13},{r // 3 % 2}\n" for r, day in enumerate(days))
    path = write(tmp_path, "site,when,x,ill\n" + lines)
    federation = Federation.from_table(path, client="site", target="ill")
    assert any("day first" in note for note in federation.notes)
    assert not any("text" in warning for warning in federation.warnings)
    recipe = Preprocessing.from_json(federation.preprocessing.to_json())
    assert recipe.kinds["when"] == "date, day first"
    alone = read_table(write(tmp_path, "when,x\n05.04.2024,1\n", "new.csv"), recipe.kinds)
    assert alone["when"].to_pylist() == [datetime.datetime(2024, 4, 5)]
    typed = {"when": [datetime.date(2024, 4, 5)], "x": [1]}
    same = [recipe.apply(source, np.float64) for source in (alone, typed, {"when": ["2024-04-05"], "x": [1]})]
    np.testing.assert_array_equal(same[0], same[1])
    np.testing.assert_array_equal(same[0], same[2])
    with pytest.raises(RequestError, match=r"row 1 \(counted from 1\) has '04/13/2024'"):
        recipe.apply({"when": ["04/13/2024"], "x": [1]})


def test_rows_are_counted_from_one(tmp_path):
    with pytest.raises(RequestError, match=r"must hold numbers, but row 2 \(counted from 1\) has 'old'"):
        read_table(write(tmp_path, "site,age\na,3\nb,old\n"), {"age": "number"})


def test_new_rows_are_doubted(tmp_path):
    federation = Federation.from_table(visits(tmp_path, ("a", "b")), client="site", target="ill")
    recipe = federation.preprocessing
    assert recipe.doubts(visits(tmp_path, ("a", "new"), name="later.csv")) == []
    found = recipe.doubts({"dose": [1e6, None, 3.0], "code": ["05", None, "00"]})
    assert [text for text in found if "'dose'" in text and "1e+06" in text]
    assert [text for text in found if "'dose'" in text and "misses 1 value" in text]
    assert [text for text in found if "'code'" in text and "'05'" in text]
    assert [text for text in found if "'code'" in text and "misses 1 value" in text]
    for wrong in ({"dose": ["much"], "code": ["00"]}, {"dose": [datetime.date(2024, 1, 1)], "code": ["00"]}):
        with pytest.raises(RequestError, match="'dose' must hold numbers"):
            recipe.doubts(wrong)


@pytest.mark.parametrize(
    "write_when",
    [
        lambda n: f"2024-01-{1 + n % 28:02d}",
        lambda n: f"2024-01-{1 + n % 28:02d} 10:{n % 60:02d}",
        lambda n: f"{1 + n % 28:02d}/03/2024",
        lambda n: "x" if n % 8 == 0 else str(n),
    ],
)
def test_texts_of_a_typed_file_are_dated_and_doubted_as_those_of_a_text_file(tmp_path, write_when):
    table = {
        "c": ["ab"[n % 2] for n in range(40)],
        "when": [write_when(n) for n in range(40)],
        "x": [n * 7 % 13 / 4 for n in range(40)],
        "y": [n // 3 % 2 for n in range(40)],
    }
    parquet.write_table(pa.table(table), tmp_path / "typed.parquet")
    lines = [",".join(map(str, row)) for row in zip(*table.values())]
    path = write(tmp_path, "\n".join(["c,when,x,y", *lines]) + "\n")
    typed, text = (
        Federation.from_table(source, client="c", target="y") for source in (tmp_path / "typed.parquet", path)
    )
    assert typed.preprocessing.kinds == text.preprocessing.kinds
    assert typed.preprocessing.feature_names == text.preprocessing.feature_names
    assert typed.warnings == text.warnings
    assert [sentence for sentence in typed.warnings if "'when'" in sentence]
