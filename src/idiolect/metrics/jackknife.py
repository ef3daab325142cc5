# SPDX-License-Identifier: Apache-2.0
"""Scores that are no mean over rows (AUC, R2): observations that behave like rows, by leaving rows out."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from idiolect.core.data import Array

BLOCKS = 50  # a client with more rows (or groups) leaves out a block of them at a time


def blocks_of(counts: np.ndarray, rows: int, groups: ArrayLike | None = None) -> np.ndarray:
    """(clients, rows): the block of each row, -1 for padding; rows of one group are in one block.

    A client's rows, or its groups in order of their first row, are dealt to its blocks in turn.
    """
    real = np.arange(rows) < np.asarray(counts)[:, None]
    if groups is None:
        place = np.broadcast_to(np.arange(rows), real.shape)
    else:
        place = np.stack([_numbered(one, int(count)) for one, count in zip(np.asarray(groups), counts)])
    return np.where(real, place % BLOCKS, -1)


def _numbered(groups: np.ndarray, count: int) -> np.ndarray:
    """Each row's group as a number from 0, in order of first appearance; padding is 0."""
    _, first, inverse = np.unique(groups[:count], return_index=True, return_inverse=True)
    rank = np.empty(len(first), int)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.concatenate([rank[inverse.reshape(-1)], np.zeros(len(groups) - count, int)]).astype(int)


def pseudo_values(
    score: Callable[[Array, Array, Array], Array], outputs: Array, targets: Array, blocks: Array, most: int
) -> Array:
    """Tukey's pseudo-values of ONE client's score: G s - (G - 1) s without block g, for g = 0, .. `most` - 1.

    Not-a-number where the score does not exist without the block (the only positive row), and for blocks that are not
    there. The difference of two models' pseudo-values is the pseudo-value of the difference. Pure JAX: `vmap` it.
    """
    whole = score(outputs, targets, blocks >= 0)
    there = jnp.arange(most, dtype=jnp.int32) <= jnp.max(blocks).astype(jnp.int32)
    number = (jnp.max(blocks) + 1).astype(whole.dtype)

    def without(block: Array) -> Array:
        return score(outputs, targets, (blocks >= 0) & (blocks != block))

    # one block after another: side by side, a ranking score would hold rows times blocks of them
    left = jax.lax.map(without, jnp.arange(most, dtype=jnp.int32))
    return jnp.where(there, number * whole - (number - 1) * left, jnp.nan)
