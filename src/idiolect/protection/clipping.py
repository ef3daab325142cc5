# SPDX-License-Identifier: Apache-2.0
"""Clipping, noise, and a clip that follows a quantile of the norms (Andrew, Thakkar, McMahan, Ramaswamy 2021)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.core import tree
from idiolect.core.keys import Secret
from idiolect.core.types import Key, Tree
from idiolect.protection.choices import ClientPrivacy

NOISE, COUNT_NOISE = 0x6E6F6973, 0x636F756E  # set noise apart from what the algorithm itself draws with the same key


def clip(moves: Tree, bound: ArrayLike) -> Tree:
    """The changes, together no longer than the bound."""
    # of all arrays together: noise is added to all of them, and must hide the whole change
    norm = jnp.sqrt(tree.squared_norm(moves))
    return tree.scale(jnp.minimum(1.0, bound / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)), moves)


def add_noise(key: Key, deviation: ArrayLike, moves: Tree) -> Tree:
    """Independent normal noise on every number."""
    return tree.add(moves, tree.scale(deviation, tree.normal(key, moves)))


def noise_key(secret: Secret | None, key: Key) -> Key:
    """The server's key for a round's noise: with a secret, one that does not follow from the seed."""
    mixed = jax.random.fold_in(key, NOISE)
    if secret is not None:
        for word in secret.words:
            mixed = jax.random.fold_in(mixed, word)
    return mixed


def change_noise(privacy: ClientPrivacy) -> jax.Array | float:
    """The multiplier that is left for the changes where a part of it pays for counting the clients below the clip."""
    if not privacy.adaptive:
        return privacy.noise_multiplier
    # a count of halves, b - 1/2, has sensitivity 1/2: z^-2 = z_change^-2 + (2 count_noise)^-2
    left = jnp.square(1 / privacy.noise_multiplier) - jnp.square(0.5 / privacy.count_noise)
    return 1 / jnp.sqrt(left)


def next_clip(privacy: ClientPrivacy, key: Key, bound: jax.Array, below: jax.Array) -> jax.Array:
    """The clip of the next round; `below` is the sum of b - 1/2 over the clients, over their expected number."""
    noise = privacy.count_noise / privacy.expected * jax.random.normal(key, below.shape, below.dtype)
    fraction = below + noise + 0.5
    # by a factor: a clip that starts wrong by orders of magnitude gets there in tens of rounds, and stays above 0
    return bound * jnp.exp(-privacy.clip_rate * (fraction - privacy.quantile)).astype(bound.dtype)
