# SPDX-License-Identifier: Apache-2.0
"""Rounds fused into one compiled block, for one run or for many lanes (seeds, settings) at once."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.control import first_turn
from idiolect.core.data import Array, ClientData
from idiolect.core.keys import Key
from idiolect.core.tree import Tree
from idiolect.engines.compiler import OPTIONS
from idiolect.engines.packed import Packed, pack
from idiolect.engines.round import Clients, Cohort, Fixed, How, Outcome, RoundCost, finite_rows, run_round, whole_cohort
from idiolect.engines.server import open_round
from idiolect.engines.shard import EVERYWHERE, by_client

TRACES: Counter[str] = Counter()  # how often each program was traced; a test holds it to once per shape


class Lane(NamedTuple):
    """One run: an algorithm, the root of its draws, where it stands, and who is in its rounds (None: all clients)."""

    algorithm: Algorithm
    root: Key
    server: Tree
    states: Tree
    cohorts: Cohort | None


# how a block's arguments and results are cut over devices: clients, behind axes of lanes and of rounds
_LANE = Lane._make([EVERYWHERE, EVERYWHERE, EVERYWHERE, by_client(1), by_client(2)])
_TAKEN = (_LANE, by_client(0), EVERYWHERE, EVERYWHERE)
_COSTS = RoundCost._make([by_client(2), by_client(2), EVERYWHERE, by_client(2), EVERYWHERE])
_RETURNED = (EVERYWHERE, by_client(1), _COSTS)


class Rounds(NamedTuple):
    """The rounds of a block, of which the first `count` are run."""

    numbers: Array
    count: Any


class Ended(NamedTuple):
    """What a block leads to; everything has a lane axis."""

    server: Tree
    states: Tree
    report: Packed  # (whose server is finite, costs: one row per lane and round)


@functools.partial(jax.jit, static_argnames=("how",))
def run_lane(lane: Lane, data: ClientData, rounds: Rounds, *, how: How) -> Outcome:
    """Rounds of one lane, without a lane axis; costs: one row per round."""
    cohorts, numbers = lane.cohorts, rounds.numbers

    # traced once, for its shapes and for the loop: inlined, it leaves the program as it would be without
    @functools.partial(jax.jit, inline=True)
    def round_at(place: ArrayLike, server: Tree, states: Tree) -> Outcome:
        cohort = None if cohorts is None else tree.take(cohorts, place)
        now = open_round(lane.algorithm, lane.root, numbers[place], server)
        server, states, cost = run_round(now, server, Clients(states, data), cohort, how)
        if not how.chunk:  # as one batch a cohort keeps its order: who was there stands in `cohorts`
            cost = cost._replace(clients=(), present=())
        return server, states, cost

    def one_round(place: ArrayLike, carried: Outcome) -> Outcome:
        server, states, costs = carried
        server, states, cost = round_at(place, server, states)
        # not `.at[place].set`: `place` is in range by construction, and checking it costs as much as writing
        put = jax.lax.dynamic_update_index_in_dim
        return server, states, jax.tree.map(lambda all_, one: put(all_, one, place, 0), costs, cost)

    # the loop writes into a table of costs that is there before it: only its shape is needed, and nothing is computed
    # for it
    shape = jax.eval_shape(round_at, first_turn(rounds.count), lane.server, lane.states)[2]
    length = numbers.shape[0]
    costs = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), shape)
    # a counted loop rather than a scan: a block cut short runs in the same program
    server, states, costs = jax.lax.fori_loop(0, rounds.count, one_round, (lane.server, lane.states, costs))
    done = jnp.arange(length, dtype=jnp.int32) < rounds.count  # the rounds of a block cut short cost nothing
    if isinstance(costs.executed_steps, Fixed):
        costs = costs._replace(executed_steps=jnp.where(done, jnp.int32(int(costs.executed_steps)), 0))
    if not how.chunk:
        who = whole_cohort(data, how.shards) if cohorts is None else cohorts
        table = (length, who.clients.shape[-1])
        clients, present = jnp.broadcast_to(who.clients, table), jnp.broadcast_to(who.present, table)
        costs = costs._replace(clients=clients, present=present & done[:, None])
    return server, states, costs


@functools.partial(jax.jit, static_argnames=("how", "lanes"), compiler_options=OPTIONS)
def run_block(
    lane: Lane, data: ClientData, rounds: Rounds, turns: np.ndarray | None = None, *, how: How, lanes: str
) -> Ended:
    """Run rounds of every lane in one program. Every leaf of `lane` has a lane axis.

    `lanes` is "one" (the axis has length 1), "together" (a `vmap` over lanes) or "in_turn" (for drawn step counts,
    which would otherwise run in lockstep): the rows of `turns` (lane numbers) come one after another, the lanes of a
    row side by side.
    """
    TRACES["block"] += 1

    def block(lane: Lane, data: ClientData, rounds: Rounds, turns: np.ndarray | None) -> Outcome:
        return over_lanes(lambda own: run_lane(own, data, rounds, how=how), lane, lanes, turns)

    if how.shards is not None:
        block = how.shards.over(block, _TAKEN, _RETURNED)
    return ended(*block(lane, data, rounds, turns))


def ended(server: Tree, states: Tree, costs: RoundCost) -> Ended:
    """What `run_block` returns."""
    return Ended(server, states, pack((finite_rows(server, costs.present.shape[0]), costs)))


def over_lanes(function: Callable[[Tree], Tree], stacked: Tree, lanes: str, turns: np.ndarray | None = None) -> Tree:
    """`function` of every lane of `stacked`; its results have the lane axis again."""
    if lanes == "one":
        # no `vmap` of length 1: a branch on what the server drew would be computed both ways
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(tree.take(stacked, 0)))
    if lanes == "together" or (turns is not None and turns.shape[0] == 1):
        return jax.vmap(function)(stacked)
    # one after another, in one program: side by side, all would take as many steps as the lane that drew most
    if turns is None or turns.shape[1] == 1:
        return jax.lax.map(function, stacked)
    done = jax.lax.map(jax.vmap(function), tree.take(stacked, turns))
    # lanes come out in the order of their turns: sorted back into their own
    back = jnp.argsort(turns.reshape(-1))
    return tree.take(tree.join_axes(done), back)
