# SPDX-License-Identifier: Apache-2.0
"""The looped executor: one compiled client, called once per client or once per local step.

On a CPU, large models run faster this way than batched over clients or inside a compiled loop; the mathematics is
that of `engines.round`, client by client.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import keys, tree
from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, Purpose
from idiolect.core.tally import Tally
from idiolect.engines.block import TRACES
from idiolect.engines.round import Cohort, RoundCost, everybody, finish_round, finite_rows, put_back, round_cost


@jax.jit
def _broadcast(algorithm: Algorithm, root: Key, round_number: Any, server: Any) -> Any:
    return algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, round_number), server)


@jax.jit
def _receive(
    algorithm: Algorithm, root: Key, round_number: Any, client: Any, sent: Any, state: Any, data: ClientData
) -> tuple[Any, Tally, Any]:
    own, seen = address((algorithm, sent), client)
    key = keys.client_key(root, Purpose.RECEIVE, round_number, client)
    working, cost = own.receive(key, seen, state, data)
    return working, cost.counters(), jnp.asarray(own.steps(seen, data.count), jnp.int32)


@jax.jit
def _step(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    client: Any,
    t: Any,
    sent: Any,
    carried: Any,
    data: ClientData,
) -> tuple[Any, Tally]:
    own, seen = address((algorithm, sent), client)
    working, tally = carried
    key = keys.client_key(root, Purpose.STEP, round_number, client)
    working, cost = own.step(key, t, seen, working, data)
    return working, tally.plus(cost.counters())


@jax.jit
def _send(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    client: Any,
    sent: Any,
    working: Any,
    state: Any,
    data: ClientData,
) -> tuple[Any, Any, Tally]:
    own, seen = address((algorithm, sent), client)
    key = keys.client_key(root, Purpose.SEND, round_number, client)
    upload, kept, cost = own.send(key, seen, working, state, data)
    return upload, jax.tree.map(jnp.asarray, kept), cost.counters()


@jax.jit
def _whole_client(
    algorithm: Algorithm, root: Key, round_number: Any, client: Any, sent: Any, state: Any, data: ClientData
) -> tuple[Any, Any, Tally, Any]:
    TRACES["client"] += 1
    working, tally, steps = _receive(algorithm, root, round_number, client, sent, state, data)

    def one_step(t: Any, carried: Any) -> Any:
        return _step(algorithm, root, round_number, client, t, sent, carried, data)

    working, tally = jax.lax.fori_loop(0, steps, one_step, (working, tally))
    upload, kept, cost = _send(algorithm, root, round_number, client, sent, working, state, data)
    return upload, kept, tally.plus(cost), steps


def _client_by_steps(
    algorithm: Algorithm, root: Key, round_number: Any, client: Any, sent: Any, state: Any, data: ClientData
) -> tuple[Any, Any, Tally, Any]:
    working, tally, steps = _receive(algorithm, root, round_number, client, sent, state, data)
    carried = (working, tally)
    for t in range(int(steps)):
        carried = _step(algorithm, root, round_number, client, np.int32(t), sent, carried, data)
    working, tally = carried
    upload, kept, cost = _send(algorithm, root, round_number, client, sent, working, state, data)
    return upload, kept, tally.plus(cost), steps


@jax.jit
def _collect(algorithm: Algorithm, uploads: Any, clients: Any, present: Any) -> Any:
    return algorithm.reduction.collect(uploads, clients, present)


_finish = functools.partial(jax.jit, static_argnames=("partial_cohort",))(finish_round)
_put_back = jax.jit(put_back)


def run_looped(
    algorithm: Algorithm,
    root: Key,
    server: Any,
    states: Any,
    data: ClientData,
    rounds: Any,
    cohorts: Cohort | None,
    *,
    per_step: bool,
) -> tuple[Any, Any, RoundCost]:
    """The same result as `engines.block.run_block` for one lane, client by client."""
    work = _client_by_steps if per_step else _whole_client
    costs = []
    for place, round_number in enumerate(np.asarray(rounds)):
        members = everybody(data) if cohorts is None else tree.take(cohorts, place)
        sent = _broadcast(algorithm, root, round_number, server)
        uploads, kept, counts = [], [], []
        for client, row, present in zip(*(np.asarray(part) for part in members)):
            if not present:
                continue
            upload, state, tally, steps = work(
                algorithm, root, round_number, client, sent, tree.take(states, row), tree.take(data, row)
            )
            uploads.append(upload)
            kept.append((client, row, state))
            counts.append((tally, steps, _finite((upload, state))))
        costs.append(_cost(members, [entry[0] for entry in kept], counts))
        if not uploads:
            continue
        clients, rows = (np.asarray([entry[i] for entry in kept], np.int32) for i in (0, 1))
        arrived = Cohort(clients, rows, np.ones(len(kept), bool))
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *uploads)
        partial = _collect(algorithm, stacked, arrived.clients, arrived.present)
        states = _put_back(states, arrived, jax.tree.map(lambda *leaves: jnp.stack(leaves), *(k[2] for k in kept)))
        arguments = (algorithm, root, round_number, arrived, server, sent, partial, states, data)
        server, states = _finish(*arguments, partial_cohort=cohorts is not None)
    return server, states, jax.tree.map(lambda *leaves: jnp.stack(leaves), *costs)


def _cost(members: Cohort, arrived: list[int], counts: list[Any]) -> RoundCost:
    """The round's cost with one row per cohort member; absent members cost nothing."""
    table = {int(client): jax.device_get(count) for client, count in zip(arrived, counts)}
    nothing = (Tally(), 0, True)
    rows = [table.get(int(client), nothing) for client in members.clients]
    tally = Tally(*(np.asarray([row[0][place] for row in rows]) for place in range(len(Tally._fields))))
    steps = np.asarray([row[1] for row in rows], np.int32)
    return round_cost(members, tally, steps, np.asarray([row[2] for row in rows]), steps.sum())


@jax.jit
def _finite(leaves: Any) -> Any:
    return finite_rows(jax.tree.map(lambda leaf: leaf[None], leaves), 1)[0]
