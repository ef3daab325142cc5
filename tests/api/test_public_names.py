# SPDX-License-Identifier: Apache-2.0
"""The public names are those that docs/python.md lists, they exist, and naming them costs nothing."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import idiolect as il

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def listed():
    text = PAGE.read_text(encoding="utf-8").partition("## Every public name")[2]
    return re.findall(r"^\| `(\w+)` \|", text, re.M)


def test_the_page_lists_exactly_the_public_names():
    names = listed()
    assert sorted(names) == sorted(il.__all__)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", il.__all__)
def test_every_public_name_exists_and_says_what_it_is(name):
    found = getattr(il, name)
    assert isinstance(found, dict) or inspect.getdoc(found)


def test_members_of_results_are_those_of_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for name in ("Answer", "SplitsAnswer", "TrainedRun", "Advice"):
        line = re.search(rf"^\| `{name}` \|(.*)\|$", text, re.M)[1]
        said = set(re.findall(r"`(\w+)`", line.partition(":")[2]))
        own = {member for member in dir(getattr(il, name)) if not member.startswith("_")}
        assert own - said <= {"folder", "score_name"}, name
        assert said <= own, name


def test_importing_the_package_imports_nothing_heavy():
    heavy = ("jax", "numpy", "pyarrow", "pandas", "sklearn")
    program = f"import sys, idiolect\nsys.exit(any(name in sys.modules for name in {heavy}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="comparee"):
        _ = il.comparee
