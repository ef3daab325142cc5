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
from idiolect.engines.plan import Plan
from idiolect.engines.population import Gathered, InMemory
from idiolect.engines.round import Cohort, How, RoundCost, finite_rows
from idiolect.engines.shard import to_host
from idiolect.engines.state import State


class Moved(NamedTuple):
    """What a block of rounds ends with; everything has a lane axis."""

    server: Tree
    states: Tree  # of the clients that were gathered
    costs: RoundCost  # (lanes, rounds, ...)
    gathered: Gathered


class Launched(NamedTuple):
    """A block that the device works on: what it ends with is known to the device, what it cost not yet to the host."""

    moved: Moved  # its costs are on the device
    drained: jax.Array  # which servers are finite, and all costs, as one array: one transfer
    rounds: range
    began: float

    def after(self, state: State) -> State:
        """The state to launch the next block or a record from; its accounts and clock are still those before."""
        return state._replace(round=self.rounds.stop, server=self.moved.server, clients=self.moved.states)


def move(plan: Plan, state: State, count: int) -> Moved:
    """The next `count` rounds as one block; nothing is kept."""
    return _drain(launch(plan, state, count))[0]


def launch(plan: Plan, state: State, count: int) -> Launched:
    """Have the device begin the next `count` rounds; the host does not wait for them."""
    began = time.perf_counter()
    moved = _begin_block(plan, state, count)
    with door.run_precision(plan.training.precision):
        drained = _as_one(moved.server, moved.costs, len(plan.seeds))
        drained.copy_to_host_async()
    return Launched(moved, drained, range(state.round, state.round + count), began)


@functools.partial(jax.jit, static_argnums=2)
def _as_one(servers: Tree, costs: RoundCost, lanes: int) -> jax.Array:
    """Whether each lane's server is finite, and the costs: leaf by leaf, they would take longer than a small round."""
    leaves = [finite_rows(servers, lanes), *jax.tree.leaves(costs)]
    return jnp.concatenate([leaf.astype(jnp.int32).ravel() for leaf in leaves])


def can_run_ahead(plan: Plan, state: State) -> bool:
    """Whether a block may be launched before the last one is settled: on one device, with memory for a state more."""
    # of several devices, programs that exchange something must be launched one after another
    if plan.widest == 0 or plan.shards is not None or plan.training.executor.startswith("looped"):
        return False
    free = demand.free_on_device()
    more = tree.size_in_bytes((state.server, state.clients))
    return isinstance(plan.population, InMemory) and (free is None or 4 * more < free)


def _drain(launched: Launched) -> tuple[Moved, np.ndarray]:
    """The block with its costs on the host, once it is done, and (lanes,) whose server is finite."""
    moved, count = launched.moved, len(launched.rounds)
    leaves, structure = jax.tree.flatten(moved.costs)
    lanes = len(leaves[0])
    parts = np.split(to_host(launched.drained), np.cumsum([lanes, *(leaf.size for leaf in leaves)])[:-1])
    # cut on the host: slices of device arrays would take longer than a small round
    host = [part.reshape(leaf.shape)[:, :count].astype(leaf.dtype) for part, leaf in zip(parts[1:], leaves)]
    return moved._replace(costs=jax.tree.unflatten(structure, host)), parts[0] != 0


def _begin_block(plan: Plan, state: State, count: int) -> Moved:
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
        if looped:
            return Moved(*_lane_by_lane(plan, lane, gathered.data, numbers), gathered)
        chunk = training.chunk if training.executor == "chunked" else 0
        block = Rounds(numbers, np.int32(count))
        how = How(plan.uniform, chunk, plan.shards)
        server, states, costs = run_block(lane, gathered.data, block, plan.turns, how=how, lanes=plan.lanes)
    return Moved(server, states, costs, gathered)


def _draw(plan: Plan, state: State, rounds: range) -> tuple[Gathered, Cohort | None]:
    """Who is in these rounds, and what they hold; no cohort: all clients, every round."""
    if all(who.whole for who in plan.participations):
        return plan.population.gather(state.clients, None), None
    drawn = [who.draw(seed, rounds, max(plan.widest, 1)) for who, seed in zip(plan.participations, plan.seeds)]
    members, present = (np.stack(part) for part in zip(*drawn))
    if plan.shards is not None:
        dealt = plan.shards.deal(members, present, plan.share)
        return plan.population.gather(state.clients, None), Cohort(*dealt)
    # PADDING pads lanes of smaller cohorts and is no row of any table: read client 0, which nothing is written back to
    gathered = plan.population.gather(state.clients, np.where(members == PADDING, 0, members))
    return gathered, Cohort(members, gathered.places, present)


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
    if plan.widest == 0:  # no client takes part in any lane: nothing moves, nothing is sent
        plan.population.mark(state.round + rounds)
        return state._replace(round=state.round + rounds)
    return settle(plan, state, launch(plan, state, rounds), paid=paid)


def settle(plan: Plan, state: State, launched: Launched, *, since: float = 0.0, paid: bool = True) -> State:
    """What `advance` returns, of a block that was launched from `state`. Its clock runs from `since` or its launch."""
    moved, finite = _drain(launched)
    accounts, reached = state.accounts, launched.rounds.stop
    if paid:
        each = enumerate(accounts)
        accounts = tuple(
            _mark(account, tree.take(moved.costs, lane), bool(finite[lane]), state.round) for lane, account in each
        )
        # several lanes go on without the lost one, whose numbers are not read again; a single run ends
        if len(accounts) == 1 and not accounts[0].sound:  # nothing of this block is in the state that is kept
            return state._replace(accounts=accounts)
        each_lane = zip(accounts, plan.algorithms, plan.participations)
        with door.run_precision(plan.training.precision):  # a method that bills for itself looks at its settings
            accounts = tuple(
                bill_block(account, tree.take(moved.costs, lane), launched.rounds, algorithm, who, plan.wire)
                for lane, (account, algorithm, who) in enumerate(each_lane)
            )
    clients = plan.population.scatter(moved.gathered, moved.states, reached)
    seconds = state.seconds + time.perf_counter() - max(since, launched.began)
    return State(reached, seconds, moved.server, clients, accounts, state.selected, state.best)


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
