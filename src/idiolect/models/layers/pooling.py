# SPDX-License-Identifier: Apache-2.0
"""Pooling of images over windows that do not overlap; rows and columns that fill no window are left out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def _windows(images: Array, size: int) -> Array:
    """(rows, height', size, width', size, channels)."""
    rows, height, width, channels = images.shape
    down, across = height // size, width // size
    return images[:, : down * size, : across * size].reshape(rows, down, size, across, size, channels)


def mean_pool(images: Array, size: int) -> Array:
    """Mean of every size x size window."""
    return _windows(images, size).mean(axis=(2, 4))


def max_pool(images: Array, size: int) -> Array:
    """Largest of every size x size window."""
    return _largest(_windows(images, size))


@jax.custom_vjp
def _largest(windows: Array) -> Array:
    return windows.max(axis=(2, 4))


def _forward(windows: Array) -> tuple[Array, Array]:
    return _largest(windows), windows


def _backward(windows: Array, gradient: Array) -> tuple[Array]:
    """The gradient goes to the first of equals, as in other libraries.

    JAX's own rule shares it among equals, which takes a count over the window: 25 % of a CNN's step under vmap. The
    largest is found among the entries, not by the forward pass's maximum: a compiler may round the two differently.
    """
    size = windows.shape[2]
    places = [windows[:, :, i, :, j] for i in range(size) for j in range(size)]
    first, largest = jnp.zeros(gradient.shape, jnp.int32), places[0]
    for number, own in enumerate(places[1:], 1):
        better = own > largest
        first, largest = jnp.where(better, number, first), jnp.where(better, own, largest)
    numbers = jnp.arange(size * size, dtype=jnp.int32).reshape(1, 1, size, 1, size, 1)
    chosen = first[:, :, None, :, None] == numbers
    return (jnp.where(chosen, gradient[:, :, None, :, None], jnp.zeros_like(windows)),)


_largest.defvjp(_forward, _backward)
