# SPDX-License-Identifier: Apache-2.0
"""Simulated attackers, to measure what they do to shared and to personal models.

Sign flip, noise and label flip need nothing but an attacker's own rows. Those who know what the others send hide among
them (little is enough: Baruch, Baruch, Goldberg 2019) or turn the mean around (inner product: Xie, Koyejo, Gupta 2020).
"""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp

from idiolect.core import tree
from idiolect.core.types import ClientData, Key, PerClient, Tree
from idiolect.protection.choices import Attack
from idiolect.protection.clipping import add_noise

ATTACK_NOISE = 0x61747461  # set apart from every other draw with the same key


def flip_labels(attack: Attack | None, data: ClientData) -> ClientData:
    """The rows that a client trains on: an attacker's with wrong targets. `attack` is the client's own view."""
    if attack is None or attack.kind != "label_flip":
        return data
    # the same wrong class at every attacker, so that they pull one way
    wrong = attack.classes - 1 - data.targets if attack.classes else -data.targets
    return data._replace(targets=jnp.where(_is_attacker(attack), wrong, data.targets))


def attack_moves(attack: Attack | None, key: Key, moves: Tree) -> Tree:
    """The changes that a client uploads. `attack` is the client's own view."""
    if attack is None or attack.kind not in ("sign_flip", "noise"):
        return moves
    if attack.kind == "sign_flip":
        wrong = tree.scale(-attack.strength, moves)
    else:
        wrong = add_noise(jax.random.fold_in(key, ATTACK_NOISE), attack.strength, moves)
    return tree.choose(_is_attacker(attack), wrong, moves)


def attack_together(attack: Attack, stacked: Tree, clients: jax.Array, present: jax.Array) -> Tree:
    """The changes of all clients, stacked, with those of attackers that know all the others."""
    wrong = cast(PerClient, attack.attackers).values[clients] > 0
    honest = present & ~wrong

    def one(leaf: jax.Array) -> jax.Array:
        rows = honest.reshape(-1, *(1,) * (leaf.ndim - 1))
        # a round may have no honest client: then they send zeros, not 0 / 0
        count = jnp.maximum(jnp.sum(honest), 1).astype(leaf.dtype)
        mean = jnp.sum(jnp.where(rows, leaf, 0), axis=0, keepdims=True) / count
        if attack.kind == "inner_product":
            sent = -attack.strength * mean
        else:
            # within the spread of honest entries, where rules that look at one entry at a time see nothing odd
            spread = jnp.sqrt(jnp.sum(jnp.where(rows, jnp.square(leaf - mean), 0), axis=0, keepdims=True) / count)
            sent = mean - attack.strength * spread
        return jnp.where((wrong & present).reshape(rows.shape), sent.astype(leaf.dtype), leaf)

    return jax.tree.map(one, stacked)


def _is_attacker(attack: Attack) -> jax.Array:
    # addressed: what is one row per client for the server is this client's own number here
    return cast(jax.Array, attack.attackers) > 0
