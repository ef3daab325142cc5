# SPDX-License-Identifier: Apache-2.0
"""One round of any algorithm, for a whole cohort at once: the heart of every compiled engine.

The loop over local steps is outside the `vmap` over clients: `t` and `sent` stay unbatched, and a branch on them stays
a real branch. Nothing here knows an algorithm or an objective by name.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core import keys, tree
from idiolect.core.addressing import address, axes
from idiolect.core.algorithm import Algorithm
from idiolect.core.control import first_turn
from idiolect.core.data import Array, ClientData
from idiolect.core.keys import Key, Purpose
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree
from idiolect.engines.client import Number, Round, Task, client_round, client_settle, for_clients, receive, send
from idiolect.engines.cohorts import PADDING
from idiolect.engines.server import open_round, server_step
from idiolect.engines.shard import CLIENTS, Shards


class Cohort(NamedTuple):
    """Who takes part in a round. Padding has the largest client number and is never present."""

    clients: Array  # (cohort,) client numbers
    rows: Array  # (cohort,) where their data and state stand in the tables at hand
    present: Array  # (cohort,) False: dropped out of the round


class Clients(NamedTuple):
    """What clients hold, one row each."""

    states: Tree
    data: ClientData


class How(NamedTuple):
    """How a round is compiled."""

    uniform: bool  # every client fills its padding, so that all take the same number of steps
    chunk: int  # clients that are advanced as one batch, formed by size; 0: the whole cohort
    shards: Shards | None = None  # the devices that clients are laid over; None: there is one


@jax.tree_util.register_static
class Fixed(int):
    """A count known while tracing. It passes through `vmap` as structure, so loops need not carry it."""


class RoundCost(NamedTuple):
    """What a round cost, client by client; the host adds it up in exact integers."""

    clients: Array  # (cohort,) client numbers, in the order they were worked on
    present: Array  # (cohort,) whose upload arrived
    known: tuple[Fixed | None, ...]  # the eight counts of Tally and useful steps; None: not known while tracing
    counted: Array  # (cohort, n): the others of these nine, in order, then 1 if the work stayed finite
    executed_steps: Array  # () steps of the compiled loop times clients in it, waste included; Fixed within a block

    @property
    def counts(self) -> list[Array]:
        """The eight counts of Tally and useful steps: one number where it is the same for all, or one per client."""
        places = itertools.count()
        return [self.counted[..., next(places)] if count is None else int(count) for count in self.known]

    @property
    def finite(self) -> Array:
        """(cohort,) whose work stayed finite."""
        return self.counted[..., -1] != 0


Outcome = tuple[Tree, Tree, RoundCost]  # uploads, their sum, or the server; the clients' states; the cost


def round_cost(cohort: Cohort, tally: Tally, useful_steps: Array, finite: Array, executed_steps: Array) -> RoundCost:
    """One small matrix per round, so that a block stores one array instead of a dozen; of known counts nothing."""
    counts = (*tally, useful_steps)
    known = tuple(Fixed(count) if isinstance(count, int) else None for count in counts)
    # 32 bits are enough for one round; totals would pass them, and are added up on the host
    columns = [jnp.asarray(count, jnp.int32) for count in (*counts, finite) if not isinstance(count, int)]
    counted = jnp.stack([jnp.broadcast_to(column, cohort.clients.shape) for column in columns], axis=1)
    executed = Fixed(executed_steps) if isinstance(executed_steps, int) else jnp.asarray(executed_steps, jnp.int32)
    return RoundCost(cohort.clients, cohort.present, known, counted, executed)


def _fixed(tally: Tally) -> Tally:
    return Tally(*(Fixed(count) if isinstance(count, int) else jnp.asarray(count, jnp.int32) for count in tally))


def _plain(tally: Tally) -> Tally:
    return Tally(*(int(count) if isinstance(count, Fixed) else count for count in tally))


def local_work(now: Round, cohort: Cohort, clients: Clients, uniform: bool) -> Outcome:
    """receive, step x steps, send for every client of the cohort; `clients` has one row per member.

    Returns stacked uploads, new states (absent clients keep theirs) and the cost.
    """
    algorithm, sent, (states, data) = now.algorithm, now.sent, clients

    def begin(task: Task) -> tuple[Tree, Tally]:
        # a plain integer would leave `vmap` as an array, one entry per client; as structure it stays a plain integer
        working, cost = receive(task)
        return working, _fixed(cost)

    working, tally = for_clients(begin, now, cohort.clients, states, data)

    # the loop runs as often as the largest client present needs; others stand still once they are done
    own_steps = None  # None: every client takes every step
    largest = data.targets.shape[1] if uniform else jnp.max(jnp.where(cohort.present, data.count, 0))
    trips = algorithm.steps(sent, largest)
    # a number that was drawn for all clients does not look at rows: asked again, it is the same object
    if not uniform and not isinstance(trips, int) and algorithm.steps(sent, data.count[0]) is not trips:
        own_steps = jax.vmap(lambda count: jnp.asarray(algorithm.steps(sent, count), jnp.int32))(data.count)

    working, step_tally, useful = _walk(now, cohort.clients, trips, own_steps, working, data)

    def end(task: Task, work: Tree) -> tuple[Tree, Tree, Tally]:
        upload, kept, cost = send(task, work)
        return upload, kept, _fixed(cost)

    # what was sent is read anew: as the value that the work began with, every client's copy of it would be kept until
    # here, and the work would go on in a second one
    again = now._replace(sent=jax.lax.optimization_barrier(sent))
    # absent clients work as well: a compiled program cannot leave a row out. Their uploads weigh nothing in the
    # reduction, and the table below keeps their old states
    uploads, kept, send_tally = for_clients(end, again, cohort.clients, states, data, working)
    finite = finite_rows((uploads, kept), cohort.present.shape[0])
    spent = _plain(tally).plus(step_tally).plus(_plain(send_tally))
    cost = round_cost(cohort, spent, useful, finite, trips * cohort.clients.shape[0])
    return uploads, tree.choose_rows(cohort.present, kept, states), cost


def _work_of_one(now: Round, cohort: Cohort, clients: Clients) -> Outcome:
    """`local_work` of a single client, without an axis of length one that products would be turned around for."""
    state, data = tree.take(tuple(clients), 0)
    done = client_round(Task(now, cohort.clients[0], state, data))
    upload, kept = (jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], part) for part in (done.upload, done.state))
    finite = finite_rows((upload, kept), 1)
    cost = round_cost(cohort, done.tally, done.steps, finite, done.steps)
    return upload, tree.choose_rows(cohort.present, kept, clients.states), cost


def _walk(
    now: Round, clients: jax.Array, trips: Number, own_steps: jax.Array | None, working: Tree, data: ClientData
) -> tuple[Tree, Tally, Number]:
    """The local steps: (working, tally per client, useful steps per client)."""
    seen = (now.algorithm, now.sent)
    # made once, before the loop: `engines.client.step` would draw keys and pick addressed rows in every turn
    view, step_keys = address(seen, clients), keys.client_keys(now.root, Purpose.STEP, now.number, clients)

    def step(own: tuple[Algorithm, Tree], key: Key, t: Number, work: Tree, rows: ClientData) -> tuple[Tree, Tally]:
        moved, cost = own[0].step(key, t, own[1], work, rows)
        return moved, _fixed(cost)

    # the loop is outside the `vmap`: `t` stays unbatched, and a branch on it a real branch
    # inlined: traced once for its shapes and for the loop
    all_step = jax.jit(jax.vmap(step, in_axes=(axes(seen), 0, None, 0, 0)), inline=True)
    # shapes alone tell which counts vary with the data: the loop carries those, and the known ones are multiplied out
    # after it
    shape = jax.eval_shape(lambda t: all_step(view, step_keys, t, working, data)[1], first_turn(trips))
    varying = [place for place, count in enumerate(shape) if not isinstance(count, Fixed)]

    def one_step(t: jax.Array, carried: tuple[Tree, list[jax.Array]]) -> tuple[Tree, list[jax.Array]]:
        old, counts = carried
        new, cost = all_step(view, step_keys, t, old, data)
        if own_steps is not None:
            # under `vmap` no client can be skipped: a client that is done computes its step all the same, and it is
            # thrown away
            active = t < own_steps
            new, cost = tree.choose_rows(active, new, old), Tally(*cost)
            return new, [total + jnp.where(active, cost[place], 0) for total, place in zip(counts, varying)]
        return new, [total + cost[place] for total, place in zip(counts, varying)]

    counters = [jnp.zeros(shape[place].shape, jnp.int32) for place in varying]
    working, counted = jax.lax.fori_loop(0, trips, one_step, (working, counters))
    useful = trips if own_steps is None else own_steps
    totals = iter(counted)

    def total(count: Array) -> Array:
        if isinstance(count, Fixed):
            return int(count) * useful if count else 0
        return next(totals)

    return working, Tally(*map(total, shape)), useful


def finite_rows(stacked: Tree, rows: int) -> jax.Array:
    """Whether each row's leaves are all finite: one sum per row and leaf, since a sum keeps any NaN or infinity."""
    # entries that are infinite with opposite signs do not cancel: inf - inf is not a number
    sums = [
        jnp.isfinite(jnp.sum(leaf.reshape(rows, -1), axis=1))
        for leaf in jax.tree.leaves(stacked)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    return functools.reduce(jnp.logical_and, sums, jnp.ones(rows, bool))


def is_finite(one: Tree) -> jax.Array:
    """Whether all leaves of a tree are."""
    return finite_rows(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], one), 1)[0]


