# SPDX-License-Identifier: Apache-2.0
"""Slips in Python: one sentence with the way out, never an error of ours."""

from __future__ import annotations

import numpy as np
import pytest

import idiolect as il


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    rows = {"site": np.repeat(["a", "b"], 20), "age": draw.normal(size=40), "y": draw.normal(size=40)}
    return il.read_table(rows, client="site", target="y")


@pytest.mark.parametrize("rows", ["clinics.csv", {"site": ["a"], "y": [1.0]}])
def test_rows_that_were_not_read_are_sent_to_read_table(rows):
    for call in (il.compare, il.advise, lambda one: il.train("fedavg", one), lambda one: il.sweep("ditto", one)):
        with pytest.raises(il.RequestError, match="read_table"):
            call(rows)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rounds": "ten"}, "rounds must be a whole number, got 'ten'"),
        ({"rounds": 2.5}, "rounds must be a whole number"),
        ({"step_sizes": ["a"]}, "step_sizes must be a number, got 'a'"),
        ({"seeds": "two"}, "seeds must be a whole number"),
        ({"l2": "much"}, "l2 must be a number"),
    ],
)
def test_numbers_must_be_numbers(table, given, words):
    with pytest.raises(il.RequestError, match=words):
        il.train("ditto", table, **given)


def test_a_sweep_needs_values(table):
    with pytest.raises(il.RequestError, match="at least one value"):
        il.sweep("ditto", table, penalty=[], rounds=2)


def test_settings_that_tables_get_are_said(table):
    run = il.train("ditto", table, rounds=1)
    assert any("bias_penalty = 0.1" in note for note in run.notes)
    assert not any("bias_penalty" in note for note in il.train("ditto", table, rounds=1, bias_penalty=1.0).notes)
