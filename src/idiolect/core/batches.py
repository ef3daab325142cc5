# SPDX-License-Identifier: Apache-2.0
"""Which rows a local step uses, drawn once per round.

`batch_size = 0` means all rows (exact gradients). Otherwise `epochs > 0` walks through a fresh order of the rows per
epoch, and `epochs = 0` draws every batch with replacement. No draw depends on the padded length. A stream (methods that
have one say so) takes rows in their own order, from round to round, and starts again after the last.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm, Client, Sent, Server, Upload, Working
from idiolect.core.checks import setting
from idiolect.core.data import Array, Batch, ClientData
from idiolect.core.keys import Key
from idiolect.core.settings import settings

# numbers in the inputs that a client reads at once; with four times as many, copying them costs more than it saves
FEW_NUMBERS = 1024


def batches_per_epoch(rows: Array, batch_size: int) -> Array:
    """How many batches one pass over `rows` rows takes; works on traced counts too."""
    return 1 if batch_size == 0 else -(-rows // batch_size)


def draw_with_replacement(key: Key, steps: int, batch_size: int, data: ClientData) -> jax.Array:
    """(steps, batch_size) row numbers, independent and uniform over the client's rows."""
    bits = jax.random.bits(key, (steps, batch_size), jnp.uint32)
    # the remainder favours low rows by at most count / 2^32, far under float32's rounding
    return (bits % jnp.maximum(data.count, 1).astype(jnp.uint32)).astype(jnp.int32)


def draw_orders(key: Key, epochs: int, data: ClientData) -> jax.Array:
    """(epochs, capacity) row numbers: each line a uniform order of the client's rows, padding last."""
    keys = jax.vmap(lambda epoch: jax.random.fold_in(key, epoch))(jnp.arange(epochs, dtype=jnp.int32))
    # one uniform number per row, sorted: entry i depends on (key, i) only, so padding does not move it
    places = jax.vmap(lambda k: jax.random.uniform(k, (data.capacity,), jnp.float32))(keys)
    places = jnp.where(jnp.arange(data.capacity, dtype=jnp.int32) < data.count, places, jnp.inf)
    return jnp.argsort(places, axis=1).astype(jnp.int32)


def take_rows(data: ClientData, rows: jax.Array) -> Batch:
    """The named rows as a batch, every one of them real."""
    # row numbers are never negative; to ask whether they are would double the work of drawing them
    inputs, targets, weights = jax.tree.map(
        lambda leaf: jnp.asarray(leaf).at[rows].get(wrap_negative_indices=False), data.parts
    )
    return Batch(inputs, targets, None, weights)


def take_drawn(data: ClientData, drawn: jax.Array, t: ArrayLike) -> Batch:
    """The rows `drawn[t]`. Where few were drawn all are read, which compilers move out of the loop over t."""
    if drawn.size * math.prod(data.inputs.shape[1:]) > FEW_NUMBERS:
        return take_rows(data, drawn[t])
    together = take_rows(data, drawn)
    return jax.tree.map(lambda leaf: leaf[t], together)


def take_in_turn(data: ClientData, place: jax.Array, batch_size: int) -> Batch:
    """`batch_size` rows from `place` on, in the order they came; after the last the first."""
    places = place + jnp.arange(batch_size, dtype=jnp.int32)
    return take_rows(data, places % jnp.maximum(data.count, 1).astype(jnp.int32))


def take_from_order(data: ClientData, orders: Array, t: ArrayLike, batch_size: int) -> Batch:
    """Batch `t` of the walk through `orders`; the last batch of an epoch may be short and is masked."""
    per_epoch = batches_per_epoch(data.count, batch_size)
    epoch, place = t // per_epoch, (t % per_epoch) * batch_size
    places = place + jnp.arange(batch_size, dtype=jnp.int32)
    epoch = jnp.minimum(epoch, orders.shape[0] - 1)  # past its own steps a client reads, and ignores, its last order
    rows = orders[epoch, jnp.minimum(places, data.capacity - 1)]
    inputs, targets, weights = tree.take(data.parts, rows)
    return Batch(inputs, targets, places < data.count, weights)


@settings
class Batched(Algorithm[Server, Client, Sent, Working, Upload]):
    """An algorithm whose clients take a fixed number of steps, or pass over their rows, batch by batch; abstract."""

    local_steps: int = setting(default=1, at_least=1, doc="local steps per round (K) when epochs is 0")
    epochs: int = setting(default=0, at_least=0, doc="passes over the client's rows per round; 0: use local_steps")
    batch_size: int = setting(default=0, at_least=0, doc="rows per local step; 0: all rows, exact gradients")

    def steps(self, sent: Sent, rows: Array) -> Array:
        """The batches of all epochs, or `local_steps`."""
        return self.epochs * batches_per_epoch(rows, self.batch_size) if self.epochs else self.local_steps

    def draw_batches(self, key: Key, data: ClientData) -> Array:
        """The rows of a whole round, for a Working state; empty when every step uses all rows."""
        # drawn at once for all steps: in programs of small clients, a draw per step took most of the time
        if self.batch_size == 0:
            return ()
        if self.epochs:
            return draw_orders(key, self.epochs, data)
        return draw_with_replacement(key, self.local_steps, self.batch_size, data)

    def batch(self, t: Array, drawn: Array, data: ClientData) -> Batch:
        """The rows of step `t`, from what `draw_batches` drew."""
        if self.batch_size == 0:
            return data.batch()
        if self.epochs:
            return take_from_order(data, drawn, t, self.batch_size)
        return take_drawn(data, drawn, t)
