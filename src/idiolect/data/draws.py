# SPDX-License-Identifier: Apache-2.0
"""Host randomness: generators made from coordinates, so that no draw depends on the one before it."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *coordinates: str | int) -> np.random.Generator:
    """A Philox generator keyed by the seed and the coordinates (purpose, client name, ...)."""
    return np.random.Generator(np.random.Philox(key=rank(seed, *coordinates)))


def rank(seed: int, *coordinates: str | int) -> int:
    """A number that orders names at random but the same way whatever other names there are."""
    # repr keeps ("a", "bc") and ("ab", "c") apart; a hash spreads neighbouring seeds over the whole key space
    digest = hashlib.sha256(repr((int(seed), *coordinates)).encode()).digest()
    return int.from_bytes(digest[:16], "little")
