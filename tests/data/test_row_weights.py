# SPDX-License-Identifier: Apache-2.0
"""A weight column: no input, finite, at least 0, with something to learn from for every client."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.split import Split

ROWS = 10
PARTS = ["train"] * 6 + ["validation"] * 2 + ["test"] * 2


def visits(weights, **columns):
    draw = np.random.default_rng(0)
    table = {"site": ["a"] * ROWS + ["b"] * ROWS, "part": 2 * PARTS, "x": draw.normal(size=2 * ROWS)}
    return table | {"y": draw.normal(size=2 * ROWS), "w": list(weights)} | columns


def made(weights, weight="w", **columns):
    table = visits(weights, **columns)
    return Federation.from_table(table, client="site", target="y", weight=weight, split=Split(split_column="part"))


def test_the_column_weighs_rows_and_is_no_input():
    weights = np.arange(1.0, 2 * ROWS + 1)
    found = made(weights)
    assert found.preprocessing.feature_names == ("x",)
    np.testing.assert_array_equal(found.train.weights, np.concatenate([weights[:6], weights[ROWS : ROWS + 6]]))
    np.testing.assert_array_equal(found.test.weights, weights[[8, 9, 18, 19]])  # as the table has them
    padded = found.train.pad(np.arange(2), 7)
    np.testing.assert_allclose(padded.weights.sum(axis=1) / 6, 1)
    assert (padded.weights[:, 6] == 0).all()
    assert sum("weighs rows" in note for note in found.notes) == 1


def test_no_column_is_no_weights():
    found = made(np.ones(2 * ROWS), weight=None)
    assert found.train.weights is None
    assert found.train.pad(np.arange(2)).weights is None


def test_rows_of_weight_zero_are_kept_and_noted():
    weights = np.ones(2 * ROWS)
    weights[[0, 7, 12]] = 0
    found = made(weights)
    assert found.train.counts.tolist() == [6, 6]
    assert any(note.startswith("3 rows of weight 0") for note in found.notes)


def changed(place, value):
    weights = [1.0] * (2 * ROWS)
    weights[place] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (changed(3, -1.0), ("'w'", "row 4 (counted from 1)", "-1")),
        (changed(4, None), ("'w'", "row 5", "no weight")),
        (changed(5, float("inf")), ("'w'", "row 6")),
        ([str(value) for value in changed(6, "heavy")], ("'w'", "row 7", "'heavy'")),
        ([1.0] * ROWS + [0.0] * ROWS, ("'w'", "positive sum", "'b'")),
        ([1.0] * ROWS + [0.0] * 6 + [1.0] * 4, ("training row of positive weight", "all 6", "'b'")),
    ],
)
def test_wrong_weights_are_refused(weights, words):
    with pytest.raises(RequestError) as error:
        made(weights)
    for word in words:
        assert word in str(error.value)


def test_rows_are_named_as_the_table_numbers_them():
    with pytest.raises(RequestError, match=r"row 4 \(counted from 1\) has -1"):
        made(changed(3, -1.0), site=[None, "a", None] + ["a"] * 7 + ["b"] * ROWS)
    found = made(changed(0, None), site=[None] + ["a"] * 9 + ["b"] * ROWS)  # the row is dropped with its weight
    assert found.train.counts.sum() == 11


@pytest.mark.parametrize("name", ["site", "y", "part"])
def test_a_column_with_another_role_is_refused(name):
    with pytest.raises(RequestError, match="no other role"):
        made(np.ones(2 * ROWS), weight=name)
    with pytest.raises(RequestError, match="Did you mean"):
        made(np.ones(2 * ROWS), weight="ww")


def test_arrays_have_weights_too():
    inputs, owner = np.arange(8.0)[:, None], np.repeat([0, 1], 4)
    options = {"parts": ["train", "train", "validation", "test"] * 2, "task": "regression"}
    found = Federation.from_arrays(inputs, np.arange(8.0), owner, weights=[1, 3, 2, 2, 5, 5, 1, 1], **options)
    np.testing.assert_allclose(found.train.weights_of(0), [0.5, 1.5])
    again = Federation.from_rows(found.train, task="regression", split=Split(1, 0, 0))
    np.testing.assert_array_equal(again.train.weights, found.train.weights)
    np.testing.assert_array_equal(found.train.select(np.array([1])).weights, [5, 5])
    for wrong, words in (([1] * 7, "one entry per row"), (["a"] * 8, "one number per row"), ([-1] * 8, "row 0")):
        with pytest.raises(RequestError, match=words):
            Federation.from_arrays(inputs, np.arange(8.0), owner, weights=wrong, **options)


def test_huge_weights_keep_their_proportions():
    found = made([1e308, 5e307] * ROWS)
    np.testing.assert_allclose(found.train.weights_of(0), [4 / 3, 2 / 3] * 3)


def test_all_parts_have_weights_or_none():
    found = made(np.ones(2 * ROWS))
    with pytest.raises(RequestError, match="none at all"):
        dataclasses.replace(found, test=dataclasses.replace(found.test, weights=None))
    with pytest.raises(RequestError, match="one per row"):
        dataclasses.replace(found, test=dataclasses.replace(found.test, weights=np.ones(3)))
