# SPDX-License-Identifier: Apache-2.0
"""Federations: splits lose no row, depend on names and not on order, and bad input earns a sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.data.split import Split, part_sizes

few = settings(max_examples=30, deadline=None)
ALL = Split()


def numbered(counts, **options):
    """A federation whose single input is the row's number, so that rows can be traced."""
    ids = np.repeat([f"c{client}" for client in range(len(counts))], counts)
    number = np.arange(len(ids), dtype=np.float64)
    return Federation.from_arrays(number[:, None], np.sin(number), ids, task="regression", **options)


def rows_by_part(federation):
    return [set(rows.inputs[:, 0].astype(int)) for rows in (federation.train, federation.validation, federation.test)]


@few
@given(counts=st.lists(st.integers(1, 40), min_size=2, max_size=8), seed=st.integers(0, 2**31))
def test_no_row_is_lost_or_doubled(counts, seed):
    federation = numbered(counts, seed=seed)
    parts = rows_by_part(federation)
    assert set.union(*parts) == set(range(sum(counts)))
    assert sum(len(part) for part in parts) == sum(counts)
    assert federation.train.counts.min() >= 1
    for client, count in enumerate(counts):
        sizes = [rows.counts[client] for rows in (federation.train, federation.validation, federation.test)]
        assert sum(sizes) == count
        if count == 1:
            assert sizes == [1, 0, 0]
        elif count == 2:
            assert sizes == [1, 0, 1]
        else:
            assert min(sizes) >= 1
            # each of the two smaller parts is off by at most half a row, or raised to one row
            assert all(abs(size - 0.2 * count) <= max(0.5, 1 - 0.2 * count) for size in sizes[1:])


@few
@given(
    rows=st.integers(1, 60),
    shares=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    whole=st.booleans(),
)
def test_part_sizes_always_leave_a_training_row(rows, shares, whole):
    scale = sum(shares) + 0.01 if whole else max(1.0, sum(shares) + 0.01)
    train, validation, test = (shares[0] + 0.01) / scale, shares[1] / scale, shares[2] / scale
    sizes = part_sizes(rows, (train, validation, test))
    assert sum(sizes) == rows
    assert min(sizes) >= 0
    assert sizes[0] >= 1


def test_a_client_is_split_alike_whoever_else_is_there():
    counts = [12, 30, 7, 19]
    names = [f"c{client}" for client in range(4)]
    ids = np.repeat(names, counts)
    inputs = np.arange(len(ids), dtype=np.float64)[:, None]
    targets = np.cos(inputs[:, 0])
    whole = Federation.from_arrays(inputs, targets, ids, task="regression", seed=5)
    # the same clients in another order, each client's own rows in their first order
    order = np.concatenate([np.flatnonzero(ids == name) for name in ("c2", "c0", "c3", "c1")])
    mixed = Federation.from_arrays(inputs[order], targets[order], ids[order], task="regression", seed=5)
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(whole, name).inputs, getattr(mixed, name).inputs)
    fewer = np.isin(ids, ["c1", "c3"])
    part = Federation.from_arrays(inputs[fewer], targets[fewer], ids[fewer], task="regression", seed=5)
    np.testing.assert_array_equal(part.train.of(0)[0], whole.train.of(1)[0])
    other = Federation.from_arrays(inputs, targets, ids, task="regression", seed=6)
    assert rows_by_part(other) != rows_by_part(whole)


def test_from_rows_keeps_the_order_of_clients():
    rows = Rows(np.arange(30.0)[:, None], np.sin(np.arange(30.0)), np.array([0, 10, 18, 30]))
    federation = Federation.from_rows(rows, names=["z", "a", "m"], task="regression")
    assert federation.names == ("z", "a", "m")
    assert set(federation.train.of(1)[0][:, 0]) <= set(range(10, 18))
    assert federation.train.inputs.dtype == np.float32


def test_fractions_below_one_leave_rows_unused_and_say_so():
    federation = numbered([20, 20], split=Split(train=0.5, validation=0.0, test=0.25))
    assert federation.train.counts.tolist() == [10, 10]
    assert federation.validation.counts.tolist() == [0, 0]
    assert federation.test.counts.tolist() == [5, 5]
    assert any("10 rows are not used" in note for note in federation.notes)


