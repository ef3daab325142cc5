# SPDX-License-Identifier: Apache-2.0
"""Where a run stands between two blocks of rounds: all that the next round, the next record and the end depend on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import tree
from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.core.objective import Prepares
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree
from idiolect.engines import door
from idiolect.engines.billing import Account, open_account
from idiolect.engines.plan import Options, Plan
from idiolect.engines.population import InMemory, unprepared
from idiolect.engines.shard import to_host
from idiolect.engines.start import carry, init_servers


class Snapshot(NamedTuple):
    """What server and clients hold after a round: of one lane, or of all lanes, then with a lane axis in front."""

    round: Array  # one number, or one per lane
    server: Tree
    states: Tree  # one row per client; None where they are on disk


class State(NamedTuple):
    """A pytree of arrays and plain numbers; arrays have a lane axis in front, also where there is one lane.

    `advance` and `record` return a new one and leave the old as it was; client states on disk are the exception: their
    file stands where the newest state does.
    """

    round: int
    seconds: float  # of the blocks
    server: Tree
    clients: Tree  # (lanes, clients, ...); None where they are on disk
    accounts: tuple[Account, ...]  # by lane
    selected: Snapshot  # of every lane, its best recorded round on validation rows
    best: tuple[tuple[float, ...], ...]  # by lane: what validation rows said then, larger is better; NaN: nothing yet

    @property
    def now(self) -> Snapshot:
        """Where all lanes stand."""
        return Snapshot(np.full(len(self.accounts), self.round, np.int32), self.server, self.clients)


def begin(plan: Plan, options: Options) -> State:
    """The state before the first round."""
    with door.run_precision(plan.training.precision):
        server = init_servers(plan.algorithm, plan.roots)
        clients, spent, lost = plan.population.start(plan.algorithm, plan.roots)
        accounts = _open_accounts(plan, spent, lost)
    prepared = getattr(plan.federation, "preparation", None)
    accounts = tuple(account.prepare(prepared) for account in accounts)
    if options.spent:
        paid = zip(accounts, options.spent, strict=True)
        accounts = tuple(account._replace(ledger=account.ledger + before) for account, before in paid)
    return _first(plan, 0, server, clients, accounts)


def follow(plan: Plan, earlier: Plan, state: State) -> State:
    """The state to go on with where another plan, of the same algorithm with other settings, stands.

    Rounds count on; ledger, selected round and clock are its own.
    """
    kinds = [[(type(one), type(one.objective)) for one in which.algorithms] for which in (plan, earlier)]
    if kinds[0] != kinds[1] or plan.training.precision != earlier.training.precision:
        raise RequestError(
            "A run can go on after another only with its algorithm, objective and precision; change settings alone, or "
            "start a new one."
        )
    if not isinstance(plan.population, InMemory):
        raise RequestError("A run can go on after another only with client states in memory; use no state_folder.")
    # a method may look at all clients at once here: there must be no row that is not a client's
    state, data = take_up(earlier, state), plan.population.data
    with door.run_precision(plan.training.precision):
        _, data = _on_one_device(plan, (), data, axis=0)
        numbers = jnp.arange(plan.federation.train.clients, dtype=jnp.int32)
        change = (plan.algorithm, earlier.algorithm)
        server, clients, spent = jax.vmap(carry, in_axes=(0, 0, 0, None, 0, None))(
            change, plan.roots, state.server, numbers, state.clients, data
        )
        accounts = _open_accounts(plan, spent, unprepared(plan.algorithm, np.asarray(numbers), clients))
    return _first(plan, state.round, server, clients, accounts)


def lay_out(plan: Plan, state: State) -> State:
    """The state with its arrays where the plan's devices want them; on one device it is as it was."""
    shards = plan.shards
    if shards is None:
        return state
    return _rearrange(plan, state, lambda server, clients: (shards.lay(server, axis=None), shards.lay(clients, axis=1)))


def take_up(plan: Plan, state: State) -> State:
    """The state with its arrays on one device, a row per client: what does not depend on how a run was laid out."""
    return _rearrange(plan, state, lambda server, clients: _on_one_device(plan, server, clients, axis=1))


def _rearrange(plan: Plan, state: State, move: Callable[[Tree, Tree], tuple[Tree, Tree]]) -> State:
    """The state with all that `move` makes of a server and its clients."""
    with door.run_precision(plan.training.precision):
        server, clients = move(state.server, state.clients)
        selected = Snapshot(state.selected.round, *move(*state.selected[1:]))
        return state._replace(server=server, clients=clients, selected=selected)


def _on_one_device(plan: Plan, server: Tree, clients: Tree, axis: int) -> tuple[Tree, Tree]:
    """What lay over several devices, a row per client along `axis`; what did not, as it is."""
    if plan.shards is None:
        return server, clients
    return jax.tree.map(jnp.asarray, (jax.tree.map(to_host, server), plan.shards.cut(clients, axis)))


def _open_accounts(plan: Plan, spent: Tally, lost: int | None) -> tuple[Account, ...]:
    """`spent` has a row per lane and client."""
    if lost is not None:
        objective = plan.algorithms[0].objective
        assert isinstance(objective, Prepares)
        raise RequestError(f"Client {plan.federation.names[lost]!r} {objective.why_unprepared()}.")
    # on the host, where sums cannot overflow
    sums = [np.sum(np.asarray(count, np.int64), axis=-1) for count in spent]
    clients = plan.federation.train.clients
    return tuple(open_account(clients, Tally(*(int(count[lane]) for count in sums))) for lane in range(len(plan.seeds)))


def _first(plan: Plan, number: int, server: Tree, clients: Tree, accounts: tuple[Account, ...]) -> State:
    nothing = ((math.nan,) * len(plan.scores),) * len(plan.seeds)
    here = Snapshot(np.full(len(accounts), number, np.int32), server, clients)
    return lay_out(plan, State(number, 0.0, server, clients, accounts, here, nothing))


def lane_of(plan: Plan, at: Snapshot, lane: int) -> Snapshot:
    """One lane of all."""
    with door.run_precision(plan.training.precision):
        server, states = _lane_of((at.server, at.states), np.int32(lane))
        return Snapshot(int(at.round[lane]), *_on_one_device(plan, server, states, axis=0))


_lane_of = jax.jit(tree.take)  # by one program: leaf by leaf it would take longer than a small round


def choose_lanes(plan: Plan, better: list[bool], new: Snapshot, old: Snapshot) -> Snapshot:
    """`new` in the lanes that are better, `old` in the others; nothing is copied where all lanes agree."""
    if not any(better):
        return old
    if all(better):
        return new
    rounds = np.where(better, new.round, old.round)
    with door.run_precision(plan.training.precision):
        return Snapshot(rounds, *_choose_lanes(np.asarray(better), new[1:], old[1:]))


_choose_lanes = jax.jit(tree.choose_rows)
