# SPDX-License-Identifier: Apache-2.0
"""Pages are written for a reader: short paragraphs, wrapped lines, a place in the navigation of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
READMES = sorted([*(ROOT / "papers").glob("*/README.md"), ROOT / "benchmarks" / "README.md"])
WIDTH, LINES = 100, 5
# Words that a reader has to guess at: a paper by our number, a gradient called a slope (those of a mixed model and
# of a line are slopes), a client called somebody, a message that "says so".
UNWANTED = re.compile(
    r"\bpaper 00\d|\bmend(?:s|ed|ing)?\b|\b(?:every|no|some)body\b|\bstrangers?\b|\bexchanges?\b"
    r"|\bis told\b|\bsays? so\b"
    r"|(?<!random )(?<!mixed, )(?<! and )(?<!logarithm's )\bslopes?\b(?! of theory)",
    re.IGNORECASE,
)
CODE = re.compile(r"`[^`]*`")
NOT_PROSE = re.compile(r"^( *)```.*?^\1```$|^\$\$.*?\$\$$|<!--.*?-->", re.S | re.M)
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")


def paragraphs(text):
    """The paragraphs and list items of a page, as lines; no fences, equations, tables and headings."""
    found = [[]]
    for line in NOT_PROSE.sub("\n", text).splitlines():
        if not line.strip() or line.lstrip().startswith(("|", "#", ">")) or ITEM.match(line):
            found.append([])
        if line.strip() and not line.lstrip().startswith(("|", "#")):
            found[-1].append(line)
    return [lines for lines in found if lines]


def faults(text):
    """What a reader would stumble over: the first words of paragraphs that are too long or too wide."""
    return [
        f"{lines[0][:60]}: {len(lines)} lines, {max(map(len, lines))} wide"
        for lines in paragraphs(text)
        if len(lines) > LINES or max(map(len, lines)) > WIDTH
    ]


def unwanted(text):
    """The words of a page's prose and tables, code left out, that the list above names."""
    return [found[0] for found in UNWANTED.finditer(CODE.sub("", " ".join(NOT_PROSE.sub("\n", text).split())))]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=name_of)
def test_paragraphs_are_short_and_lines_are_wrapped(page):
    assert not faults(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=name_of)
def test_words_are_the_fields_own(page):
    text = page.read_text(encoding="utf-8")
    if page.name == "glossary.md":  # its last column names the words that are not used
        text = re.sub(r"\|[^|]*\|$", "|", text, flags=re.M)
    assert not unwanted(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a\n" * 5, 0),
        ("a\n" * 6, 1),
        ("a\n" * 3 + "\n" + "b\n" * 3, 0),
        ("- a\n  b\n  c\n" * 9, 0),
        ("x" * 101, 1),
        ("| " + "x" * 101 + " |", 0),
        ("```text\n" + "x" * 101 + "\n```\n", 0),
        ("1. a\n   ```text\n" + "   x\n" * 9 + "   ```\n", 0),
        ("$$" + "x" * 101 + "$$", 0),
    ],
)
def test_the_rules_can_fail(text, wanted):
    assert len(faults(text)) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("the slope of f, mended", 2),
        ("random slopes", 0),
        ("`slope` and `exchange`", 0),
        ("Paper 003 says\nso", 2),
        ("```text\neverybody\n```", 0),
    ],
)
def test_the_list_of_words_can_fail(text, wanted):
    assert len(unwanted(text)) == wanted


@pytest.mark.parametrize("page", [page for page in PAGES if "docs" in page.parts[-3:-1]], ids=name_of)
def test_every_page_has_its_place_in_the_navigation(page):
    place = page.relative_to(ROOT / "docs").as_posix()
    assert re.search(rf": {re.escape(place)}$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
