# SPDX-License-Identifier: Apache-2.0
"""Text that a terminal only shows: names out of data and specs cannot move the cursor, hide letters or add lines."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

# Control codes (C0, C1), line separators, direction marks and overrides, letters without width, halves of letters that
# stand for bytes of a file name. Not the joiners (200c, 200d) that Persian and Hindi names are written with.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_TEXT = re.compile(f"[{_UNSEEN}]")
_IN_LINE = re.compile(f"[{_UNSEEN}\t\n]")


def visible(text: str) -> str:
    """Text of several lines; what would not be seen in it is written as in a Python string, such as \\x1b."""
    return _IN_TEXT.sub(_written, text)


def one_line(text: str) -> str:
    """A name or a sentence; a line break or tab in it is written out too."""
    return _IN_LINE.sub(_written, text)


def plainly(record: Any) -> Any:
    """A record with every text in it in one line: dataclasses, dicts, lists and tuples, all the way down."""
    if isinstance(record, str):
        return one_line(record)
    if isinstance(record, dict):
        return {plainly(key): plainly(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return (list if isinstance(record, list) else tuple)(map(plainly, record))
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        own = {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.init}
        return dataclasses.replace(record, **plainly(own))
    return record


def _written(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
