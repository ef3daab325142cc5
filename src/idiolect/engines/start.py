# SPDX-License-Identifier: Apache-2.0
"""The state before the first round."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from idiolect.core import keys
from idiolect.core.addressing import address, axes
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key, StartKeys
from idiolect.core.kinds import Carries
from idiolect.core.objective import Prepares
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Tree
from idiolect.engines.client import Round, Task, check_form, client_init, receive, send
from idiolect.engines.server import open_round, server_init

make_roots = jax.jit(jax.vmap(keys.root_key))  # of an array of seeds, the root key of every lane
init_server = jax.jit(server_init)
init_servers = jax.jit(jax.vmap(server_init))  # of every lane


@jax.jit
def init_clients(algorithm: Algorithm, root: Key, clients: jax.Array, data: ClientData) -> tuple[Tree, Tally]:
    """The named clients' starts and what they cost, one row each."""

    def one(own: Algorithm, client: jax.Array, rows: ClientData) -> tuple[Tree, Tally]:
        state, cost = client_init(own, root, client, rows)
        return jax.tree.map(jnp.asarray, state), cost.counters()

    return jax.vmap(one, in_axes=(axes(algorithm), 0, 0))(address(algorithm, clients), clients, data)


init_lanes = jax.jit(jax.vmap(init_clients, in_axes=(0, 0, None, None)))  # `init_clients` of every lane


@jax.jit
def carry(
    change: tuple[Algorithm, Algorithm], root: Key, server: Tree, clients: jax.Array, states: Tree, data: ClientData
) -> tuple[Tree, Tree, Tally]:
    """Server and clients of a run, ready to go on with other settings, and the cost, a row per client.

    `change` is the algorithm to go on with, and the earlier one.
    """
    algorithm, earlier = change

    def prepare(own: tuple[Algorithm, Algorithm], key: Key, before: Tree, rows: ClientData) -> tuple[Tree, Tally]:
        objective = own[0].objective
        assert isinstance(objective, Prepares)
        prepared, cost = objective.prepare_again(key, rows, before, own[1].objective)
        return prepared, cost.counters()

    cost = jax.tree.map(lambda count: jnp.broadcast_to(count, jnp.shape(clients)), NOTHING.counters())
    if isinstance(algorithm.objective, Prepares):
        again = jax.vmap(prepare, in_axes=(axes(change), None, 0, 0))
        prepared, cost = again(address(change, clients), keys.init_key(root), states.prepared, data)
        states = states._replace(prepared=prepared)
    moved = algorithm.carry(earlier, server, states) if isinstance(algorithm, Carries) else (server, states)
    return *moved, cost


class WireTypes(NamedTuple):
    """Shapes of what crosses the wire for one client: down, up, and the final delivery.

    Addressed leaves keep their client axis: what a client gets of them is one row.
    """

    sent: Tree
    upload: Tree
    delivered: Tree
    shared: Tree  # the one model for all clients, which a deployment delivers too; None without one

    def of_one(self) -> WireTypes:
        """The same as one client sees them."""
        sent, delivered = jax.eval_shape(lambda both: address(both, 0), (self.sent, self.delivered))
        return self._replace(sent=sent, delivered=delivered)


def wire_types(algorithm: Algorithm, data: ClientData) -> WireTypes:
    """What an algorithm sends clients of such rows, of which shapes alone are read; nothing is computed."""
    client = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data)
    return jax.eval_shape(_trace_messages, algorithm, client)


def wire_types_of(algorithm: Algorithm, rows: Rows, number: int, dtype: DTypeLike) -> WireTypes:
    """The same for a client with so many rows."""
    return jax.eval_shape(_trace_messages, algorithm, example_of(rows, number, dtype))


def example_of(rows: Rows, number: int, dtype: DTypeLike) -> ClientData:
    """The shapes of a client with so many rows."""

    def shape(values: np.ndarray) -> jax.ShapeDtypeStruct:
        kind = dtype if np.issubdtype(values.dtype, np.floating) else jax.dtypes.canonicalize_dtype(values.dtype)
        return jax.ShapeDtypeStruct((number, *values.shape[1:]), kind)

    weights = None if rows.weights is None else jax.ShapeDtypeStruct((number,), dtype)
    return ClientData(shape(rows.inputs), shape(rows.targets), jax.ShapeDtypeStruct((), jnp.int32), weights)


