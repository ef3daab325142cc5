# SPDX-License-Identifier: Apache-2.0
"""The page of errata is whole: every number that is cited has its entry there, and every test it names exists."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.algorithms.errata import ERRATA, PAGE, anchor

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"\bE00\d-\d+\b")
ENTRY = re.compile(r"^### (E00\d-\d+)\n(.*?)(?=^#|\Z)", re.S | re.M)
TEST = re.compile(r"^- Test: (?:\(\w+\) )?`(tests/[\w/]+\.py)`,\n  `(test_\w+)`$", re.M)
NONE = "- Test: a slip of wording; nothing to test."


@pytest.fixture(scope="module")
def entries():
    return dict(ENTRY.findall((ROOT / PAGE).read_text(encoding="utf-8")))


def cited():
    """Every number in a text file of the project, results of runs aside."""
    folders = [ROOT / name for name in ("src", "papers", "docs", "tests", "examples")]
    files = [path for folder in folders for path in folder.rglob("*.*") if path.suffix in (".py", ".md", ".toml")]
    texts = (path.read_text(encoding="utf-8") for path in [*files, *ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.*")])
    return {number for text in texts for number in NUMBER.findall(text)}


def test_every_number_that_is_cited_has_an_entry(entries):
    assert cited() <= set(entries)
    assert len(entries) == len(ERRATA)
    assert set(entries) == set(ERRATA)


@pytest.mark.parametrize("number", ERRATA)
def test_an_entry_has_its_parts_and_tests_that_exist(entries, number):
    text = entries[number]
    assert re.match(r"\n\*\*(?:[ABC]|B and C|C, where not marked B)\. ", text)  # how bad, and where
    if number != "E002-12":  # a list of slips
        assert re.search(r"^- Printed", text, re.M)
        assert re.search(r"^- Correct", text, re.M)
        assert re.search(r"^- Evidence", text, re.M)
    tests = TEST.findall(text)
    assert len(tests) == text.count("- Test: ") - text.count(NONE)
    assert tests or NONE in text
    for path, name in tests:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.M), (path, name)


@pytest.mark.parametrize("name", [name for name, method in ALGORITHMS.items() if method.errata])
def test_a_methods_page_leads_to_its_errata(name):
    method = ALGORITHMS[name]
    assert len(set(method.errata)) == len(method.errata)
    assert set(method.errata) <= set(ERRATA)
    page = ROOT / "docs" / "algorithms" / f"{method.algorithm.__module__.rpartition('.')[2]}.md"
    assert "](../errata.md#" in page.read_text(encoding="utf-8")


def test_the_site_leads_numbers_to_their_entries(monkeypatch):
    for name in ("latex2mathml.converter", "mkdocs.exceptions", "mkdocs.structure.files"):  # only `make docs` has them
        monkeypatch.setitem(sys.modules, name, MagicMock())
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    text = "E003-8, `E003-8` and [E003-8](here)\n\n### E003-8\n\n```text\nE003-8\n```\n"
    found = hooks.with_errata(text, "../errata.md")
    assert found == text.replace("E003-8,", "[E003-8](../errata.md#e003-8),", 1)
    assert anchor("E003-8") == "docs/errata.md#e003-8"
