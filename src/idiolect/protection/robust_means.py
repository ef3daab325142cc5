# SPDX-License-Identifier: Apache-2.0
"""Means that some wrong rows cannot move far, of a table with one row per client; only rows that are `there` count.

Median and trimmed mean: Yin, Chen, Kannan, Bartlett 2018. Krum: Blanchard, El Mhamdi, Guerraoui, Stainer 2017.
Geometric median: Pillutla, Kakade, Harchaoui 2022. Bounded norms: Sun, Kairouz, Suresh, McMahan 2019.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from idiolect.protection.choices import Robustness

TURNS = 64  # of Weiszfeld's iteration; a fixed number, so that lanes under one vmap never wait for each other


def robust_mean(rule: Robustness, table: jax.Array, there: jax.Array) -> jax.Array:
    """(numbers,) in place of the mean of the rows (clients, numbers) that are there."""
    match rule.rule:
        case "median":
            return _between_ranks(table, there, (jnp.sum(there) - 1) // 2)
        case "trimmed_mean":
            return _between_ranks(table, there, jnp.minimum(rule.attackers, (jnp.sum(there) - 1) // 2))
        case "krum":
            return _mean(table, _best(_krum_scores(rule.attackers, table, there), 1))
        case "multi_krum":
            kept = jnp.maximum(jnp.sum(there) - rule.attackers, 1)
            return _mean(table, there & _best(_krum_scores(rule.attackers, table, there), kept))
        case "geometric_median":
            return _geometric_median(table, there)
        case _:
            return _mean(_bounded(rule, table, there), there)


def _mean(table: jax.Array, there: jax.Array) -> jax.Array:
    rows = jnp.where(there[:, None], table, 0)
    return jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(there), 1).astype(table.dtype)


def _between_ranks(table: jax.Array, there: jax.Array, cut: jax.Array) -> jax.Array:
    """The mean of each column without its `cut` least and largest entries."""
    # absent rows go to the end, behind every rank that counts: shapes stay, whichever clients come
    ordered = jnp.sort(jnp.where(there[:, None], table, jnp.inf), axis=0)
    rank = jnp.arange(table.shape[0])
    kept = (rank >= cut) & (rank < jnp.sum(there) - cut)
    return _mean(jnp.where(kept[:, None], ordered, 0), kept)


def _krum_scores(attackers: int, table: jax.Array, there: jax.Array) -> jax.Array:
    """Of each row the summed squared distance to its nearest others, so many as must be honest; absent: infinite."""
    squares = jnp.sum(jnp.square(table), axis=1)
    # by one product of matrices: differences of all pairs would be clients times as large as the table
    apart = squares[:, None] + squares[None] - 2 * table @ table.T
    pairs = there[:, None] & there[None] & ~jnp.eye(len(there), dtype=bool)
    # rounding may leave a little less than 0 between rows that are alike
    ordered = jnp.sort(jnp.where(pairs, jnp.maximum(apart, 0), jnp.inf), axis=1)
    nearest = jnp.maximum(jnp.sum(there) - attackers - 2, 1)
    near = (jnp.arange(len(there))[None] < nearest) & jnp.isfinite(ordered)  # a row alone has no neighbour
    scores = jnp.sum(jnp.where(near, ordered, 0), axis=1)
    return jnp.where(there, scores, jnp.inf)


def _best(scores: jax.Array, count: jax.Array | int) -> jax.Array:
    """Whether each row is among the `count` with the lowest scores; the first of equals."""
    return jnp.argsort(jnp.argsort(scores, stable=True), stable=True) < count


def _geometric_median(table: jax.Array, there: jax.Array) -> jax.Array:
    """Weiszfeld's iteration from the mean; a row nearer than the least that matters counts as that near."""
    least = 1e-6 * jnp.sqrt(jnp.max(jnp.where(there, jnp.sum(jnp.square(table), axis=1), 0))) + 1e-30

    def turn(_: jax.Array, middle: jax.Array) -> jax.Array:
        distance = jnp.sqrt(jnp.sum(jnp.square(table - middle[None]), axis=1))
        weight = jnp.where(there, 1 / jnp.maximum(distance, least), 0)
        return jnp.sum(weight[:, None] * jnp.where(there[:, None], table, 0), axis=0) / jnp.sum(weight)

    return jax.lax.fori_loop(0, TURNS, turn, _mean(table, there))


def _bounded(rule: Robustness, table: jax.Array, there: jax.Array) -> jax.Array:
    norms = jnp.sqrt(jnp.sum(jnp.square(table), axis=1))
    # the median of norms: less than half of the clients cannot raise it at will
    middle = _between_ranks(norms[:, None], there, (jnp.sum(there) - 1) // 2)[0]
    bound = middle if rule.bound is None else rule.bound
    return table * jnp.minimum(1.0, bound / jnp.maximum(norms, jnp.finfo(norms.dtype).tiny))[:, None]
