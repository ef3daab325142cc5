# SPDX-License-Identifier: Apache-2.0
"""Words of sentences: counts with their nouns, and options that a shell takes as they stand."""

from __future__ import annotations

import shlex

import pytest

from idiolect.cli.data_options import _names
from idiolect.record.words import counted, nth_row, option

NAMES = ("age", "x_1", "admission date", "it's", 'the "one"', "a, b", "Größe", "x%", "$HOME", "a;b", "-v", "v.", "1")


@pytest.mark.parametrize("name", NAMES)
def test_options_are_quoted_for_a_shell(name):
    assert shlex.split(option("--time", name)) == ["--time", name]
    flag, text = shlex.split(option("--drop", name))
    assert _names(flag, text) == [name]


def test_plain_names_stand_without_quotes():
    assert [option("--time", name) for name in ("age", "x_1", "b.c-d")] == ["--time age", "--time x_1", "--time b.c-d"]


def test_counts_have_their_noun_and_thousands():
    assert [counted(number, "row") for number in (0, 1, 2, 1470)] == ["0 rows", "1 row", "2 rows", "1,470 rows"]
    assert counted(1, "client has", "clients have") == "1 client has"
    assert nth_row(0) == "row 1 (counted from 1)"