def run_round(now: Round, server: Tree, clients: Clients, cohort: Cohort | None, how: How) -> Outcome:
    """One whole round: local work, reduction, server step, settle. `cohort` None means all clients."""
    if cohort is None:
        return _round(now, server, clients, whole_cohort(clients.data, how.shards), how)
    if how.shards is None and how.chunk:  # one chunk at a time is gathered
        return _round(now, server, clients, cohort, how, drawn=True)
    bring = tree.take if how.shards is None else how.shards.bring
    brought = Clients(*bring(tuple(clients), cohort.rows))
    here = cohort._replace(rows=jnp.arange(cohort.rows.shape[0], dtype=jnp.int32))
    server, states, cost = _round(now, server, brought, here, how, drawn=True)
    if how.shards is not None:
        (cohort, states), rows, own = how.shards.collect((cohort, states), cohort.rows)
        cohort = cohort._replace(rows=rows, present=cohort.present & own)
    return server, put_back(clients.states, cohort, states), cost


def _round(now: Round, server: Tree, clients: Clients, members: Cohort, how: How, *, drawn: bool = False) -> Outcome:
    """`run_round` where rows and states are on this device; `drawn`: the members are some of all clients."""
    if not how.chunk:  # rows are used where they are: no gather, no scatter
        uploads, states, cost = local_work(now, members, clients, how.uniform)
        partial = now.algorithm.reduction.collect(uploads, members.clients, members.present)
    else:
        partial, states, cost = _work_in_chunks(now, members, clients, how)
    if how.shards is not None:
        partial = how.shards.add_up(now.algorithm.reduction, partial)
        steps = cost.executed_steps
        steps = Fixed(steps * how.shards.devices) if isinstance(steps, Fixed) else jax.lax.psum(steps, CLIENTS)
        cost = cost._replace(executed_steps=steps)
    clients = clients._replace(states=states)
    return *finish_round(now, server, members, partial, clients, drawn=drawn), cost


