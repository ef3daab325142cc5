# SPDX-License-Identifier: Apache-2.0
"""Differential privacy of rows: gradients of single rows are clipped and added up with noise (Abadi et al. 2016).

It stands around an algorithm's objective and around its batches. Whatever the algorithm makes of its gradients keeps
their privacy; what never leaves the client is computed with `unprotected(objective)`. Each row is in a batch by a coin
of its own, as the accountant of rows assumes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.core import Algorithm, Models, Objective, settings, tree, unprotected
from idiolect.core.keys import Secret, secret_words
from idiolect.core.types import Array, Batch, ClientData, Key, Params, Tally, Tree
from idiolect.protection.choices import RowPrivacy
from idiolect.protection.clipping import add_noise, clip, noise_key
from idiolect.protection.subclass import Before, put_before, values_of

Owner = TypeVar("Owner", bound=Algorithm)
Gradient = Callable[[Key, Batch], tuple[Any, Tally]]
LONGER = 1e-30  # chance that a batch would be longer than what is kept for it; a key is guessed more easily
HELD = 2**20  # numbers of single rows' gradients that a client holds at once: 4 MB in float32


def hide_rows(algorithm: Owner, privacy: RowPrivacy) -> Owner:
    """The algorithm with noisy gradients on batches by coins; only for one that was not refused."""
    noisy = put_before(algorithm.objective, NoisyGradients, row_privacy=privacy)
    return put_before(dataclasses.replace(algorithm, objective=noisy), HidesRows)


def with_private_rows(algorithm: Owner) -> Owner:
    """The algorithm with noise and coins that follow from no seed, where it has some: for a site of a deployment."""
    if not isinstance(algorithm.objective, NoisyGradients):
        return algorithm
    secret = Secret(jnp.asarray(secret_words()))
    objective = dataclasses.replace(cast(Any, algorithm.objective), row_secret=secret)
    return dataclasses.replace(algorithm, objective=objective)


class HidesRows(Before):  # type: ignore[misc]
    """Batches by coins, and models of the client itself without noise."""

    def draw_batches(self, key: Key, data: ClientData) -> Any:
        """Coins for every row and step; orders of an epoch stay, since each row is in one of its batches anyway."""
        if self.batch_size == 0 or self.epochs:
            return super().draw_batches(key, data)
        # who is in a batch must be as secret as the noise: it is what makes epsilon smaller
        secret = getattr(self.objective, "row_secret", None)
        return flip_coins(noise_key(secret, key), self.local_steps, self.batch_size, data)

    def batch(self, t: Array, drawn: Any, data: ClientData) -> Any:
        """The rows of step `t`."""
        if self.batch_size == 0 or self.epochs:
            return super().batch(t, drawn, data)
        return take_sampled(data, drawn, t, self.batch_size)

    def models(self, key: Key, sent: Tree, client: Tree, data: ClientData) -> tuple[Models, Tally]:
        """The algorithm's, from exact gradients: what a client predicts with stays on it."""
        exact = dataclasses.replace(cast(Any, self), objective=unprotected(self.objective))
        return super(HidesRows, exact).models(key, sent, client, data)


@settings
class NoisyGradients(Before):  # type: ignore[misc]
    """Every gradient is the mean of the rows' own, each of them clipped, and noise."""

    row_privacy: RowPrivacy = dataclasses.field(default_factory=RowPrivacy)
    row_secret: Secret | None = None  # None: noise and coins follow from the run's seed, as a simulation's may

    @property
    def unprotected(self) -> Objective:
        """The objective without clip and noise."""
        values = values_of(self)
        del values["row_privacy"], values["row_secret"]
        made: Objective = type(self).__bases__[1](**values)  # the class that this one stands before
        return made

    def gradient_shared(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad_w f_m."""
        own = self.unprotected
        return self._hide(key, batch, lambda at, rows: own.gradient_shared(at, shared, personal, rows))

    def gradient_personal(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad_beta f_m."""
        own = self.unprotected
        return self._hide(key, batch, lambda at, rows: own.gradient_personal(at, shared, personal, rows))

    def gradients(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Tally]:
        """Both, clipped together: they are one release."""
        own = self.unprotected
        return self._hide(key, batch, lambda at, rows: own.gradients(at, shared, personal, rows))

    def _hide(self, key: Key, batch: Batch, gradient: Gradient) -> tuple[Any, Tally]:
        """The gradient of a batch with each row clipped and noise, at the cost of the plain one."""
        privacy = self.row_privacy
        total, rowless = clipped_sum(key, batch, gradient, privacy.clip)
        # a number that no row decides: the size of the client, of an epoch's batch, or what coins give in the mean
        rows = jnp.maximum(jnp.asarray(batch.rows()), 1).astype(jnp.result_type(float))
        noisy = add_noise(noise_key(self.row_secret, key), privacy.noise_multiplier * privacy.clip, total)
        return tree.add(rowless, tree.scale(1 / rows, noisy)), gradient(key, batch)[1]


def clipped_sum(key: Key, batch: Batch, gradient: Gradient, bound: Any) -> tuple[Any, Any]:
    """The sum of the clipped gradients of all rows, and the gradient of no row at all.

    What no row decides, a ridge say, is taken out of each row's gradient before the clip: it needs none.
    """
    inputs, targets = (jnp.zeros_like(leaf[:1]) for leaf in (batch.inputs, batch.targets))
    rowless = gradient(key, Batch(inputs, targets, jnp.zeros(1, bool)))[0]

    def of_row(number: jax.Array, inputs: Array, target: Array, real: Array) -> Any:
        # a key for each row: dropout is drawn row by row
        own, _ = gradient(jax.random.fold_in(key, number), Batch(inputs[None], target[None], jnp.ones(1, bool)))
        moved = clip(tree.subtract(own, rowless), bound)
        # a row whose gradient overflows adds nothing: no noise would hide what is not a number
        there = real & jnp.isfinite(tree.squared_norm(moved))
        return jax.tree.map(lambda leaf: jnp.where(there, leaf, 0), moved)

    def of_rows(rows: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.vmap(of_row)(*rows))

    count = batch.targets.shape[0]
    real = jnp.ones(count, bool) if batch.mask is None else jnp.asarray(batch.mask, bool)
    rows = (jnp.arange(count, dtype=jnp.int32), jnp.asarray(batch.inputs), jnp.asarray(batch.targets), real)
    together = max(1, HELD // max(1, sum(leaf.size for leaf in jax.tree.leaves(rowless))))
    return (of_rows(rows) if count <= together else _in_parts(of_rows, rows, together, rowless)), rowless


def _in_parts(of_rows: Callable[[Any], Any], rows: Any, together: int, like: Any) -> Any:
    """The sum over parts of `together` rows, one after another."""
    parts = math.ceil(len(rows[0]) / together)

    def cut(leaf: jax.Array) -> jax.Array:
        missing = parts * together - len(leaf)
        padded = jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1))  # padding is marked as no row
        return padded.reshape(parts, together, *leaf.shape[1:])

    def more(total: Any, part: Any) -> tuple[Any, None]:
        return tree.add(total, of_rows(part)), None

    return jax.lax.scan(more, tree.zeros(like), jax.tree.map(cut, rows))[0]


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