@pytest.mark.parametrize(
    ("counts", "single", "few"),
    [
        (
            [1, 2, 30],
            "1 client has a single row: it trains, and the client has no validation or test rows.",
            "1 client with more than one row has too few for validation rows.",
        ),
        (
            [1, 1, 2, 2, 30],
            "2 clients have a single row each: it trains, and they have no validation or test rows.",
            "2 clients with more than one row have too few for validation rows.",
        ),
    ],
)
def test_tiny_clients_are_reported(counts, single, few):
    federation = numbered(counts)
    assert single in federation.notes
    assert few in federation.notes
    assert federation.test.inputs.shape[1:] == (1,)


@few
@given(
    sizes=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=2, max_size=4),
    seed=st.integers(0, 1000),
)
def test_groups_stay_together(sizes, seed):
    groups = np.concatenate([np.repeat(np.arange(len(client)), client) for client in sizes])
    counts = [sum(client) for client in sizes]
    federation = numbered(counts, groups=groups, seed=seed)
    parts = rows_by_part(federation)
    assert sum(len(part) for part in parts) == sum(counts)
    assert federation.train.counts.min() >= 1
    start = 0
    for client in sizes:
        for size in client:
            block = set(range(start, start + size))
            assert sum(bool(block & part) for part in parts) == 1  # the whole group lies in one part
            start += size


def test_many_groups_come_close_to_the_fractions():
    groups = np.repeat(np.arange(50), 4)
    federation = numbered([200, 200], groups=np.tile(groups, 2))
    # 50 groups of 4 rows: each part within one group of 120 / 40 / 40
    for rows, wanted in ((federation.train, 120), (federation.validation, 40), (federation.test, 40)):
        assert np.abs(rows.counts - wanted).max() <= 4


def test_given_parts_are_obeyed():
    parts = np.array((["train"] * 4 + ["Validation"] * 3 + ["test"] * 2) * 2)
    federation = numbered([9, 9], parts=parts)
    assert rows_by_part(federation) == [{0, 1, 2, 3, 9, 10, 11, 12}, {4, 5, 6, 13, 14, 15}, {7, 8, 16, 17}]


def test_held_out_clients_are_whole_and_drawn_by_name():
    federation = numbered([10] * 8, held_out=3, seed=1)
    assert federation.clients == 5
    assert federation.held_out.clients == 3
    assert set(federation.names).isdisjoint(federation.held_out.names)
    seen = set.union(*rows_by_part(federation))
    hidden = set.union(*rows_by_part(federation.held_out))
    assert seen | hidden == set(range(80))
    assert seen.isdisjoint(hidden)
    assert numbered([10] * 8, held_out=3, seed=1).held_out.names == federation.held_out.names
    drawn = {numbered([10] * 8, held_out=0.25, seed=seed).held_out.names for seed in range(10)}
    assert len(drawn) > 1
    assert all(len(names) == 2 for names in drawn)
    assert numbered([10] * 4, held_out=["c2"]).held_out.names == ("c2",)
    assert numbered([10] * 4).held_out is None


def test_labels_become_class_numbers():
    federation = Federation.from_arrays(np.zeros((8, 2)), np.tile([7, -1, 3, 7], 2), [0] * 4 + [1] * 4)
    assert federation.task.classes == ("-1", "3", "7")  # numbers sort as numbers
    assert federation.task.outputs == 3
    assert federation.train.targets.dtype == np.int32
    texts = Federation.from_arrays(np.zeros((4, 2)), ["b", "a", "b", "a"], [0, 0, 1, 1])
    assert texts.task.classes == ("a", "b")
    assert any("classification" in note for note in texts.notes)


def test_task_is_inferred_or_obeyed():
    few_values, many_values = np.tile([0, 1], 20), np.arange(40)
    ids = np.repeat([0, 1], 20)
    inputs = np.zeros((40, 1))
    assert Federation.from_arrays(inputs, few_values, ids).task.kind == "classification"
    assert Federation.from_arrays(inputs, many_values, ids).task.kind == "regression"
    assert Federation.from_arrays(inputs, many_values, ids, task="classification").task.outputs == 40
    assert Federation.from_arrays(inputs, few_values, ids, task="regression").train.targets.dtype == np.float32
    several = Federation.from_arrays(inputs, np.stack([many_values, few_values], 1), ids)
    assert several.task.outputs == 2
    assert several.train.targets.shape[1:] == (2,)


def test_tokens_stay_whole_numbers():
    tokens = np.arange(24).reshape(12, 2)
    federation = Federation.from_arrays(tokens, np.tile([0, 1], 6), [0] * 6 + [1] * 6, tokens=True)
    assert federation.train.inputs.dtype == np.int32