def finish_round(
    now: Round, server: Tree, members: Cohort, partial: Tree, clients: Clients, *, drawn: bool
) -> tuple[Tree, Tree]:
    """What follows once the uploads are summed: lower, server step, settle."""
    algorithm = now.algorithm
    moved = server_step(now, server, partial)
    if drawn:  # a round from which all clients dropped out leaves the server as it was
        moved = tree.choose(algorithm.reduction.lower(partial).cohort > 0, moved, server)
    if algorithm.settle is None:
        return moved, clients.states
    # the next round's broadcast, with its own draws: the cohort is handed now what it would be sent then
    own = clients if not drawn else Clients(*tree.take(tuple(clients), members.rows))
    after = open_round(algorithm, now.root, now.number + 1, moved)
    settled = for_clients(client_settle, after, members.clients, *own)
    return moved, put_back(clients.states, members, settled) if drawn else settled


def whole_cohort(data: ClientData, shards: Shards | None = None) -> Cohort:
    """The full cohort: of several devices, the part of it that is on this one."""
    rows = jnp.arange(data.count.shape[0], dtype=jnp.int32)
    if shards is None:
        return Cohort(rows, rows, jnp.ones(rows.shape, bool))
    clients = rows + jax.lax.axis_index(CLIENTS).astype(jnp.int32) * shards.own
    if shards.width == shards.clients:  # a mask that is known while tracing costs nothing
        return Cohort(clients, rows, jnp.ones(rows.shape, bool))
    real = clients < shards.clients
    return Cohort(jnp.where(real, clients, PADDING), rows, real)


