# SPDX-License-Identifier: Apache-2.0
"""Numbers for the page's script: 32-bit floats in base 64, so that 10,000 clients stay small."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np


def packed(values: np.ndarray | Sequence[float | None]) -> str:
    """A column as the script unpacks it; what is None or infinite is not-a-number."""
    # little-endian, as the script's typed arrays are wherever browsers run
    with np.errstate(over="ignore"):
        small = np.asarray(values, "<f4")
    # looked at after the cast: a double beyond 32 bits is infinite only then, and figures draw gaps, no infinities
    return base64.b64encode(np.where(np.isfinite(small), small, np.float32(np.nan)).tobytes()).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    """The column again."""
    return np.frombuffer(base64.b64decode(text), "<f4")
