# SPDX-License-Identifier: Apache-2.0
"""What every LSTM recurrence shares: its gates, their gradients, and how many steps a turn of its loop makes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

UNROLL = 8  # steps per turn of the loop: the dispatch of a turn costs as much as a small product

Gates = tuple[Array, Array, Array, Array]  # i, f, g, o


def gates_of(summed: Array) -> Gates:
    """s(i), s(f), tanh(g), s(o) from z_t, which has i, f, g, o side by side."""
    i, f, g, o = jnp.split(summed, 4, axis=-1)
    return jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)


def gate_gradients(gates: Gates, cell: Array, earlier: Array) -> tuple[Array, Array]:
    """What a reverse step multiplies by: d z_t per gradient on (c, c, c, h), side by side, and d c_t per gradient on h.

    For all steps at once, before the reverse loop, so that a step there has one product. With one for each of i, f, g,
    XLA on a CPU makes each a fusion that follows the gradient on c through all steps of an unrolled turn again.
    """
    i, f, g, o = gates
    squashed = jnp.tanh(cell)
    parts = (g * i * (1 - i), earlier * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o))
    return jnp.concatenate(parts, axis=-1), o * (1 - squashed * squashed)
