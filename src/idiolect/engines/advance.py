# SPDX-License-Identifier: Apache-2.0
"""From one state of a run to a later one: rounds in compiled blocks, drained into exact accounts."""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import tree
from idiolect.core.data import ClientData
from idiolect.core.tree import Tree
from idiolect.engines import demand, door
from idiolect.engines.billing import Account, bill_block
from idiolect.engines.block import Ended, Lane, Rounds, ended, run_block
from idiolect.engines.cohorts import PADDING
from idiolect.engines.looped import run_looped
from idiolect.engines.on_disk import OnDisk
from idiolect.engines.plan import Plan
from idiolect.engines.population import Gathered, InMemory
from idiolect.engines.round import Cohort, How, RoundCost
from idiolect.engines.state import State


class Moved(NamedTuple):
    """What a block of rounds ended with; everything has a lane axis."""

    server: Tree
    states: Tree  # of the clients that were gathered
    costs: RoundCost  # (lanes, rounds, ...), on the host
    finite: np.ndarray  # (lanes,) whether the server's numbers are


class Launched(NamedTuple):
    """A block that the device works on: what it leads to is known there, what it cost not yet to the host."""

    ended: Ended
    gathered: Gathered
    rounds: range
    began: float

    def after(self, state: State) -> State:
        """The state to launch the next block or a record from; its accounts and clock are still those before."""
        return state._replace(round=self.rounds.stop, server=self.ended.server, clients=self.ended.states)

    def wait(self) -> Moved:
        """The block, once it is done."""
        finite, costs = self.ended.report.open()
        # cut on the host: slices of device arrays would take longer than a small round
        cut = jax.tree.map(lambda leaf: leaf[:, : len(self.rounds)], costs)
        return Moved(self.ended.server, self.ended.states, cut, finite)


def move(plan: Plan, state: State, count: int) -> Moved:
    """The next `count` rounds as one block; nothing is kept."""
    return launch(plan, state, count).wait()


def launch(plan: Plan, state: State, count: int, ahead: bool = False) -> Launched:
    """Have the device begin the next `count` rounds; the host does not wait for them.

    `ahead`: the block after it is sure to be asked for.
    """
    began, rounds = time.perf_counter(), range(state.round, state.round + count)
    with door.run_precision(plan.training.precision):
        gathered, arguments, named = _block(plan, state, count)
        following = range(rounds.stop, rounds.stop + len(arguments[2].numbers)) if ahead else range(0)
        if plan.training.executor.startswith("looped"):
            _look_ahead(plan, gathered, following)
            done = _lane_by_lane(plan, *arguments[:3])
        else:
            done = run_block(*arguments, **named)  # JAX begins to compute, and does not wait for the disk
            _look_ahead(plan, gathered, following)
        done.report.begin_transfer()
    return Launched(done, gathered, rounds, began)


def lower_block(plan: Plan, state: State) -> Any:
    """The program of a block as the compiler gets it; the executor must be batched or chunked."""
    _, arguments, named = _block(plan, state, 1)
    return run_block.lower(*arguments, **named)


def _block(plan: Plan, state: State, count: int) -> tuple[Gathered, tuple[Any, ...], dict[str, Any]]:
    """What `run_block` takes."""
    training, length = plan.training, count
    if not training.executor.startswith("looped"):
        # a compiled block always has its full length, of which `count` rounds are run: one program for all
        length = max(training.block, count)
    rounds = range(state.round, state.round + length)
    gathered, cohorts = _draw(plan, state, rounds)
    lane = Lane(plan.algorithm, plan.roots, state.server, gathered.states, cohorts)
    how = How(plan.uniform, training.chunk if training.executor == "chunked" else 0, plan.shards)
    # round numbers are an argument, not a constant of the program: every block of a run uses the same one
    numbers = Rounds(np.asarray(rounds, np.int32), np.int32(count))
    return gathered, (lane, gathered.data, numbers, plan.turns), {"how": how, "lanes": plan.lanes}


