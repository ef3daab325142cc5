# SPDX-License-Identifier: Apache-2.0
"""A split by time: the oldest rows of each client train, the newest test, rows of one time stay together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.data.split import TEST, TRAIN, UNUSED, VALIDATION, Split, split_by_time

RANK = {UNUSED: 0, TRAIN: 1, VALIDATION: 2, TEST: 3}


@given(times=st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_no_row_is_tested_before_it_is_trained(times):
    times = np.array(times, float)
    parts = split_by_time(times, (0.6, 0.2, 0.2))
    ranks = np.array([RANK[part] for part in parts])
    order = np.lexsort((ranks, times))
    assert (np.diff(ranks[order]) >= 0).all() or len(np.unique(times)) < len(times)
    assert (parts == TRAIN).any()
    if len(times) > 2:
        assert {TRAIN, VALIDATION, TEST} <= set(parts.tolist())
    for first, second in ((TRAIN, VALIDATION), (VALIDATION, TEST)):
        if (parts == first).any() and (parts == second).any():
            assert times[parts == first].max() <= times[parts == second].min()


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        (range(10), [TRAIN] * 6 + [VALIDATION] * 2 + [TEST] * 2),
        (range(10)[::-1], [TEST] * 2 + [VALIDATION] * 2 + [TRAIN] * 6),
        ([0, 0, 0, 0, 1, 1, 1, 1, 2, 2], [TRAIN] * 4 + [VALIDATION] * 4 + [TEST] * 2),
        ([5, 5, 5], [TRAIN, VALIDATION, TEST]),
        ([5], [TRAIN]),
    ],
)
def test_borders_move_to_a_change_of_time(times, parts):
    assert split_by_time(np.array(times, float), (0.6, 0.2, 0.2)).tolist() == parts


def test_unused_rows_are_the_oldest():
    assert (
        split_by_time(np.arange(10.0), (0.4, 0.2, 0.2)).tolist()
        == [UNUSED] * 2 + [TRAIN] * 4 + [VALIDATION] * 2 + [TEST] * 2
    )


def visits(when):
    return {"c": ["a", "b"] * 10, "x": np.sin(np.arange(20)), "y": np.arange(20) // 3 % 2, "when": when}


def test_a_table_is_split_by_its_time_column():
    days = [f"2024-01-{20 - number // 2:02d}" for number in range(20)]  # the last rows are the oldest
    split = Split(time_column="when")
    for when in (np.array(days, "datetime64[D]"), days, 20 - np.arange(20) // 2):
        federation = Federation.from_table(visits(when), client="c", target="y", split=split, scaling="none")
        assert federation.preprocessing.feature_names == ("x",)
        np.testing.assert_allclose(federation.test.of(0)[0][:, 0], np.sin([0, 2]), atol=1e-6)


@pytest.mark.parametrize(
    ("table", "split", "words"),
    [
        (visits(["soon", "late"] * 10), Split(time_column="when"), "must hold numbers or dates"),
        (visits([[1]] * 20), Split(time_column="when"), "must hold numbers or dates"),
        (visits(range(20)), Split(time_column="whn"), "Did you mean 'when'"),
        (visits(range(20)), Split(time_column="when", group_column="x"), "time column or a group column"),
        (visits(range(20)), Split(time_column="when", split_column="x"), "time column or a split column"),
    ],
)
def test_unreadable_times_are_refused(table, split, words):
    with pytest.raises(RequestError, match=words):
        Federation.from_table(table, client="c", target="y", split=split)


def test_arrays_have_no_time_column():
    with pytest.raises(RequestError, match="no columns"):
        Federation.from_arrays(np.eye(4), [0, 1, 0, 1], [0, 0, 1, 1], split=Split(time_column="when"))


def test_a_time_that_cannot_tell_the_newest_rows_brings_a_warning():
    columns = {"site": ["a"] * 6 + ["b"] * 6, "x": np.arange(12.0), "y": np.arange(12.0) ** 2}
    split = Split(time_column="day")
    plain = Federation.from_table({**columns, "day": [*range(6), *range(6)]}, client="site", target="y", split=split)
    tied = Federation.from_table({**columns, "day": [*range(6), *[3] * 6]}, client="site", target="y", split=split)
    assert not [text for text in plain.warnings if "'day'" in text]
    assert [text for text in tied.warnings if text.startswith("1 client has test rows of the same time in 'day'")]
