# SPDX-License-Identifier: Apache-2.0
"""Means over the rows of one padded client."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from idiolect.core.data import Array


def floating(outputs: Array) -> jnp.dtype:
    """Float32, or float64 where it is on: a mean over bfloat16 rows would lose digits."""
    return jnp.dtype(jnp.float64 if jnp.result_type(outputs) == jnp.float64 else jnp.float32)


def worst_if_nan(losses: Array) -> Array:
    """A model that answers not-a-number has an infinite loss."""
    return jnp.where(jnp.isnan(losses), jnp.inf, losses)


def mean_over_rows(values: Array, mask: Array, weights: Array | None = None) -> Array:
    """Mean over the real rows, weighted where there are weights; not-a-number when no row counts."""
    if weights is None:
        return mean_where(values, mask.astype(bool))
    counted = row_weights(mask, weights, values.dtype)
    total = jnp.sum(jnp.where(counted > 0, values * counted, 0))  # a row of weight 0 may even have an infinite loss
    return divided(total, jnp.sum(counted))


def row_weights(mask: Array, weights: Array, dtype: Any) -> Array:
    """What every row counts: its weight, and nothing where it is padding."""
    return jnp.where(mask.astype(bool), weights.astype(dtype), 0)


def divided(total: Array, weight: Array) -> Array:
    """The quotient; not-a-number where nothing counts."""
    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), jnp.nan)


def mean_where(values: Array, counted: Array) -> Array:
    """Mean of the counted values; not-a-number when there is none."""
    number = jnp.sum(counted, dtype=jnp.int32).astype(values.dtype)
    # padding may hold anything, even NaN: chosen away, since 0 times it would still be NaN
    total = jnp.sum(jnp.where(counted, values, 0))
    return jnp.where(number > 0, total / jnp.maximum(number, 1), jnp.nan)
