# SPDX-License-Identifier: Apache-2.0
"""Dropout, in training only."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def dropout(key: Array | None, rate: float, values: Array) -> Array:
    """Zero with probability `rate`, else value / (1 - rate): the mean is kept. No key (None): nothing is dropped."""
    if key is None or rate == 0:
        return values
    kept = jax.random.bernoulli(key, 1 - rate, values.shape)
    return jnp.where(kept, values / (1 - rate), jnp.zeros_like(values))
