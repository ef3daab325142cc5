# SPDX-License-Identifier: Apache-2.0
"""How far client models are from each other, from their optima, and from the optimal value."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.core.tree import Tree


def consensus_error(stacked: Tree) -> Array:
    """mean_m ||w_m - w_bar||^2 over a pytree stacked over clients, w_bar = mean_m w_m."""
    leaves = [_wide(leaf) for leaf in jax.tree.leaves(stacked)]
    return _mean_square([leaf - jnp.mean(leaf, axis=0, keepdims=True) for leaf in leaves])


def distance_to_optimum(stacked: Tree, optima: Tree) -> Array:
    """mean_m ||v_m - v*_m||^2 over two pytrees of the same structure, stacked over clients."""
    (models, structure), (goals, other) = _flat(stacked), _flat(optima)
    if structure != other:
        raise RequestError(
            f"optima must have the models' structure {structure}, got {other}. "
            "Stack one optimum per client into the same tree."
        )
    pairs = list(zip(models, goals))
    for model, optimum in pairs:
        # Broadcasting one optimum over all clients would silently measure something else.
        if jnp.shape(model) != jnp.shape(optimum):
            raise RequestError(
                f"optima must have the models' shapes, got {jnp.shape(optimum)} for {jnp.shape(model)}. "
                "Stack one optimum per client into the same tree."
            )
    return _mean_square([_wide(model) - _wide(optimum).astype(_wide(model).dtype) for model, optimum in pairs])


def suboptimality(value: Array, optimum: Array) -> Array:
    """F(w, beta) - F*, never negative; not-a-number stays so. Host numbers keep their precision."""
    difference = value - optimum
    return jnp.maximum(difference, 0) if isinstance(difference, jax.Array) else np.maximum(difference, 0.0)


def _flat(tree: Tree) -> tuple[list[Array], object]:
    return jax.tree.flatten(tree)


def _wide(leaf: Array) -> Array:
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.float64 if leaf.dtype == jnp.float64 else jnp.float32)


def _mean_square(differences: list[Array]) -> Array:
    """Squares summed over everything but the leading axis, averaged over it."""
    squares = [jnp.sum(jnp.square(leaf)) / leaf.shape[0] for leaf in differences]
    return sum((square.astype(jnp.result_type(float)) for square in squares), jnp.zeros(()))
