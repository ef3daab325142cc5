# SPDX-License-Identifier: Apache-2.0
"""Clients by name: exactly as written, in natural order, with a warning where two look alike."""

from __future__ import annotations

import decimal

import numpy as np

from idiolect.core.order import natural_key
from idiolect.data.columns import Column
from idiolect.data.kinds import is_number

SHOWN = 3  # pairs that a warning names


def encode_names(column: Column) -> tuple[tuple[str, ...], np.ndarray]:
    """The different values of a column without gaps, as texts in natural order, and each row's number (int32)."""
    texts = [text or "" for text in column.texts]
    names = sorted(set(texts), key=natural_key)
    place = {text: number for number, text in enumerate(names)}
    return tuple(names), np.fromiter((place[text] for text in texts), np.int32, len(texts))


def _exact_number(text: str) -> decimal.Decimal | None:
    """The number that a text writes, with all its digits: long ids that differ in the last one are different."""
    try:
        return decimal.Decimal(text) if is_number(text) else None
    except decimal.InvalidOperation:
        return None


def lookalike_warnings(names: tuple[str, ...], column: str) -> list[str]:
    """A warning that names the values which differ only in blanks, or only in how one number is written."""
    groups: dict[object, list[str]] = {}
    for name in names:
        # blanks in front, behind and doubled are what a reader does not see
        plain = " ".join(name.split())
        number = _exact_number(plain)
        groups.setdefault(plain if number is None else number, []).append(name)
    alike = [group for group in groups.values() if len(group) > 1]
    if not alike:
        return []
    pairs = "; ".join(" and ".join(map(repr, group[:SHOWN])) for group in alike[:SHOWN])
    more = f", and {len(alike) - SHOWN} more such groups" if len(alike) > SHOWN else ""
    return [f"Column {column!r} has values that look alike but stay different: {pairs}{more}; correct slips in them."]
