# SPDX-License-Identifier: Apache-2.0
"""The order in which people expect names: client 2 before client 10."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"(\d+)")


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """To sort by: runs of digits compare as numbers, everything else as text without case."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part.casefold()) for part in _NUMBER.split(name) if part]


def natural_order(names: Sequence[str]) -> list[int]:
    """Places of the names in that order."""
    return sorted(range(len(names)), key=lambda place: natural_key(names[place]))
