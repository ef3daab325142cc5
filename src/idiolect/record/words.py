# SPDX-License-Identifier: Apache-2.0
"""Words that many sentences need."""

from __future__ import annotations


def counted(number: int, thing: str, things: str = "") -> str:
    """'1 row', '2 rows'; `things` where the plural is more than an s behind."""
    return f"1 {thing}" if number == 1 else f"{number} {things or f'{thing}s'}"


def first_line(error: BaseException, otherwise: str = "") -> str:
    """What an error says, without what it prints below: libraries append whole listings."""
    return (str(error).splitlines() or [otherwise])[0]