def _work_in_chunks(now: Round, cohort: Cohort, clients: Clients, how: How) -> Outcome:
    """`local_work` for a chunk of clients at a time; clients of similar size share one, so few steps are wasted."""
    states, data = clients
    members = _chunks_by_size(cohort, data, how.chunk)
    reduction = now.algorithm.reduction

    work = functools.partial(local_work, uniform=how.uniform) if how.chunk > 1 else _work_of_one

    def one_chunk(part: Cohort) -> Outcome:
        own = Clients(tree.take(states, part.rows), tree.take(data, part.rows))
        uploads, kept, cost = work(now, part, own)
        return reduction.collect(uploads, part.clients, part.present), kept, cost

    def added(total: Tree, part: Cohort) -> tuple[Tree, tuple[Tree, RoundCost]]:
        partial, kept, cost = one_chunk(part)
        return jax.tree.map(jnp.add, total, partial), (kept, cost)

    # one after another: only one chunk's working states and gradients are in memory
    if reduction.stacks:
        partials, kept, costs = jax.lax.map(one_chunk, members)
        partial = tree.join_axes(partials)
    else:  # what is added up is lifted already, so that the order of chunks changes rounding alone
        shape = jax.eval_shape(one_chunk, tree.take(members, 0))[0]
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        partial, (kept, costs) = jax.lax.scan(added, nothing, members)
    executed = costs.executed_steps  # one number per chunk, or one that is known and holds for each
    if isinstance(executed, Fixed):
        executed = Fixed(executed * members.clients.shape[0])
    else:
        executed = jnp.sum(executed, dtype=jnp.int32)
    each: RoundCost = tree.join_axes(costs._replace(executed_steps=()))
    return partial, put_back(states, *tree.join_axes((members, kept))), each._replace(executed_steps=executed)


def _chunks_by_size(cohort: Cohort, data: ClientData, chunk: int) -> Cohort:
    """The cohort as (chunks, chunk), by ascending size, padded with absent nobodies."""
    size = cohort.clients.shape[0]
    if size > chunk:  # a chunk takes as many steps as its largest client
        # a stable sort, so that clients of one size keep their order, and sums over them their rounding
        cohort = tree.take(cohort, jnp.argsort(data.count[cohort.rows], stable=True))
    missing = -size % chunk
    padding = Cohort(*(jnp.full((missing,), value) for value in (PADDING, 0, False)))
    padded = jax.tree.map(lambda a, b: jnp.concatenate([a, b.astype(a.dtype)]), cohort, padding)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, chunk), padded)


def put_back(states: Tree, cohort: Cohort, kept: Tree) -> Tree:
    """Write the cohort's new states into the table; nobodies are dropped."""
    size = jax.tree.leaves(states)[0].shape[0] if jax.tree.leaves(states) else 0
    # the row of an absent client, or of padding, is outside of the table, where writing does nothing
    rows = jnp.where(cohort.present, cohort.rows, size)
    return jax.tree.map(lambda table, new: table.at[rows].set(new, mode="drop"), states, kept)
