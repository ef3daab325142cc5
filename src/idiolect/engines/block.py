# SPDX-License-Identifier: Apache-2.0
"""Rounds fused into one compiled block, for one run or for many lanes (seeds, settings) at once."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key
from idiolect.engines.round import Cohort, Fixed, RoundCost, everybody, run_round

TRACES: Counter[str] = Counter()  # how often each program was traced; a test holds it to once per shape


def _block(
    algorithm: Algorithm,
    root: Key,
    server: Any,
    states: Any,
    data: ClientData,
    rounds: Any,
    count: Any,
    cohorts: Cohort | None,
    uniform: bool,
    chunk: int,
) -> tuple[Any, Any, RoundCost]:
    def round_at(place: Any, server: Any, states: Any) -> tuple[Any, Any, RoundCost]:
        cohort = None if cohorts is None else tree.take(cohorts, place)
        arguments = (algorithm, root, rounds[place], server, states, data, cohort)
        server, states, cost = run_round(*arguments, uniform=uniform, chunk=chunk)
        if not chunk:  # as one batch a cohort keeps its order: who was there stands in `cohorts`
            cost = cost._replace(clients=(), present=())
        return server, states, cost

    def one_round(place: Any, carried: tuple[Any, Any, RoundCost]) -> tuple[Any, Any, RoundCost]:
        server, states, costs = carried
        server, states, cost = round_at(place, server, states)
        # not `.at[place].set`: `place` is in range by construction, and checking it costs as much as writing
        put = jax.lax.dynamic_update_index_in_dim
        return server, states, jax.tree.map(lambda all_, one: put(all_, one, place, 0), costs, cost)

    shape = jax.eval_shape(round_at, 0, server, states)[2]
    costs = jax.tree.map(lambda leaf: jnp.zeros((rounds.shape[0], *leaf.shape), leaf.dtype), shape)
    # a counted loop rather than a scan: a block cut short runs in the same program
    server, states, costs = jax.lax.fori_loop(0, count, one_round, (server, states, costs))
    done = jnp.arange(rounds.shape[0], dtype=jnp.int32) < count  # the rounds of a block cut short cost nothing
    if isinstance(costs.executed_steps, Fixed):
        costs = costs._replace(executed_steps=jnp.where(done, jnp.int32(int(costs.executed_steps)), 0))
    if not chunk:
        who = everybody(data) if cohorts is None else cohorts
        table = (rounds.shape[0], who.clients.shape[-1])
        clients, present = jnp.broadcast_to(who.clients, table), jnp.broadcast_to(who.present, table)
        costs = costs._replace(clients=clients, present=present & done[:, None])
    return server, states, costs


@functools.partial(jax.jit, static_argnames=("uniform", "chunk", "lanes"))
def run_block(
    algorithm: Algorithm,
    root: Key,
    server: Any,
    states: Any,
    data: ClientData,
    rounds: Any,
    count: Any,
    cohorts: Cohort | None,
    turns: Any = None,
    *,
    uniform: bool,
    chunk: int,
    lanes: str,
) -> tuple[Any, Any, RoundCost]:
    """Run the first `count` of `rounds` (an array of round numbers) in one program; costs: one row per round.

    `lanes` is "one" (no lane axis), "together" (a `vmap` over lanes) or "in_turn" (for drawn step counts, which would
    otherwise run in lockstep): then everything but `data`, `rounds` and `count` has a lane axis. In turn, the rows of
    `turns` (lane numbers) come one after another, the lanes of a row side by side.
    """
    TRACES["block"] += 1
    if lanes == "one":
        return _block(algorithm, root, server, states, data, rounds, count, cohorts, uniform, chunk)

    def lane(own: tuple[Algorithm, Key, Any, Any, Cohort | None]) -> tuple[Any, Any, RoundCost]:
        algorithm, root, server, states, cohorts = own
        return _block(algorithm, root, server, states, data, rounds, count, cohorts, uniform, chunk)

    everything = (algorithm, root, server, states, cohorts)
    if lanes == "together" or turns.shape[0] == 1:
        return jax.vmap(lane)(everything)
    if turns.shape[1] == 1:
        return jax.lax.map(lane, everything)
    done = jax.lax.map(jax.vmap(lane), tree.take(everything, turns))
    back = jnp.argsort(turns.reshape(-1))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], done)