@jax.jit  # never compiled; JAX keeps the trace, which every session, fold and site of the same shapes asks for again
def _trace_messages(algorithm: Algorithm, rows: ClientData) -> WireTypes:
    """RequestError where a stage of the algorithm hands on another form than it was handed."""
    name, root = type(algorithm).__name__, keys.root_key(0)
    server = algorithm.init_server(root)
    sent = algorithm.broadcast(root, server)
    own, seen = address((algorithm, sent), 0)
    state, _ = own.init_client(StartKeys(root, root), rows)
    task = Task(Round(algorithm, root, 0, sent), 0, state, rows)
    working, _ = receive(task)
    upload, kept, _ = send(task, working)
    check_form(f"{name}.send", "client's state", state, kept)
    if not type(algorithm).__module__.startswith("idiolect."):  # ours are tested; to trace these takes time
        moved, _ = own.step(root, jnp.zeros((), jnp.int32), seen, working, rows)
        check_form(f"{name}.step", "working state", working, moved)
        stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], upload)
        partial = algorithm.reduction.collect(stacked, jnp.zeros(1, jnp.int32), jnp.ones(1, bool))
        served = algorithm.server_step(root, server, sent, algorithm.reduction.lower(partial))
        check_form(f"{name}.server_step", "server's state", server, served)
    return WireTypes(sent, upload, algorithm.deliver(root, server), algorithm.shared_model(server))


def draws_steps(algorithm: Algorithm, capacity: int) -> bool:
    """Whether the number of local steps is drawn on the server, so that lanes would run in lockstep."""
    drawn = []

    def look(root: Key) -> None:
        server = algorithm.init_server(root)
        sent = algorithm.broadcast(root, server)
        # noted from within the trace: whether a number is known while tracing cannot be read off a shape
        drawn.append(not isinstance(algorithm.steps(sent, capacity), int))

    jax.eval_shape(look, jax.eval_shape(functools.partial(keys.root_key, 0)))
    return drawn[0]


LOOK_AHEAD = 64  # rounds whose drawn steps are compared: lanes that agree so long share their schedule


@functools.partial(jax.jit, static_argnames=("capacity",))
def _drawn_steps(algorithm: Algorithm, roots: Key, capacity: int) -> jax.Array:
    """(lanes, LOOK_AHEAD): how many local steps the server draws in the first rounds."""

    def of_lane(algorithm: Algorithm, root: Key) -> jax.Array:
        server = server_init(algorithm, root)

        def in_round(number: jax.Array) -> jax.Array:
            sent = open_round(algorithm, root, number, server).sent
            return jnp.asarray(algorithm.steps(sent, capacity), jnp.int32)

        return jax.vmap(in_round)(jnp.arange(LOOK_AHEAD, dtype=jnp.int32))

    return jax.vmap(of_lane)(algorithm, roots)


def turns(algorithm: Algorithm, roots: Key, capacity: int) -> np.ndarray:
    """(groups, lanes) of lane numbers: a group's lanes draw the same numbers of local steps.

    They can take them side by side, none waiting for another, and read the rows once for all. With few rows per step
    a lane has nothing to share, and with groups of different sizes there is no common shape: then every lane alone.
    """
    schedules = np.asarray(_drawn_steps(algorithm, roots, capacity=capacity))
    _, group, sizes = np.unique(schedules, axis=0, return_inverse=True, return_counts=True)
    # drawn rows differ from lane to lane, so that nothing is read once for all; a `vmap` needs groups of one size
    if getattr(algorithm, "batch_size", 0) or (sizes != sizes[0]).any():
        return np.arange(len(schedules), dtype=np.int32)[:, None]
    return np.argsort(group.reshape(-1), kind="stable").astype(np.int32).reshape(len(sizes), -1)
