# SPDX-License-Identifier: Apache-2.0
"""The counter-based generator threefry, with its twenty rounds written out.

The bits are those of `jax.random`'s own threefry. On a CPU, JAX lowers the hash to a loop, which no other work can be
fused with: in programs of small clients, draws took most of the time. Reference: Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl, threefry_prng_impl

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def _hashed(key: jax.Array, first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32-20 of the counter (`first`, `second`)."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    first, second = first + schedule[0], second + schedule[1]
    for group in range(5):
        for places in _ROTATIONS[group % 2]:
            first = first + second
            rotated = (second << jnp.uint32(places)) | (second >> jnp.uint32(32 - places))
            second = rotated ^ first
        first = first + schedule[(group + 1) % 3]
        second = second + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return first, second


def _counted(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """The hash of 0, 1, 2, ... in `shape`."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"One draw gives fewer than 2**32 numbers, got a shape of {size}.")
    counter = jax.lax.iota(jnp.uint32, size).reshape(shape)
    return _hashed(key, jnp.zeros_like(counter), counter)


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.stack(_counted(key, shape), axis=-1)


def _fold_in(key: jax.Array, number: jax.Array) -> jax.Array:
    return jnp.stack(_hashed(key, *threefry_prng_impl.seed(number)))


def _random_bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    first, second = _counted(key, shape)
    if width == 64:
        return (first.astype(jnp.uint64) << jnp.uint64(32)) | second.astype(jnp.uint64)
    return (first ^ second).astype(jnp.dtype(f"uint{width}"))


threefry = define_prng_impl(
    key_shape=(2,),
    seed=threefry_prng_impl.seed,
    split=jax.jit(_split, static_argnums=1, inline=True),
    random_bits=jax.jit(_random_bits, static_argnums=(1, 2), inline=True),
    fold_in=jax.jit(_fold_in, inline=True),
    name="threefry_unrolled",
    tag="fryu",
)
