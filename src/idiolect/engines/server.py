# SPDX-License-Identifier: Apache-2.0
"""The server's half of a run: its start, what it sends, what it makes of the uploads, what it delivers."""

from __future__ import annotations

from idiolect.core import keys
from idiolect.core.algorithm import Algorithm
from idiolect.core.keys import Key, Purpose
from idiolect.core.tree import Tree
from idiolect.engines.client import Number, Round


def server_init(algorithm: Algorithm, root: Key) -> Tree:
    """The state that the server starts with, the same whatever the cohort."""
    return algorithm.init_server(keys.init_key(root))


def open_round(algorithm: Algorithm, root: Key, number: Number, server: Tree) -> Round:
    """A round, with what its server sends."""
    return Round(algorithm, root, number, algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, number), server))


def server_step(now: Round, server: Tree, partial: Tree) -> Tree:
    """The server after a round, from what `algorithm.reduction.collect` made of the uploads of at least one client."""
    received = now.algorithm.reduction.lower(partial)
    key = keys.round_key(now.root, Purpose.SERVER_STEP, now.number)
    return now.algorithm.server_step(key, server, now.sent, received)


def deliver(algorithm: Algorithm, root: Key, number: Number, server: Tree) -> Round:
    """What clients make their models from, as the round that `client_model` takes."""
    return Round(algorithm, root, number, algorithm.deliver(keys.round_key(root, Purpose.DELIVER, number), server))
