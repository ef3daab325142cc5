# SPDX-License-Identifier: Apache-2.0
"""Mangled array files (NPZ, LIBSVM, IDX, LEAF): a federation or one sentence. MANGLED_TABLES=500 tries more."""

from __future__ import annotations

import io
import json
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from idiolect.core.checks import RequestError
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import DataSpec

AMOUNT = int(os.environ.get("MANGLED_TABLES", "80"))
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
DTYPES = ("i1", "u1", "i8", "u8", "f2", "f4", "f8", "?", "U5", "S5", "M8[D]", "c8", "O")
SHAPES = ((), (2,), (0,), (1,), (3, 2))


def rarely(draw) -> bool:
    """Whether something goes wrong here."""
    return draw(st.integers(0, 19)) == 13


@st.composite
def array_files(draw):
    """An NPZ file with x, y and client, now and then of any type and shape."""
    rows = draw(st.sampled_from([0, 1, 5, 20, 30, 40]))
    usual = {
        "x": (("f4", "f8", "i8", "u1", "?"), (3,)),
        "y": (("i8", "f8", "U5", "S5", "?"), ()),
        "client": (DTYPES[:11], ()),
    }
    arrays = {}
    for name, (kinds, tail) in usual.items():
        kind = draw(st.sampled_from(DTYPES if rarely(draw) else kinds))
        shape = (rows + int(rarely(draw)), *(draw(st.sampled_from(SHAPES)) if rarely(draw) else tail))
        shape = () if rarely(draw) else shape
        values = (np.arange(int(np.prod(shape))) % draw(st.integers(1, 9))).reshape(shape)
        arrays[name] = values.astype("i8").astype(kind)
        if kind[0] == "f" and values.size and rarely(draw):
            arrays[name].reshape(-1)[0] = draw(st.sampled_from([np.nan, np.inf]))
    if rarely(draw):
        arrays.pop(draw(st.sampled_from(["x", "y", "client"])))
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return "npz", _damaged(draw, sink.getvalue()), {}


BAD_WORDS = ("7:1_0", "0:1", "2:", "x", "99999999999:1", "2:nan", "3:inf", "#", "1:1 1:1", "é", "-3:1")
PARTITIONS = (
    {"clients": 2},
    {"clients": 0},
    {"clients": "two"},
    {"partition": "dirichlet"},
    {"labels": 1},
    {"partition": 3},
)


@st.composite
def libsvm_files(draw):
    """LIBSVM text, sometimes with slips in it."""
    lines = []
    for row in range(draw(st.sampled_from([0, 1, 20, 30]))):
        words = [("+1", "-1", "2.5")[row % 3], "1:1", f"2:{row / 7:.3f}", "5:-1e3"]
        if rarely(draw):
            words[draw(st.integers(0, 3))] = draw(st.sampled_from((*BAD_WORDS, "a", "nan", "")))
        lines.append(" ".join(words))
    settings = draw(st.sampled_from(PARTITIONS)) if rarely(draw) else {}
    return "libsvm_file", _damaged(draw, "\n".join(lines).encode()), settings


@st.composite
def idx_files(draw):
    """IDX bytes, whose type, dimensions and sizes may promise too much; they serve as images and labels alike."""
    kind = draw(st.sampled_from([8, 9, 11, 12, 13, 14]))
    sizes = [draw(st.sampled_from([20, 30]))]
    if rarely(draw):
        kind, sizes = 7, draw(st.lists(st.sampled_from([0, 1, 2, 20, 2**32 - 1]), max_size=4))
        kind = draw(st.sampled_from([8, 13, 7]))
    width = {8: 1, 9: 1, 11: 2, 12: 4, 13: 4, 14: 8}.get(kind, 1)
    amount = min(int(np.prod(sizes, dtype=np.float64)), 4000) * width
    header = bytes([0, 0, kind, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)
    content = header + bytes(number % 3 if kind < 13 else 0 for number in range(amount))
    return "idx", _damaged(draw, content), {"labels": "file"}


_VALUES = st.recursive(
    st.one_of(st.integers(-5, 300), st.floats(), st.text(max_size=3), st.booleans(), st.none(), st.just(2**70)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
_INPUTS = ([0.5, 1.0], [1, 2], [300, 4], "abc", [[0.5], [1.5]], 3.0, "")
_TARGETS = ((0, 1), ("b", "c"), (0.5, 1.5), ("cat", "horse"), ("abc", "cba"), (True, False), ([1, 2], [2, 1]))


@st.composite
def leaf_files(draw):
    """LEAF JSON with x and y of many kinds."""
    users = draw(
        st.lists(st.sampled_from(["u", "v", "w", "007", "7"]), min_size=2, max_size=4, unique=not rarely(draw))
    )
    x, y = draw(st.sampled_from(_INPUTS)), draw(st.sampled_from(_TARGETS))
    data = {}
    for user in users:
        rows = draw(st.sampled_from([0, 1, 5, 8, 9]))
        data[user] = {"x": [x] * rows, "y": [y[row % 2] for row in range(rows)]}
        if rows and rarely(draw):
            data[user][draw(st.sampled_from(["x", "y"]))][-1] = draw(_VALUES)
    content = {"users": users, "num_samples": [len(data[user]["y"]) for user in users], "user_data": data}
    if rarely(draw):
        content[draw(st.sampled_from(list(content)))] = draw(_VALUES)
    return "leaf", _damaged(draw, json.dumps(content).encode()), draw(st.sampled_from([{}, {}, {"vocabulary": 9}]))


def _damaged(draw, content: bytes) -> bytes:
    return content[: draw(st.integers(0, len(content)))] if draw(st.integers(0, 19)) == 13 else content


FILES = {"npz": array_files(), "libsvm_file": libsvm_files(), "idx": idx_files(), "leaf": leaf_files()}


@pytest.mark.parametrize("reader", FILES)
@settings(max_examples=AMOUNT, derandomize=True, deadline=None, suppress_health_check=QUIET)
@given(choice=st.data(), task=st.sampled_from([None, "regression"]))
def test_a_mangled_array_file_is_read_or_refused(tmp_path_factory, reader, choice, task):
    source, content, more = choice.draw(FILES[reader])
    path = tmp_path_factory.mktemp("arrays") / "file"
    path.write_bytes(content)
    more = {key: str(path) if value == "file" else value for key, value in more.items()}
    federation, refusal = None, ""
    try:
        federation, _ = build_data(DataSpec(source, str(path), task=task, settings=more))
    except RequestError as error:
        refusal = str(error)
    event(f"{source}: {refusal.replace(str(path), 'PATH')[:60]}")
    assert "\n" not in refusal
    if federation is None:
        return
    assert federation.clients >= 2
    assert len(set(federation.names)) == federation.clients
    for part in (federation.train, federation.validation, federation.test):
        assert np.isfinite(part.inputs).all()
        assert np.isfinite(part.targets).all()
