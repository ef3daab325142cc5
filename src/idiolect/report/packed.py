# SPDX-License-Identifier: Apache-2.0
"""Numbers for the page's script: 32-bit floats in base 64, each column once, so that 10,000 clients stay small."""

from __future__ import annotations

import base64

import numpy as np


def packed(values: np.ndarray) -> str:
    """A column as the script unpacks it; what is absent or infinite is not-a-number."""
    with np.errstate(over="ignore"):
        small = np.asarray(values, "<f4")
    return base64.b64encode(np.where(np.isfinite(small), small, np.float32(np.nan)).tobytes()).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    """The column again."""
    return np.frombuffer(base64.b64decode(text), "<f4")


class Pool:
    """Columns by their number; one that is there already is not kept twice."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, values: np.ndarray) -> int | None:
        """The number of a column; None where nothing in it is known."""
        if not np.isfinite(values).any():
            return None
        text = packed(values)
        if text not in self._places:
            self._places[text] = len(self.columns)
            self.columns.append(text)
        return self._places[text]
