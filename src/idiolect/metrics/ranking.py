# SPDX-License-Identifier: Apache-2.0
"""How well an order of weighted rows tells the positive ones from the others."""

from __future__ import annotations

import jax.numpy as jnp

from idiolect.core.data import Array
from idiolect.metrics.masked import divided


def weighted_rank_area(ranks: Array, positive: Array, weights: Array) -> Array:
    """sum of w_i w_j over pairs that are in order, ties by half, over that of all pairs; rows of weight 0 are none."""
    # A row without an answer loses every comparison it is in.
    ranks = jnp.where(jnp.isnan(ranks), jnp.where(positive, -jnp.inf, jnp.inf), ranks)
    ranks = jnp.where(ranks == 0, 0, ranks)  # -0.0 and 0.0 are one value, hence one rank
    wins, losses = jnp.where(positive, weights, 0), jnp.where(positive, 0, weights)
    order = jnp.argsort(ranks)
    # of the first k ranks the weight of the negatives, k = 0, 1, ...
    passed = jnp.concatenate([jnp.zeros(1, weights.dtype), jnp.cumsum(losses[order])])
    below, up_to = (passed[jnp.searchsorted(ranks[order], ranks, side=side)] for side in ("left", "right"))
    return divided(jnp.sum(wins * (below + up_to)), 2 * jnp.sum(wins) * jnp.sum(losses))
