# SPDX-License-Identifier: Apache-2.0
"""Words that many sentences need."""

from __future__ import annotations

import re

_LISTS = ("--drop", "--features", "--categorical")  # whose columns have commas between them
_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")  # needs no quotes in any shell


def option(flag: str, column: str) -> str:
    """'--time day', or "--time 'admission date'": an option with a column's name as a shell takes it."""
    if flag in _LISTS and ("," in column or '"' in column):  # as in CSV
        column = '"' + column.replace('"', '""') + '"'
    if _PLAIN.fullmatch(column):
        return f"{flag} {column}"
    quoted = column.replace("'", "'\"'\"'")
    return f"{flag} '{quoted}'"


def counted(number: int, thing: str, things: str = "") -> str:
    """'1 row', '2,000 rows'; `things` where the plural is more than an s behind."""
    return f"1 {thing}" if number == 1 else f"{number:,} {things or f'{thing}s'}"


def nth_row(place: int) -> str:
    """'row 6 (counted from 1)' of a table whose rows have places from 0, as people and spreadsheets count."""
    return f"row {place + 1:,} (counted from 1)"


def first_line(error: BaseException, otherwise: str = "") -> str:
    """What an error says, without what it prints below: libraries append whole listings."""
    return (str(error).splitlines() or [otherwise])[0]


def excerpt(text: str, longest: int = 60) -> str:
    """The text, or its beginning where it is longer: a sentence that quotes a file is to be one sentence."""
    return text if len(text) <= longest else f"{text[:longest]} ..."
