# SPDX-License-Identifier: Apache-2.0
"""Batches by coins: each row of a client is in a batch by a coin of its own, as the accountant of rows assumes."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.core import tree
from idiolect.core.data import Array, ClientData
from idiolect.core.keys import Key

LONGER = 1e-30  # chance that a batch would be longer than what is kept for it; a key is guessed more easily


class Coins(NamedTuple):
    """The rows of every step: `heads` says which of them are in the batch."""

    rows: jax.Array  # (steps, width)
    heads: jax.Array  # (steps, width)


class SampledBatch(NamedTuple):
    """A batch by coins; it reads as a `Batch`.

    Its number of rows is the expected one, as far as anybody may know: how many came is secret, and no mean is taken
    over them.
    """

    inputs: Array
    targets: Array
    mask: Array
    weights: Array | None
    expected: Array

    def rows(self) -> Array:
        """The expected number of rows."""
        return self.expected

    @property
    def passes(self) -> int:
        """No whole pass."""
        return 0


def flip_coins(key: Key, steps: int, batch_size: int, data: ClientData) -> Coins:
    """`steps` batches of `batch_size` expected rows; all rows where there are no more than that."""
    keys = jax.vmap(lambda step: jax.random.fold_in(key, step))(jnp.arange(steps, dtype=jnp.int32))
    # entry i depends on (key, i) only, so padding does not move it
    bits = jax.vmap(lambda own: jax.random.bits(own, (data.capacity,), jnp.uint32))(keys)
    chance = batch_size / jnp.maximum(data.count, 1).astype(jnp.float32)
    below = (jnp.minimum(chance, 0.5) * 2.0**32).astype(jnp.uint32)
    # above one half 1 - p is compared: 2^32 p would not fit into 32 bits where p is nearly 1
    above = (jnp.clip(1 - chance, 0, 0.5) * 2.0**32).astype(jnp.uint32)
    heads = jnp.where(chance <= 0.5, bits < below, bits >= above)
    heads = heads & (jnp.arange(data.capacity, dtype=jnp.int32) < data.count)
    # those with heads first, so that a batch needs no place for all rows of the client
    rows = jnp.argsort(~heads, axis=1, stable=True)[:, : width_of(batch_size)].astype(jnp.int32)
    return Coins(rows, jnp.take_along_axis(heads, rows, axis=1))


def take_sampled(data: ClientData, coins: Coins, t: ArrayLike, batch_size: int) -> SampledBatch:
    """Batch `t`."""
    inputs, targets, weights = tree.take(data.parts, coins.rows[t])
    return SampledBatch(inputs, targets, coins.heads[t], weights, jnp.minimum(data.count, batch_size))


def width_of(batch_size: int) -> int:
    """A length that a batch of so many expected rows exceeds with a chance below `LONGER`, however many rows there are.

    By Chernoff's bound of the Poisson distribution, P(X >= k) <= exp(-b) (e b / k)^k for k > b, which the number of
    heads of any number of coins with the same mean keeps, too.
    """
    width = batch_size + 1
    while width * (math.log(width / batch_size) - 1) + batch_size < -math.log(LONGER):
        width += 1
    return width
