# SPDX-License-Identifier: Apache-2.0
"""Every random draw of the package starts here: a key is made from coordinates, never from a state.

`(seed, purpose, round, client)` names a draw. It does not matter which executor, batch, shard or machine makes it, nor
in which order. Draws on the host use the counter-based Philox generator with the same coordinates.

Whoever takes part in a run knows its seed. What must not be guessed, the name of a deployed run, and noise or masks
that hide something, is drawn with the functions `secret_*`, from the system and from no seed.
"""

from __future__ import annotations

import enum
import secrets
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from idiolect.core.threefry import threefry

Key = jax.Array


class StartKeys(NamedTuple):
    """What a client draws its start with."""

    common: Key  # the server's own: what is drawn with it is the same on every client
    own: Key


class Purpose(enum.IntEnum):
    """What a draw is for. Values are part of every recorded result: append, never renumber."""

    INIT_SERVER = 0
    INIT_CLIENT = 1
    BROADCAST = 2
    RECEIVE = 3
    STEP = 4
    SEND = 5
    SERVER_STEP = 6
    SETTLE = 7
    DELIVER = 8
    PERSONAL_MODEL = 9
    COHORT = 10
    DROPOUT = 11
    SPLIT = 12
    PARTITION = 13
    SYNTHETIC = 14
    BOOTSTRAP = 15
    PREPROCESSING = 16
    ATTACKERS = 17
    EVALUATED = 18


def root_key(seed: ArrayLike) -> Key:
    """The key of a whole run."""
    return jax.random.key(seed, impl=threefry)


def round_key(root: Key, purpose: Purpose, round_number: ArrayLike) -> Key:
    """The server's key for one purpose in one round."""
    return jax.random.fold_in(jax.random.fold_in(root, int(purpose)), round_number)


def client_key(root: Key, purpose: Purpose, round_number: ArrayLike, client: ArrayLike) -> Key:
    """One client's key for one purpose in one round."""
    return jax.random.fold_in(round_key(root, purpose, round_number), client)


def step_key(key: Key, t: ArrayLike) -> Key:
    """A client's key for local step `t`; unused keys cost nothing once compiled."""
    return jax.random.fold_in(key, t)


def client_keys(root: Key, purpose: Purpose, round_number: ArrayLike, clients: jax.Array) -> Key:
    """`client_key` for each of several clients."""
    # hashed once for the cohort: only the last coordinate differs from client to client
    shared = round_key(root, purpose, round_number)
    return jax.vmap(lambda client: jax.random.fold_in(shared, client))(clients)


def init_key(root: Key) -> Key:
    """The key of the server's start, and of the clients' where all start at the same place."""
    return round_key(root, Purpose.INIT_SERVER, 0)


def host_generator(seed: int, purpose: Purpose, *coordinates: int) -> np.random.Generator:
    """A NumPy generator for draws on the host, named by the same coordinates."""
    sequence = np.random.SeedSequence([seed % 2**63, int(purpose), *coordinates])
    return np.random.Generator(np.random.Philox(sequence))


class Secret(NamedTuple):
    """Words from the system's source of randomness, known to one side of a deployment alone."""

    words: jax.Array


def secret_words() -> np.ndarray:
    """128 bits that cannot be guessed or drawn again, as numbers: for noise that must hide something."""
    return np.frombuffer(secrets.token_bytes(16), np.int32)


def secret_bytes(count: int) -> bytes:
    """So many bytes that cannot be guessed or drawn again: for keys and masks."""
    return secrets.token_bytes(count)


def secret_token() -> str:
    """128 bits that cannot be guessed or drawn again: not part of any result."""
    return secrets.token_hex(16)
