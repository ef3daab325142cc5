# SPDX-License-Identifier: Apache-2.0
"""What a terminal would obey is written out, and what people write names with is left alone."""

from __future__ import annotations

import dataclasses
import sys
import unicodedata

import pytest

from idiolect.visible import one_line, plainly, visible

OBEYED = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def test_no_control_code_and_no_direction_passes():
    letters = [chr(code) for code in range(sys.maxunicode + 1)]
    bad = [
        letter
        for letter in letters
        if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(letter) in OBEYED
    ]
    assert len(bad) > 2000
    for letter in [*bad, "\u200e", "\u200f", "\u061c"]:
        shown = one_line(letter)
        assert shown.isascii()
        assert shown.isprintable()
        assert letter in "\t\n" or visible(letter) == shown


@pytest.mark.parametrize("name", ["Zoë", "北京", "نمی\u200cشود", "क्\u200dष", "e\u0301", "a\u00a0b", "👩\u200d⚕️", ""])
def test_names_stay_as_they_are_written(name):
    assert one_line(name) == visible(name) == name


def test_lines_of_a_text_stay_and_those_of_a_name_are_written_out():
    assert visible("a\n\tb\rc\x1b[2J") == "a\n\tb\\rc\\x1b[2J"
    assert one_line("a\n\tb\u202e") == "a\\n\\tb\\u202e"


def test_records_are_cleaned_all_the_way_down():
    @dataclasses.dataclass(frozen=True)
    class Row:
        name: str
        parts: tuple
        more: dict

    row = Row("a\nb", ("\x1b", 1.5), {"k\x07": ["\u202e", None]})
    assert plainly(row) == Row("a\\nb", ("\\x1b", 1.5), {"k\\x07": ["\\u202e", None]})
