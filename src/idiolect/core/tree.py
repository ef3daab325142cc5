# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on pytrees of parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from idiolect.core.statistics import Path, is_running

Tree = Any  # a pytree of arrays: what a side keeps, a message, or several of them stacked
Params = Tree  # a pytree of parameters


def add(left: Params, right: Params) -> Params:
    """left + right."""
    return jax.tree.map(lambda a, b: a + b, left, right)


def subtract(left: Params, right: Params) -> Params:
    """left - right."""
    return jax.tree.map(lambda a, b: a - b, left, right)


def scale(factor: ArrayLike, tree: Params) -> Params:
    """factor * tree."""
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def descend(tree: Params, step_size: ArrayLike, direction: Params) -> Params:
    """tree - step_size * direction; a running statistic takes its change whole (core/statistics.py)."""

    def one(path: Path, leaf: jax.Array, gradient: jax.Array) -> jax.Array:
        return leaf - gradient if is_running(path) else leaf - step_size * gradient

    return jax.tree_util.tree_map_with_path(one, tree, direction)


def toward(start: Params, end: Params, part: ArrayLike) -> Params:
    """start + part * (end - start)."""
    return jax.tree.map(lambda a, b: a + jnp.asarray(part, a.dtype) * (b - a), start, end)


def pull(gradient: Params, strength: Any, here: Params, there: Params, biases: ArrayLike = 1.0) -> Params:
    """gradient + strength (here - there), the gradient of a penalty on the way between; none on a running statistic.

    Leaves named "bias" are pulled with `biases` times the strength.
    """

    def one(path: Path, leaf: jax.Array, mine: jax.Array, other: jax.Array) -> jax.Array:
        if is_running(path):
            return leaf
        own = strength * biases if getattr(path[-1], "key", None) == "bias" else strength
        return leaf + own * (mine - other)

    return jax.tree_util.tree_map_with_path(one, gradient, here, there)


def normal(key: jax.Array, like: Params) -> Params:
    """Independent normal draws of the same shapes."""
    leaves, form = jax.tree.flatten(like)
    # a key per array: two arrays of one shape would get the same draws, and their difference none
    keys = [jax.random.fold_in(key, place) for place in range(len(leaves))]
    drawn = [jax.random.normal(own, jnp.shape(leaf), leaf.dtype) for own, leaf in zip(keys, leaves)]
    return jax.tree.unflatten(form, drawn)


def zeros(tree: Params) -> Params:
    """Zeros of the same shapes."""
    return jax.tree.map(jnp.zeros_like, tree)


def inner(left: Params, right: Params) -> jax.Array:
    """Inner product."""
    products = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), left, right))
    return jnp.asarray(sum(products, start=0.0))  # a plain zero, so that the parameters' precision is kept


def squared_norm(tree: Params) -> jax.Array:
    """Squared Euclidean norm."""
    return inner(tree, tree)


def choose(condition: ArrayLike, yes: Params, no: Params) -> Params:
    """`yes` where the condition holds, `no` elsewhere; a leaf that is the same object in both is passed through."""
    # state that no branch touched costs nothing: a table of all clients may pass through here
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), yes, no)


def choose_rows(conditions: jax.Array, yes: Params, no: Params) -> Params:
    """`choose` for trees stacked over clients, with one condition per row."""

    def rows(a: jax.Array, b: jax.Array) -> jax.Array:
        return a if a is b else jnp.where(conditions.reshape(-1, *(1,) * (jnp.ndim(a) - 1)), a, b)

    return jax.tree.map(rows, yes, no)


def take(tree: Params, index: Any) -> Params:
    """Row or rows `index` of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def join_axes(tree: Params) -> Params:
    """The two leading axes of every leaf as one: chunks of clients as clients, groups of lanes as lanes."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def size_in_bytes(tree: Params) -> int:
    """Bytes of all leaves, read off their shapes and types."""
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
