# SPDX-License-Identifier: Apache-2.0
"""Rounds fused into one compiled block, for one run or for many lanes (seeds, settings) at once."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key
from idiolect.engines.client import open_round
from idiolect.engines.round import Clients, Cohort, Fixed, How, RoundCost, everybody, run_round

TRACES: Counter[str] = Counter()  # how often each program was traced; a test holds it to once per shape


class Lane(NamedTuple):
    """One run: an algorithm, the root of its draws, where it stands, and who is in its rounds (None: all clients)."""

    algorithm: Algorithm
    root: Key
    server: Any
    states: Any
    cohorts: Cohort | None


class Rounds(NamedTuple):
    """The rounds of a block, of which the first `count` are run."""

    numbers: Any
    count: Any


def _block(lane: Lane, data: ClientData, rounds: Rounds, how: How) -> tuple[Any, Any, RoundCost]:
    cohorts, numbers = lane.cohorts, rounds.numbers

    def round_at(place: Any, server: Any, states: Any) -> tuple[Any, Any, RoundCost]:
        cohort = None if cohorts is None else tree.take(cohorts, place)
        now = open_round(lane.algorithm, lane.root, numbers[place], server)
        server, states, cost = run_round(now, server, Clients(states, data), cohort, how)
        if not how.chunk:  # as one batch a cohort keeps its order: who was there stands in `cohorts`
            cost = cost._replace(clients=(), present=())
        return server, states, cost

    def one_round(place: Any, carried: tuple[Any, Any, RoundCost]) -> tuple[Any, Any, RoundCost]:
        server, states, costs = carried
        server, states, cost = round_at(place, server, states)
        # not `.at[place].set`: `place` is in range by construction, and checking it costs as much as writing
        put = jax.lax.dynamic_update_index_in_dim
        return server, states, jax.tree.map(lambda all_, one: put(all_, one, place, 0), costs, cost)

    shape = jax.eval_shape(round_at, 0, lane.server, lane.states)[2]
    length = numbers.shape[0]
    costs = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), shape)
    # a counted loop rather than a scan: a block cut short runs in the same program
    server, states, costs = jax.lax.fori_loop(0, rounds.count, one_round, (lane.server, lane.states, costs))
    done = jnp.arange(length, dtype=jnp.int32) < rounds.count  # the rounds of a block cut short cost nothing
    if isinstance(costs.executed_steps, Fixed):
        costs = costs._replace(executed_steps=jnp.where(done, jnp.int32(int(costs.executed_steps)), 0))
    if not how.chunk:
        who = everybody(data) if cohorts is None else cohorts
        table = (length, who.clients.shape[-1])
        clients, present = jnp.broadcast_to(who.clients, table), jnp.broadcast_to(who.present, table)
        costs = costs._replace(clients=clients, present=present & done[:, None])
    return server, states, costs


@functools.partial(jax.jit, static_argnames=("how", "lanes"))
def run_block(
    lane: Lane, data: ClientData, rounds: Rounds, turns: Any = None, *, how: How, lanes: str
) -> tuple[Any, Any, RoundCost]:
    """Run rounds in one program; costs: one row per round.

    `lanes` is "one" (no lane axis), "together" (a `vmap` over lanes) or "in_turn" (for drawn step counts, which would
    otherwise run in lockstep): then every leaf of `lane` has a lane axis. In turn, the rows of `turns` (lane numbers)
    come one after another, the lanes of a row side by side.
    """
    TRACES["block"] += 1
    if lanes == "one":
        return _block(lane, data, rounds, how)

    def one(own: Lane) -> tuple[Any, Any, RoundCost]:
        return _block(own, data, rounds, how)

    if lanes == "together" or turns.shape[0] == 1:
        return jax.vmap(one)(lane)
    if turns.shape[1] == 1:
        return jax.lax.map(one, lane)
    done = jax.lax.map(jax.vmap(one), tree.take(lane, turns))
    back = jnp.argsort(turns.reshape(-1))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], done)
