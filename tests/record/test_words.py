# SPDX-License-Identifier: Apache-2.0
"""Words of sentences: options that a shell takes as they stand."""

from __future__ import annotations

import shlex

import pytest

from idiolect.cli.data_options import _names
from idiolect.record.words import option

NAMES = ("age", "x_1", "admission date", "it's", 'the "one"', "a, b", "Größe", "x%", "$HOME", "a;b", "-v", "v.", "1")


@pytest.mark.parametrize("name", NAMES)
def test_options_are_quoted_for_a_shell(name):
    assert shlex.split(option("--time", name)) == ["--time", name]
    flag, text = shlex.split(option("--drop", name))
    assert _names(flag, text) == [name]


def test_plain_names_stand_without_quotes():
    assert [option("--time", name) for name in ("age", "x_1", "b.c-d")] == ["--time age", "--time x_1", "--time b.c-d"]
