# SPDX-License-Identifier: Apache-2.0
"""The state before the first round."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core import keys
from idiolect.core.addressing import address, axes
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, Purpose
from idiolect.core.tally import NOTHING, Tally


@jax.jit
def init_server(algorithm: Algorithm, root: Key) -> Any:
    """The server's start, the same whatever the cohort."""
    return algorithm.init_server(keys.round_key(root, Purpose.INIT_SERVER, 0))


@jax.jit
def init_clients(algorithm: Algorithm, root: Key, clients: Any, data: ClientData) -> tuple[Any, Tally]:
    """The named clients' starts and what they cost, one row each."""

    def one(own: Algorithm, key: Key, rows: ClientData) -> tuple[Any, Tally]:
        state, cost = own.init_client(key, rows)
        return jax.tree.map(jnp.asarray, state), cost.counters()

    client_keys = keys.init_client_keys(root, clients, common=algorithm.common_start)
    own = address(algorithm, clients)
    return jax.vmap(one, in_axes=(axes(algorithm), 0, 0))(own, client_keys, data)


@jax.jit
def carry(
    algorithm: Algorithm, earlier: Algorithm, root: Key, server: Any, clients: Any, states: Any, data: ClientData
) -> tuple[Any, Any, Tally]:
    """Server and clients of a run of `earlier`, ready to go on with `algorithm`; and the cost, a row per client."""

    def prepare(own: tuple[Algorithm, Algorithm], key: Key, before: Any, rows: ClientData) -> tuple[Any, Tally]:
        prepared, cost = own[0].objective.prepare_again(key, rows, before, own[1].objective)
        return prepared, cost.counters()

    cost = jax.tree.map(lambda count: jnp.broadcast_to(count, jnp.shape(clients)), NOTHING.counters())
    if algorithm.objective.prepares:
        both = (algorithm, earlier)
        client_keys = keys.init_client_keys(root, clients, common=True)
        again = jax.vmap(prepare, in_axes=(axes(both), 0, 0, 0))
        prepared, cost = again(address(both, clients), client_keys, states.prepared, data)
        states = states._replace(prepared=prepared)
    return *algorithm.carry(earlier, server, states), cost


class WireTypes(NamedTuple):
    """Shapes of what crosses the wire for one client: down, up, and the final delivery."""

    sent: Any
    upload: Any
    delivered: Any


def wire_types(algorithm: Algorithm, data: ClientData) -> WireTypes:
    """Shapes of Broadcast, Upload and the delivered Broadcast; nothing is computed.

    Addressed leaves keep their client axis: what a client gets of them is one row.
    """
    client = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data)

    def shapes(rows: ClientData) -> WireTypes:
        root = keys.root_key(0)
        server = algorithm.init_server(root)
        sent = algorithm.broadcast(root, server)
        own, seen = address((algorithm, sent), 0)
        state, _ = own.init_client(root, rows)
        working, _ = own.receive(root, seen, state, rows)
        upload, _, _ = own.send(root, seen, working, state, rows)
        return WireTypes(sent, upload, algorithm.deliver(root, server))

    return jax.eval_shape(shapes, client)


def draws_steps(algorithm: Algorithm, capacity: int) -> bool:
    """Whether the number of local steps is drawn on the server, so that lanes would run in lockstep."""
    drawn = []

    def look(root: Key) -> None:
        server = algorithm.init_server(root)
        sent = algorithm.broadcast(root, server)
        drawn.append(not isinstance(algorithm.steps(sent, capacity), int))

    jax.eval_shape(look, jax.eval_shape(functools.partial(keys.root_key, 0)))
    return drawn[0]
