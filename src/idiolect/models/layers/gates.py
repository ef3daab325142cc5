# SPDX-License-Identifier: Apache-2.0
"""What every LSTM recurrence shares: its gates, and how many steps a turn of its loop makes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

UNROLL = 8  # steps per turn of the loop: the dispatch of a turn costs as much as a small product


def gates_of(summed: Any) -> tuple[Any, Any, Any, Any]:
    """s(i), s(f), tanh(g), s(o) from z_t, which has i, f, g, o side by side."""
    i, f, g, o = jnp.split(summed, 4, axis=-1)
    return jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