def test_balance_skew_and_description():
    targets = np.array([0] * 30 + [1] * 10)
    apart = Federation.from_arrays(np.zeros((40, 3)), targets, targets, split=Split(1.0, 0.0, 0.0))
    np.testing.assert_allclose(apart.class_balance(), [0.75, 0.25])
    # each client has one label only, the mean client half of each: total variation 1/2
    assert apart.label_skew() == pytest.approx(0.5)
    alike = Federation.from_arrays(
        np.zeros((40, 3)), np.tile([0, 1], 20), np.repeat([0, 1], 20), split=Split(1.0, 0.0, 0.0)
    )
    assert alike.label_skew() == pytest.approx(0.0)
    # clients constant at 0 and at 1: all variance lies between them
    between = Federation.from_arrays(
        np.zeros((40, 3)), np.repeat([0.0, 1.0], 20), np.repeat([0, 1], 20), task="regression"
    )
    assert between.label_skew() == pytest.approx(1.0)
    text = " ".join(apart.describe())
    for words in (
        "2 clients hold 40 rows: at least 10, median 20, at most 30",
        "3 inputs",
        "0 75.0%, 1 25.0%",
    ):
        assert words in text
    assert "variance" in " ".join(between.describe())
    with pytest.raises(RequestError, match="classification"):
        between.class_balance()


GOOD = {"inputs": np.zeros((6, 2)), "targets": np.tile([0, 1], 3), "clients": [0, 0, 0, 1, 1, 1]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inputs": np.full((6, 2), np.nan)}, r"client '0' \(row 0\) has nan"),
        ({"inputs": np.array([[0.0]] * 5 + [[np.inf]])}, r"client '1' \(row 5\) has inf"),
        ({"inputs": np.zeros((5, 2))}, "one entry per row"),
        ({"targets": [0, 1]}, "one entry per row"),
        ({"targets": np.zeros(6)}, "constant has nothing to learn"),
        ({"targets": np.array([0, 1, np.nan] * 2)}, r"client '0' \(row 2\) has nan"),
        ({"targets": list("ababab"), "task": "regression"}, "numeric targets"),
        ({"clients": [0] * 6}, "at least 2 clients, got 1"),
        ({"clients": [[0] * 6]}, "one id per row"),
        ({"clients": [0, 0, 0, 1, 1, np.nan]}, "not-a-number"),
        ({"inputs": np.array([["a"]] * 6)}, "must be numbers"),
        ({"task": "clustering"}, "classification, regression"),
        ({"classes": ("only",)}, r"class numbers 0 to 0, but client '0' \(row 1\) has 1; name every class"),
        ({"classes": ("a", "b"), "targets": np.tile([0.0, 1.0], 3)}, "got the type float64; number them from 0"),
        ({"targets": np.eye(3)[[0, 1, 2] * 2]}, r"got one-hot rows of 3; give targets\.argmax"),
        ({"targets": np.eye(2, dtype=int)[[0, 1] * 3], "classes": ("a", "b")}, "got one-hot rows of 2"),
        ({"split": Split(0.8, 0.2, 0.2)}, "together at most 1"),
        ({"split": Split(0.0, 0.5, 0.5)}, "train above 0"),
        ({"split": Split(group_column="day")}, "groups="),
        ({"parts": ["train"] * 5 + ["tset"]}, "'tset'"),
        ({"parts": ["train"] * 3 + ["test"] * 3}, "gives '1' none"),
        ({"held_out": 1}, "leave at least 2"),
        ({"held_out": -1}, "number of clients"),
        ({"held_out": ["10"]}, "'10', which is not in the data"),
    ],
)
def test_wrong_arrays_earn_a_sentence(change, words):
    with pytest.raises(RequestError, match=words) as caught:
        Federation.from_arrays(**(GOOD | change))
    assert "\n" not in str(caught.value)


def test_parts_must_speak_of_the_same_clients():
    federation = numbered([10, 10])
    with pytest.raises(RequestError, match="same clients"):
        Federation(federation.train, federation.validation, federation.test, ("a",), federation.task)


def test_targets_that_are_objects_are_refused():
    with pytest.raises(RequestError, match="numbers or texts, got the type object"):
        Federation.from_arrays(np.zeros((4, 1)), np.array([object()] * 4), [0, 0, 1, 1])
