# SPDX-License-Identifier: Apache-2.0
"""Codecs: one array of a change as the fewer bytes that are sent, and back; and which arrays are sent at all.

What is sent is these arrays and nothing else, so that the ledger reads the bytes off their types, as always.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from idiolect.core import RequestError, nearest
from idiolect.core.statistics import Path, name_of
from idiolect.core.types import Key, Tree
from idiolect.protection.choices import Compression

TURNS = 2  # of a power iteration, from a start that knows nothing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Quantised:
    """Whole numbers from 0 to 2^bits - 1 between the least and the largest entry."""

    codes: jax.Array  # uint8, `bits` bits per entry without a gap
    least: jax.Array
    most: jax.Array
    bits: int = dataclasses.field(metadata={"static": True})
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    def unpack(self) -> jax.Array:
        """The array."""
        size, places = math.prod(self.shape), jnp.arange(self.bits, dtype=jnp.uint32)
        each = jnp.unpackbits(self.codes, count=size * self.bits, bitorder="little").reshape(size, self.bits)
        numbers = jnp.sum(each.astype(jnp.uint32) << places, axis=1).astype(self.least.dtype)
        return (self.least + numbers * (self.most - self.least) / (2**self.bits - 1)).reshape(self.shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Kept:
    """The largest entries, and where they stand."""

    entries: jax.Array
    places: jax.Array
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    def unpack(self) -> jax.Array:
        """The array, zero elsewhere."""
        return _spread(self.entries, self.places, self.shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    """Entries at places that both sides draw from one number."""

    entries: jax.Array
    draw: jax.Array  # uint32
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    def unpack(self) -> jax.Array:
        """The array, zero elsewhere."""
        return _spread(self.entries, drawn_places(self.draw, math.prod(self.shape), self.entries.shape[0]), self.shape)


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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Unsent:
    """An array of which nothing is sent: a change of zero."""

    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    dtype: str = dataclasses.field(metadata={"static": True})

    def unpack(self) -> jax.Array:
        """Zeros."""
        return jnp.zeros(self.shape, self.dtype)


Packed = Quantised | Kept | Drawn | Factors | Sketch | Unsent


def pack(codec: Compression, key: Key, leaf: jax.Array) -> Packed | jax.Array:
    """One array as it is sent."""
    if codec.kind == "whole":
        return leaf
    if codec.kind == "quantise":
        return _quantise(codec.bits, key, leaf)
    if codec.kind == "low_rank":
        return _factorise(codec, key, leaf)
    flat = leaf.reshape(-1)
    count = math.ceil(flat.size / codec.one_in)
    if codec.kind == "top_k":
        places = jnp.sort(jax.lax.top_k(jnp.abs(flat), count)[1])
        # a place costs bytes as an entry does: the shortest type that can name all of them
        return Kept(flat[places], places.astype(jnp.uint16 if flat.size <= 2**16 else jnp.uint32), leaf.shape)
    # four bytes name all places, since the reduction that unpacks them has no key to draw with
    draw = jax.random.bits(key, (), jnp.uint32)
    entries = flat[drawn_places(draw, flat.size, count)]
    # what stays out is sent later, or what goes is made as large as to be right in the mean
    return Drawn(entries if codec.error_feedback else entries * (flat.size / count), draw, leaf.shape)


def pack_tree(codec: Compression, key: Key, moves: Tree) -> Tree:
    """Every array of the changes."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(moves)
    packed = [
        pack(codec, jax.random.fold_in(key, place), leaf)
        if is_sent(codec, path)
        else Unsent(leaf.shape, jnp.dtype(leaf.dtype).name)
        for place, (path, leaf) in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, packed)


def unpack_tree(upload: Tree) -> Tree:
    """An upload with its arrays as they were before, up to what was lost."""
    leaves, structure = jax.tree.flatten(upload, is_leaf=lambda node: isinstance(node, Packed))
    return jax.tree.unflatten(structure, [leaf.unpack() if isinstance(leaf, Packed) else leaf for leaf in leaves])


def drawn_places(draw: jax.Array, size: int, count: int) -> jax.Array:
    """So many different places below `size`, ascending, from a number that was sent."""
    # the draw decides alone: whatever made it, both sides find the same places
    return jnp.sort(jax.random.permutation(jax.random.key(draw, impl="threefry2x32"), size)[:count])


def _spread(entries: jax.Array, places: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    flat = jnp.zeros(math.prod(shape), entries.dtype)
    return flat.at[places.astype(jnp.int32)].set(entries).reshape(shape)


def _quantise(bits: int, key: Key, leaf: jax.Array) -> Quantised:
    least, most = jnp.min(leaf), jnp.max(leaf)
    steps = 2**bits - 1
    width = jnp.where(most > least, most - least, 1)  # all entries alike: every code is 0
    # rounded up with the chance of what is cut off: right in the mean
    numbers = jnp.floor((leaf - least) / width * steps + jax.random.uniform(key, leaf.shape, leaf.dtype))
    whole = jnp.clip(numbers, 0, steps).astype(jnp.uint32).reshape(-1, 1)
    each = (whole >> jnp.arange(bits, dtype=jnp.uint32)) & 1  # the lowest bit first
    return Quantised(jnp.packbits(each.reshape(-1), bitorder="little"), least, most, bits, leaf.shape)


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of an array of two axes and more: all but the last axis are rows."""
    return math.prod(shape[:-1]), shape[-1]


def _factorise(codec: Compression, key: Key, leaf: jax.Array) -> Factors | Sketch | jax.Array:
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


def keep_sent(codec: Compression | None, moves: Tree) -> Tree:
    """The changes with zeros for arrays of which nothing is sent; RequestError where a name means none of them."""
    if codec is None or not codec.only:
        return moves
    names = [_layer(path) for path, _ in jax.tree_util.tree_leaves_with_path(moves)]
    for wanted in codec.only:
        if not any(_means(wanted, name) for name in names):
            known = {".".join(name[:depth]) for name in names for depth in range(1, len(name) + 1)}
            raise RequestError(
                f"compression.only has {wanted!r}, which is no layer and no pattern of one.{nearest(wanted, known)}"
            )
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf if is_sent(codec, path) else jnp.zeros_like(leaf), moves
    )


def is_sent(codec: Compression, path: Path) -> bool:
    """Whether anything is sent of the array at a path that begins with the field of the Upload."""
    return not codec.only or any(_means(wanted, _layer(path)) for wanted in codec.only)


def _layer(path: Path) -> list[str]:
    """The parts of a parameter's name, without that field."""
    return name_of(path[1:]).split(".")


def _means(wanted: str, name: list[str]) -> bool:
    """Whether a name or a pattern means a parameter, or a layer that it is in."""
    return any(fnmatch.fnmatchcase(".".join(name[:depth]), wanted) for depth in range(1, len(name) + 1))
