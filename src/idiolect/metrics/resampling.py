# SPDX-License-Identifier: Apache-2.0
"""An interval for the gain in *any* score of one client by resampling its rows, AUC included."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core.data import Array
from idiolect.metrics.intervals import MINIMUM_ROWS

_DRAWS_AT_ONCE = 64  # resamples scored side by side: memory is this many copies of one client's outputs


class GainInterval(NamedTuple):
    """A gain (positive is better) with its interval; scalars, or (clients,) after `vmap`."""

    value: Array
    low: Array
    high: Array


def gain_interval(
    key: Array,
    score: Callable[[Array, Array, Array], Array],
    higher_is_better: bool,
    candidate: Array,
    reference: Array,
    targets: Array,
    mask: Array,
    resamples: int = 1000,
    level: float = 0.95,
) -> GainInterval:
    """Percentile bootstrap of score(candidate) - score(reference) over draws of ONE client's rows.

    `candidate` and `reference` are outputs (rows, ...), scored on the same draws. Draws on which the score
    is undefined (one class only) are left out. Under `MINIMUM_ROWS` rows the interval is not-a-number.
    Pure JAX: `vmap` it over key, outputs, targets and mask.
    """
    real = mask.astype(bool)
    count = jnp.sum(real, dtype=jnp.int32)
    order = jnp.argsort(~real, stable=True)  # real rows first, so that a draw is a place below `count`
    inside = jnp.arange(order.size, dtype=jnp.int32) < count
    sign = 1 if higher_is_better else -1

    def gain(rows: Array, counted: Array) -> Array:
        ours, theirs, wanted = (jnp.take(values, rows, axis=0) for values in (candidate, reference, targets))
        ours, theirs = score(ours, wanted, counted), score(theirs, wanted, counted)
        return jnp.where(ours == theirs, 0, sign * (ours - theirs))  # two infinite losses are the same

    def gain_of_draw(one: Array) -> Array:
        # Entry i depends on (key, i) only and entries past `count` are masked: padding changes nothing.
        bits = jax.random.bits(one, order.shape, jnp.uint32)
        places = (bits % jnp.maximum(count, 1).astype(jnp.uint32)).astype(jnp.int32)
        return gain(order[places], inside)

    drawn = jax.lax.map(gain_of_draw, jax.random.split(key, resamples), batch_size=_DRAWS_AT_ONCE)
    tails = jnp.asarray([(1 - level) / 2, (1 + level) / 2], drawn.dtype)
    low, high = jnp.where(count >= MINIMUM_ROWS, jnp.nanquantile(drawn, tails), jnp.nan)
    return GainInterval(gain(order, inside), low, high)
