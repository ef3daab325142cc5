# SPDX-License-Identifier: Apache-2.0
"""Matrices in fewer numbers: two thin factors of each, or its product with random signs."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from idiolect.core.keys import Key
from idiolect.protection.choices import Compression

TURNS = 2  # of a power iteration, from a start that knows nothing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Factors:
    """Two thin matrices whose product is near the array."""

    left: jax.Array  # (rows, rank)
    right: jax.Array  # (columns, rank)
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    def unpack(self) -> jax.Array:
        """The product."""
        return (self.left @ self.right.T).reshape(self.shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Sketch:
    """The array times random signs that both sides draw from one number, along its longer side."""

    product: jax.Array  # (shorter side, rank)
    draw: jax.Array  # uint32
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    def unpack(self) -> jax.Array:
        """The product times the same signs: the array in the mean."""
        rows, columns = _as_matrix(self.shape)
        spread = self.product @ _signs(self.draw, max(rows, columns), self.product.shape[1], self.product.dtype).T
        return (spread if rows <= columns else spread.T).reshape(self.shape)


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of an array of two axes and more: all but the last axis are rows."""
    return math.prod(shape[:-1]), shape[-1]


def factorise(codec: Compression, key: Key, leaf: jax.Array) -> Factors | Sketch | jax.Array:
    """A matrix in fewer numbers; an array as it is where these would be as many."""
    if leaf.ndim < 2:
        return leaf
    matrix, rank = leaf.reshape(_as_matrix(leaf.shape)), codec.rank
    rows, columns = matrix.shape
    if codec.error_feedback:
        return _near(key, matrix, rank, leaf.shape) if rank * (rows + columns) < rows * columns else leaf
    if rank >= max(rows, columns):
        return leaf
    draw = jax.random.bits(key, (), jnp.uint32)
    along = matrix if rows <= columns else matrix.T
    return Sketch(along @ _signs(draw, max(rows, columns), rank, leaf.dtype) / rank, draw, leaf.shape)


def _near(key: Key, matrix: jax.Array, rank: int, shape: tuple[int, ...]) -> Factors:
    """The projection onto a basis of few columns, found by power iteration from a random start (PowerSGD, 2019)."""
    right = jax.random.normal(key, (matrix.shape[1], rank), matrix.dtype)
    for _ in range(TURNS):
        left, _ = jnp.linalg.qr(matrix @ right)
        right = matrix.T @ left
    return Factors(left, right, shape)


def _signs(draw: jax.Array, size: int, rank: int, dtype: DTypeLike) -> jax.Array:
    """(size, rank) of +1 and -1: no library rounds them, so that both sides have the same."""
    return jax.random.rademacher(jax.random.key(draw, impl="threefry2x32"), (size, rank), dtype)