def can_run_ahead(plan: Plan, state: State) -> bool:
    """Whether a block may be launched before the last one is settled: on one device, with memory for a state more."""
    # of several devices, programs that exchange something must be launched one after another
    if plan.widest == 0 or plan.shards is not None or plan.training.executor.startswith("looped"):
        return False
    free = demand.free_on_device()
    more = tree.size_in_bytes((state.server, state.clients))
    return isinstance(plan.population, InMemory) and (free is None or 4 * more < free)


def _draw(plan: Plan, state: State, rounds: range) -> tuple[Gathered, Cohort | None]:
    """Who is in these rounds, and what they hold; no cohort: all clients, every round."""
    if all(who.whole for who in plan.participations):
        return plan.population.gather(state.clients, None), None
    drawn = _draw_members(plan, rounds)
    if plan.shards is not None:
        return plan.population.gather(state.clients, None), Cohort(*plan.shards.deal(drawn.clients, drawn.present))
    gathered = plan.population.gather(state.clients, drawn.rows)
    return gathered, drawn._replace(rows=gathered.places)


def _look_ahead(plan: Plan, gathered: Gathered, following: range) -> None:
    """Where rows and states are on disk, have those of the rounds that follow read while these are computed."""
    if following and isinstance(plan.population, OnDisk) and not plan.participations[0].whole:
        plan.population.look_ahead(gathered, _draw_members(plan, following).rows)


def _draw_members(plan: Plan, rounds: range) -> Cohort:
    """(lanes, rounds, cohort): who is asked, and who of them is present."""
    drawn = [who.draw(seed, rounds, max(plan.widest, 1)) for who, seed in zip(plan.participations, plan.seeds)]
    members, present = (np.stack(part) for part in zip(*drawn))
    # PADDING pads lanes of smaller cohorts and is no row of any table: client 0, which nothing is written back to
    return Cohort(members, np.where(members == PADDING, 0, members), present)


def _lane_by_lane(plan: Plan, lane: Lane, data: ClientData, rounds: Rounds) -> Ended:
    """A block of the looped executor, which knows one lane: one after another where there are several."""
    run = functools.partial(run_looped, per_step=plan.training.executor == "looped_steps")
    done = [run(tree.take(lane, place), data, rounds.numbers) for place in range(len(plan.seeds))]
    return _ended(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *done))


_ended = jax.jit(ended)


def advance(plan: Plan, state: State, rounds: int, *, paid: bool = True) -> State:
    """The state `rounds` rounds later. Use no more than a block has: a longer one compiles anew.

    A lane whose numbers are no longer finite is marked in its account. A single one is also left where it was. Where
    rounds are not `paid` for, neither is looked at.
    """
    if plan.widest == 0:  # no client takes part in any lane: nothing moves, nothing is sent
        plan.population.mark(state.round + rounds)
        return state._replace(round=state.round + rounds)
    ahead = state.round + rounds < plan.training.rounds
    return settle(plan, state, launch(plan, state, rounds, ahead), paid=paid)


def settle(plan: Plan, state: State, launched: Launched, *, since: float = 0.0, paid: bool = True) -> State:
    """What `advance` returns, of a block that was launched from `state`. Its clock runs from `since` or its launch."""
    moved = launched.wait()
    accounts, reached = state.accounts, launched.rounds.stop
    if paid:
        costs = [tree.take(moved.costs, lane) for lane in range(len(accounts))]
        accounts = tuple(_mark(*lane, state.round) for lane in zip(accounts, costs, moved.finite))
        # several lanes go on without the lost one, whose numbers are not read again; a single run ends
        if len(accounts) == 1 and not accounts[0].sound:  # nothing of this block is in the state that is kept
            return state._replace(accounts=accounts)
        lanes = zip(accounts, costs)
        with door.run_precision(plan.training.precision):  # a method that bills for itself looks at its settings
            accounts = tuple(bill_block(*own, launched.rounds, plan.terms(lane)) for lane, own in enumerate(lanes))
    clients = plan.population.scatter(launched.gathered, moved.states, reached)
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
