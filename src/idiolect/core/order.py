# SPDX-License-Identifier: Apache-2.0
"""The order in which people expect names: client 2 before client 10."""

from __future__ import annotations

import re
from collections.abc import Sequence


def natural_key(name: str) -> tuple[tuple[str | tuple[int, str], ...], str]:
    """Sorts 'site 2' before 'site 10', and equal readings ('7', '007') by how they are written."""
    parts = re.split(r"([0-9]+)", name)  # texts and digits in turns
    digits = [part.lstrip("0") for part in parts[1::2]]
    key: list[str | tuple[int, str]] = list(parts)
    key[1::2] = [(len(part), part) for part in digits]  # as numbers, of any length
    return tuple(key), name


def natural_order(names: Sequence[str]) -> list[int]:
    """Places of the names in that order."""
    return sorted(range(len(names)), key=lambda place: natural_key(names[place]))
