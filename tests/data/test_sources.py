# SPDX-License-Identifier: Apache-2.0
"""Readers: what was written comes back, and files that are cut short say where."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.leaf import read_leaf_json
from idiolect.data.sources import read_idx, read_libsvm, read_npz
from idiolect.data.tables import read_table

PACKERS = {"": lambda content: content, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
TABLE = pa.table({"client": ["a", "b", "b"], "x": [1.5, 2.5, None], "y": [0, 1, 1]})


def csv_bytes(table=TABLE):
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    return sink.getvalue().to_pybytes()


def idx_bytes(array):
    codes = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
    kind = array.dtype.str[1:]
    header = bytes([0, 0, codes[kind], array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("packing", PACKERS)
def test_csv_plain_or_packed(tmp_path, packing):
    path = tmp_path / f"table.csv{packing}"
    path.write_bytes(PACKERS[packing](csv_bytes()))
    assert read_table(path).equals(TABLE)
    assert read_table(str(path)).equals(TABLE)


def test_parquet_and_feather(tmp_path):
    parquet.write_table(TABLE, tmp_path / "table.parquet")
    feather.write_feather(TABLE, tmp_path / "table.feather")
    assert read_table(tmp_path / "table.parquet").equals(TABLE)
    assert read_table(tmp_path / "table.feather").equals(TABLE)


def test_marks_in_csv_are_missing_values(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("client,x,c\na,1,red\nb,?,\nb,NaN,?\na,, ?\n")
    table = read_table(path)
    assert table.column("x").to_pylist() == [1, None, None, None]
    assert table.column("c").to_pylist() == ["red", None, None, None]


def test_a_csv_file_becomes_a_federation(tmp_path):
    path = tmp_path / "table.csv.xz"
    path.write_bytes(lzma.compress(b"site,x,y\n" + b"".join(b"%d,%d,%d\n" % (r % 3, r % 7, r % 2) for r in range(30))))
    federation = Federation.from_table(path, client="site", target="y")
    assert federation.clients == 3
    assert federation.names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.csv", None, "There is no file"),
        ("table.xlsx", b"x", "extension '.xlsx'"),
        ("table", b"x", "extension"),
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"client,x,y\n", "no rows"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "Row #3"),
        ("twice.csv", b"a,a\n1,2\n", "more than one column named 'a'"),
        ("cut.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 500)[:-12], "cut short"),
        ("cut.csv.xz", lzma.compress(b"a,b\n" + b"1,2\n" * 500)[:-12], "cut short"),
        ("cut.csv.bz2", bz2.compress(b"a,b\n" + b"1,2\n" * 500)[:-12], "cut short"),
        ("bad.parquet", b"PAR1 and nothing else", "not a whole parquet file"),
        ("bad.feather", b"ARROW1 and nothing", "not a whole feather file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # a compressed file's bytes hold the time of day
)
def test_wrong_table_files_earn_a_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError, match=words) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_its_neighbour(tmp_path):
    (tmp_path / "patients.csv").write_bytes(csv_bytes())
    with pytest.raises(RequestError, match=r"Did you mean 'patients\.csv'"):
        read_table(tmp_path / "patient.csv")
    with pytest.raises(RequestError, match="is a folder"):
        read_idx(tmp_path)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 20), features=st.integers(1, 10), zero_based=st.booleans())
def test_libsvm_round_trip(tmp_path_factory, seed, rows, features, zero_based):
    draws = np.random.default_rng(seed)
    inputs = draws.integers(-3, 4, (rows, features)) * (draws.random((rows, features)) < 0.5) / 4
    targets = draws.integers(-1, 2, rows)
    base = 0 if zero_based else 1
    lines = [
        " ".join([f"{target:+d}", *(f"{j + base}:{value:g}" for j, value in enumerate(row) if value)]) + " # note\n"
        for target, row in zip(targets, inputs)
    ]
    path = tmp_path_factory.mktemp("libsvm") / "rows.bz2"
    path.write_bytes(bz2.compress("".join(lines).encode()))
    found, labels = read_libsvm(path, features, zero_based=zero_based)
    np.testing.assert_array_equal(found, inputs)
    np.testing.assert_array_equal(labels, targets)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("+1 1:1\n-1 2:", "line 2: '2:' is not index:value"),
        ("+1 1:1\n-1 2", "line 2: '2' is not index:value"),
        ("+1 1:1\nspam 2:1", "line 2: 'spam' is not a number"),
        ("+1 0:1", "line 1: indices must start at 1"),
        ("+1 3:1 2:1", "line 1: indices must start at 1 and rise"),
        ("+1 2:1 2:1", "line 1: indices must start at 1 and rise"),
        ("+1 1:nan", "line 1 holds a number that is not finite"),
        ("+1 9:1", "features=5"),
        ("# nothing\n", "holds no rows"),
        ("+1 1:1\n-1 2:\xe9", "byte 12 is no ASCII"),
    ],
)
def test_malformed_libsvm_names_the_line(tmp_path, content, words):
    path = tmp_path / "rows.txt"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(RequestError, match=words):
        read_libsvm(path, features=5)


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4", "f4", "f8"])
def test_idx_round_trip(tmp_path, kind):
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    for packing, pack in PACKERS.items():
        path = tmp_path / f"array.idx{packing}"
        path.write_bytes(pack(idx_bytes(array)))
        np.testing.assert_array_equal(read_idx(path), array)
        assert read_idx(path).dtype == array.dtype


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (-1, "has 39 bytes, but its header promises 40"),  # 4 + 3 * 4 bytes of header and 24 of values
        (10, "ends at byte 10, inside its 16-byte header"),
        (2, "not an IDX file"),
        (0, "not an IDX file"),
    ],
)
def test_truncated_idx_names_the_byte(tmp_path, cut, words):
    path = tmp_path / "array.idx"
    path.write_bytes(idx_bytes(np.zeros((2, 3, 4), "u1"))[:cut])
    with pytest.raises(RequestError, match=words):
        read_idx(path)


@pytest.mark.parametrize("packing", ["", ".xz"])
def test_npz_round_trip_and_truncation(tmp_path, packing):
    plain = tmp_path / "plain.npz"
    np.savez_compressed(plain, x=np.arange(1000.0), names=np.array(["a", "bc"]))
    path = tmp_path / f"arrays.npz{packing}"
    path.write_bytes(PACKERS[packing](plain.read_bytes()))
    found = read_npz(path)
    np.testing.assert_array_equal(found["x"], np.arange(1000.0))
    assert found["names"].tolist() == ["a", "bc"]
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RequestError, match=r"whole \.npz file|cut short"):
        read_npz(path)


def test_npz_refuses_pickles_and_single_arrays(tmp_path):
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(RequestError, match="holds Python objects, as rows of mixed size do"):
        read_npz(tmp_path / "objects.npz")
    with open(tmp_path / "single.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(RequestError, match=r"single \.npy"):
        read_npz(tmp_path / "single.npz")


def leaf_content(names=("u", "v"), sizes=(2, 3)):
    data = {
        name: {"x": [[row, 0.5] for row in range(n)], "y": [row % 2 for row in range(n)]}
        for name, n in zip(names, sizes)
    }
    return {"users": list(names), "num_samples": list(sizes), "user_data": data}


def test_leaf_file_and_folder(tmp_path):
    (tmp_path / "b.json").write_text(json.dumps(leaf_content(("w", "x"))))
    (tmp_path / "a.json").write_text(json.dumps(leaf_content()))
    one = read_leaf_json(tmp_path / "a.json")
    assert one.names == ("u", "v")
    assert one.rows.counts.tolist() == [2, 3]
    np.testing.assert_array_equal(one.rows.of(1)[0], [[0, 0.5], [1, 0.5], [2, 0.5]])
    both = read_leaf_json(tmp_path)
    assert both.names == ("u", "v", "w", "x")
    federation = Federation.from_rows(both.rows, names=both.names)
    assert federation.task.classes == ("0", "1")


def test_leaf_texts_become_character_numbers(tmp_path):
    content = {
        "users": ["hamlet"],
        "num_samples": [2],
        "user_data": {"hamlet": {"x": ["to b", "o be"], "y": ["e", " "]}},
    }
    (tmp_path / "plays.json").write_text(json.dumps(content))
    data = read_leaf_json(tmp_path / "plays.json")
    assert data.alphabet == " beot"
    assert ["".join(data.alphabet[code] for code in row) for row in data.rows.inputs] == ["to b", "o be"]
    assert data.rows.targets.tolist() == [2, 0]


def broken_leaf(**changes):
    content = leaf_content() | changes
    return json.dumps({key: value for key, value in content.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(leaf_content())[:-20], "not whole JSON: .* byte"),
        ("[]", "not a LEAF file"),
        (broken_leaf(users=None), "has no 'users'"),
        (broken_leaf(num_samples=[2]), "2 users but 1 sample counts"),
        (broken_leaf(num_samples=[2, 4]), "'v' has 3 x, 3 y and num_samples 4"),
        (broken_leaf(user_data={"u": {"x": [], "y": []}}, num_samples=[0, 3]), "no x and y"),
        (broken_leaf(users=["u", "u"], num_samples=[2, 2]), "repeats the user 'u'"),
        (
            broken_leaf(user_data={"u": {"x": [[1], [1, 2]], "y": [0, 1]}, "v": leaf_content()["user_data"]["v"]}),
            "x entries must all be numbers",
        ),
    ],
)
def test_malformed_leaf_earns_a_sentence(tmp_path, text, words):
    (tmp_path / "data.json").write_text(text)
    with pytest.raises(RequestError, match=words):
        read_leaf_json(tmp_path / "data.json")


def test_leaf_folder_without_files(tmp_path):
    with pytest.raises(RequestError, match=r"holds no \.json"):
        read_leaf_json(tmp_path)


@pytest.mark.parametrize("ending", [".feather", ".parquet"])
def test_texts_that_are_no_utf8_in_an_arrow_file_are_refused(tmp_path, ending):
    raw = pa.array([b"\xe9t\xe9", b"b", b"b"], pa.binary())
    broken = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    table = TABLE.set_column(0, "client", broken)
    writer = feather.write_feather if ending == ".feather" else parquet.write_table
    writer(table, tmp_path / f"table{ending}")
    with pytest.raises(RequestError, match="not a whole"):
        read_table(tmp_path / f"table{ending}")
