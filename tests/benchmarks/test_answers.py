# SPDX-License-Identifier: Apache-2.0
"""How `answers` judges: splits, noise, coverage and false alarms, on cells made up for the purpose."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _benchmarks():
    """The package of benchmarks is not installed."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def method(errors, gains=None, width=1.0, verdict="unclear"):
    gains = np.zeros(len(errors)) if gains is None else np.asarray(gains)
    low, high = (gains - width).tolist(), (gains + width).tolist()
    words = [verdict] * len(errors)
    return {"errors": errors, "plain_gain": gains.tolist(), "gain_low": low, "gain_high": high, "verdict": words}


def cell(announced, methods):
    return {"announced": announced, "tied": [], "methods": methods, "seconds": 1.0}


def test_a_method_that_is_worse_by_chance_is_tied_and_one_that_always_is_worse_is_not():
    from benchmarks.answers_judge import right_announcements

    draws = np.random.default_rng(0).normal(size=10)
    cells = [
        cell(
            "noisy" if split % 2 else "worse",
            {"best": method([1.0, None]), "noisy": method([1.01 + noise]), "worse": method([2.0 + 0.01 * noise])},
        )
        for split, noise in enumerate(draws)
    ]
    assert right_announcements(cells) == [bool(split % 2) for split in range(10)]


def test_the_interval_of_a_ratio_is_that_of_other_clients_in_any_order():
    """Half of the clients gain a tenth, half lose one: the ratio is 1, and other clients could have made it either."""
    from benchmarks.answers_judge import Splits, ratio_interval

    names = [f"c{number}" for number in range(20)]
    errors = [1.1 if number % 2 else 0.9 for number in range(20)]
    ours = {"a": method(errors[::-1]) | {"client": names[::-1]}}
    classical = {"clients": names, "fits": {"pooled": {"errors": [1.0] * 20}}}
    low, high = ratio_interval(Splits((classical,) * 3, (cell("a", ours),) * 3), "pooled")
    expected = 1.96 * 0.1 / np.sqrt(20)
    assert (low, high) == pytest.approx((1 - expected, 1 + expected), abs=0.006)
    alike = {"a": method([2.0] * 20) | {"client": names}}
    assert ratio_interval(Splits((classical,), (cell("a", alike),)), "pooled") == (2.0, 2.0)


def test_splits_that_share_rows_are_less_sure():
    from benchmarks.answers_judge import worse_than_noise

    difference = 0.8 + np.tile([1.0, -1.0], 5)
    assert worse_than_noise(difference, np.zeros(10), corrected=False)
    assert not worse_than_noise(difference, np.zeros(10))


def test_perfect_intervals_of_overlapping_splits_hold_96_per_cent():
    """What the docstring of `held_gains` works out: rows that are the only noise, a fifth of them in each test part."""
    from benchmarks.answers_judge import held_gains

    draws = np.random.default_rng(2)
    clients, rows, splits = 400, 100, 10
    gains = draws.normal(size=(clients, rows))
    tested = np.argsort(draws.random((splits, clients, rows)), axis=2)[:, :, : rows // 5]
    seen = np.take_along_axis(gains[None], tested, axis=2).mean(axis=2)
    half = 1.96 / np.sqrt(rows / 5)
    held = held_gains([cell("a", {"a": method([0.0] * clients, gain, half)}) for gain in seen])
    assert len(held) == splits * clients
    assert np.mean(held) == pytest.approx(0.962, abs=0.012)


def test_hurt_is_counted_over_methods_other_than_training_alone():
    from benchmarks.answers_judge import hurt_calls, hurt_elsewhere

    alone = method([1.0, 1.0], verdict="hurt")
    first = cell("a", {"local": alone, "a": method([1.0, 1.0], [-1.0, -1.0], verdict="hurt")})
    second = cell("a", {"local": alone, "a": method([1.0, 1.0], [-1.0, 1.0])})
    assert hurt_calls([first, second]) == [True, True, False, False]
    assert hurt_elsewhere([first, second]) == [True, False]


def test_a_fit_that_fails_on_one_split_is_not_compared():
    from benchmarks.answers_judge import Splits, judge_table

    ours = [cell("local", {"local": method([1.0]) | {"client": ["c"]}}) for _ in range(2)]
    classical = [
        {"clients": ["c"], "fits": {"pooled": {"errors": [2.0]}, "mixed": {"errors": [1.0]}}},
        {"clients": ["c"], "fits": {"pooled": ours[0]["methods"]["local"]}},
    ]
    judged = judge_table(Splits(tuple(classical), tuple(ours)))
    assert judged["best classical"] == "pooled"
    assert judged["ratio"] == pytest.approx(1 / 1.5)


def test_a_table_that_lacks_a_split_leaves_its_target_open():
    from benchmarks.answers import _targets

    whole = {"ratio": 1.0, "right": 1.0, "coverage": 0.95, "hurt": 0.0, "splits": 2}
    names = ("grunfeld", "diabetes_shuffled")
    met = _targets(dict.fromkeys(names, whole), names, 2)
    assert [target.met for target in met] == [True] * 6
    short = _targets({"grunfeld": whole, "diabetes_shuffled": whole | {"splits": 1}}, names, 2)
    assert [target.met for target in short] == [True, *[False] * 5]


def test_both_sides_read_the_same_split(tmp_path):
    from benchmarks.answers_tables import CLIENT, PART, TABLES, write_rows

    table = next(table for table in TABLES if table.name == "grunfeld")
    rows, path = write_rows(table, 3, tmp_path)
    again, _ = write_rows(table, 3, tmp_path)
    other, _ = write_rows(table, 4, tmp_path)
    assert (rows[PART] == again[PART]).all()
    assert (rows[PART] != other[PART]).any()
    assert set(rows.groupby(CLIENT)[PART].value_counts()) == {16, 4}
    assert path.read_text(encoding="utf-8").splitlines()[0].endswith(PART)
