# SPDX-License-Identifier: Apache-2.0
"""From one state of a run to a later one: rounds in compiled blocks, drained into exact accounts."""

from __future__ import annotations

import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import tree
from idiolect.core.data import ClientData
from idiolect.core.tree import Tree
from idiolect.engines import demand, door
from idiolect.engines.billing import Account, bill_block
from idiolect.engines.block import Lane, Rounds, run_block
from idiolect.engines.cohorts import PADDING
from idiolect.engines.looped import run_looped
from idiolect.engines.on_disk import OnDisk
from idiolect.engines.plan import Plan
from idiolect.engines.population import Gathered
from idiolect.engines.round import Cohort, How, RoundCost, finite_rows
from idiolect.engines.shard import to_host
from idiolect.engines.state import State


class Moved(NamedTuple):
    """What a block of rounds ends with; everything has a lane axis."""

    server: Tree
    states: Tree  # of the clients that were gathered
    costs: RoundCost  # (lanes, rounds, ...)
    gathered: Gathered


def move(plan: Plan, state: State, count: int, ahead: bool = False) -> Moved:
    """The next `count` rounds as one block; nothing is kept. `ahead`: the block after it is sure to be asked for."""
    training = plan.training
    looped = training.executor.startswith("looped")
    # a compiled block always has its full length, of which `count` rounds are run: one program for all
    length = training.block or demand.block_length(training, plan.widest, len(plan.seeds))
    rounds = range(state.round, state.round + (count if looped else max(length, count)))
    with door.run_precision(training.precision):
        gathered, cohorts = _draw(plan, state, rounds)
        # an argument, not a constant of the program: every block of a run uses the same one
        numbers = np.asarray(rounds, np.int32)
        lane = Lane(plan.algorithm, plan.roots, state.server, gathered.states, cohorts)
        following = range(rounds.start + count, rounds.stop + count)
        if looped:
            _look_ahead(plan, gathered, following, ahead)
            return Moved(*_lane_by_lane(plan, lane, gathered.data, numbers), gathered)
        chunk = training.chunk if training.executor == "chunked" else 0
        block = Rounds(numbers, np.int32(count))
        how = How(plan.uniform, chunk, plan.shards)
        server, states, costs = run_block(lane, gathered.data, block, plan.turns, how=how, lanes=plan.lanes)
        _look_ahead(plan, gathered, following, ahead)  # JAX has begun to compute, and does not wait for the disk
        # cut on the host: slices of device arrays would take longer than a small round
        host = jax.tree.map(lambda leaf: to_host(leaf)[:, :count], costs)
    return Moved(server, states, host, gathered)


def _draw(plan: Plan, state: State, rounds: range) -> tuple[Gathered, Cohort | None]:
    """Who is in these rounds, and what they hold; no cohort: all clients, every round."""
    if all(who.whole for who in plan.participations):
        return plan.population.gather(state.clients, None), None
    members, present = _draw_members(plan, rounds)
    if plan.shards is not None:
        dealt = plan.shards.deal(members, present, plan.share)
        return plan.population.gather(state.clients, None), Cohort(*dealt)
    gathered = plan.population.gather(state.clients, _real(members))
    return gathered, Cohort(members, gathered.places, present)


def _look_ahead(plan: Plan, gathered: Gathered, following: range, ahead: bool) -> None:
    """Where rows and states are on disk, have those of the rounds that follow read while these are computed."""
    drawn = not all(who.whole for who in plan.participations)
    if ahead and drawn and isinstance(plan.population, OnDisk):
        plan.population.look_ahead(gathered, _real(_draw_members(plan, following)[0]))


def _draw_members(plan: Plan, rounds: range) -> tuple[np.ndarray, np.ndarray]:
    """(lanes, rounds, cohort): who is asked, and who of them is present."""
    drawn = [who.draw(seed, rounds, max(plan.widest, 1)) for who, seed in zip(plan.participations, plan.seeds)]
    members, present = (np.stack(part) for part in zip(*drawn))
    return members, present


def _real(members: np.ndarray) -> np.ndarray:
    """PADDING pads lanes of smaller cohorts and is no row of any table: client 0, which nothing is written back to."""
    return np.where(members == PADDING, 0, members)


def _lane_by_lane(plan: Plan, lane: Lane, data: ClientData, rounds: np.ndarray) -> tuple[Tree, Tree, RoundCost]:
    """A block of the looped executor, which knows one lane: one after another where there are several."""
    per_step = plan.training.executor == "looped_steps"
    done = [run_looped(tree.take(lane, place), data, rounds, per_step=per_step) for place in range(len(plan.seeds))]
    server, states, costs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *done)
    return server, states, jax.tree.map(np.asarray, costs)


def advance(plan: Plan, state: State, rounds: int, *, paid: bool = True) -> State:
    """The state `rounds` rounds later. Use no more than a block has: a longer one compiles anew.

    A lane whose numbers are no longer finite is marked in its account. A single one is also left where it was. Where
    rounds are not `paid` for, neither is looked at.
    """
    began, reached, training = time.perf_counter(), state.round + rounds, plan.training
    if plan.widest == 0:  # no client takes part in any lane: nothing moves, nothing is sent
        plan.population.mark(reached)
        return state._replace(round=reached)
    moved = move(plan, state, rounds, ahead=reached < training.rounds)
    accounts = state.accounts
    if paid:
        accounts = _mark_diverged(plan, state, moved)
        # several lanes go on without the lost one, whose numbers are not read again; a single run ends
        if len(accounts) == 1 and not accounts[0].sound:  # nothing of this block is in the state that is kept
            return state._replace(accounts=accounts)
        each = zip(accounts, plan.algorithms, plan.participations)
        block = range(state.round, reached)
        with door.run_precision(training.precision):  # a method that bills for itself looks at its settings
            accounts = tuple(
                bill_block(account, tree.take(moved.costs, lane), block, algorithm, who, plan.wire)
                for lane, (account, algorithm, who) in enumerate(each)
            )
    clients = plan.population.scatter(moved.gathered, moved.states, reached)
    seconds = state.seconds + time.perf_counter() - began
    return State(reached, seconds, moved.server, clients, accounts, state.selected, state.best)


def _mark_diverged(plan: Plan, state: State, moved: Moved) -> tuple[Account, ...]:
    with door.run_precision(plan.training.precision):
        finite = np.asarray(_finite_servers(moved.server, len(plan.seeds)))
    return tuple(
        _mark(account, tree.take(moved.costs, lane), bool(finite[lane]), state.round)
        for lane, account in enumerate(state.accounts)
    )


def _mark(account: Account, costs: RoundCost, finite: bool, before: int) -> Account:
    """The account with the first round, and client, whose numbers are not finite; the server is seen at the end."""
    # the work of an absent client was computed and thrown away: whatever it became, nothing is lost
    lost = costs.present & ~costs.finite
    if not account.sound or (finite and not lost.any()):
        return account
    if not lost.any():
        return account._replace(diverged_round=before + len(lost))
    first, place = np.argwhere(lost)[0]
    return account._replace(diverged_round=before + int(first) + 1, diverged_client=int(costs.clients[first, place]))


@functools.partial(jax.jit, static_argnums=1)
def _finite_servers(servers: Tree, lanes: int) -> jax.Array:
    """Whether each lane's server is finite; a server that holds nothing is."""
    return finite_rows(servers, lanes)
