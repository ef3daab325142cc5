# SPDX-License-Identifier: Apache-2.0
"""The looped executor: one compiled client, called once per client or once per local step.

On a CPU, large models run faster this way than batched over clients or inside a compiled loop; the mathematics is
that of `engines.round`, client by client.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree
from idiolect.engines.block import TRACES, Lane
from idiolect.engines.client import Done, Number, Task, client_round, receive, send, step, steps_of
from idiolect.engines.round import (
    Clients,
    Cohort,
    Outcome,
    RoundCost,
    finish_round,
    is_finite,
    put_back,
    round_cost,
    whole_cohort,
)
from idiolect.engines.server import open_round

_open = jax.jit(open_round)


@jax.jit
def _whole_client(task: Task) -> Done:
    TRACES["client"] += 1
    return client_round(task)


@jax.jit
def _receive(task: Task) -> tuple[Tree, Tally, jax.Array]:
    working, cost = receive(task)
    return working, cost.counters(), jnp.asarray(steps_of(task), jnp.int32)


@jax.jit
def _step(task: Task, t: Number, working: Tree, tally: Tally) -> tuple[Tree, Tally]:
    working, cost = step(task, t, working)
    return working, tally.plus(cost.counters())


@jax.jit
def _send(task: Task, working: Tree) -> tuple[Tree, Tree, Tally]:
    upload, kept, cost = send(task, working)
    return upload, jax.tree.map(jnp.asarray, kept), cost.counters()


def _client_by_steps(task: Task) -> Done:
    working, tally, steps = _receive(task)
    for t in range(int(steps)):
        # an array and not a Python integer: one program for all steps, where each new integer would compile another
        working, tally = _step(task, np.int32(t), working, tally)
    upload, kept, cost = _send(task, working)
    return Done(upload, kept, tally.plus(cost), steps)


@jax.jit
def _collect(algorithm: Algorithm, uploads: Tree, clients: jax.Array, present: jax.Array) -> Tree:
    return algorithm.reduction.collect(uploads, clients, present)


_finish = functools.partial(jax.jit, static_argnames=("drawn",))(finish_round)
_put_back = jax.jit(put_back)


def run_looped(lane: Lane, data: ClientData, rounds: np.ndarray, *, per_step: bool) -> Outcome:
    """The same result as `engines.block.run_block` for one lane, client by client."""
    work = _client_by_steps if per_step else _whole_client
    server, states, costs = lane.server, lane.states, []
    for place, number in enumerate(rounds):
        members = whole_cohort(data) if lane.cohorts is None else tree.take(lane.cohorts, place)
        now = _open(lane.algorithm, lane.root, number, server)
        asked = Cohort(*(np.asarray(part) for part in members))
        # an absent client is not called at all, where a batched program works for it and drops the result
        there = Cohort(*(part[asked.present] for part in asked))
        done = [work(Task(now, who, *tree.take((states, data), row))) for who, row in zip(there.clients, there.rows)]
        costs.append(_cost(asked, done))
        if not done:
            continue
        uploads, kept = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *part) for part in list(zip(*done))[:2])
        partial = _collect(lane.algorithm, uploads, there.clients, there.present)
        people = Clients(_put_back(states, there, kept), data)
        server, states = _finish(now, server, there, partial, people, drawn=lane.cohorts is not None)
    return server, states, jax.tree.map(lambda *leaves: jnp.stack(leaves), *costs)


def _cost(members: Cohort, done: list[Done]) -> RoundCost:
    """The round's cost with one row per cohort member; absent members cost nothing, and are finite."""
    counts = [(*one.tally, one.steps, _finite((one.upload, one.state))) for one in done]
    table = np.zeros((len(members.clients), len(Tally._fields) + 2), np.int32)
    table[:, -1] = 1
    if done:
        table[members.present] = jax.device_get(counts)
    *tally, steps, finite = table.T
    return round_cost(members, Tally(*tally), steps, finite, steps.sum())


_finite = jax.jit(is_finite)
