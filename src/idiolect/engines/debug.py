# SPDX-License-Identifier: Apache-2.0
"""The debug engine: eager, one client at a time, errors tagged with round, client and stage, every step observable.

It calls the same algorithm with the same keys as every other engine, in plain Python, so it is also what the compiled
engines are tested against.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import keys, tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData
from idiolect.core.objective import Prepares
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params, Tree
from idiolect.engines import door
from idiolect.engines.client import (
    Round,
    Task,
    check_form,
    client_init,
    client_model,
    client_settle,
    receive,
    send,
    step,
    steps_of,
)
from idiolect.engines.door import Splits, Training
from idiolect.engines.population import to_device
from idiolect.engines.server import deliver, open_round, server_init, server_step


class StageError(RuntimeError):
    """An algorithm's method failed: says in which round, on which client, at which stage."""


class Event(NamedTuple):
    """One moment of a run, for an observer."""

    round: int
    client: int  # -1: the server
    stage: str  # broadcast, receive, step, send, server_step, settle
    t: int  # local step; -1 outside of the local work
    value: Tree  # what the stage returned


Observer = Callable[[Event], None]


class DebugRun(NamedTuple):
    """What a debug run ends with."""

    algorithm: Algorithm
    server: Tree
    clients: list[Tree]
    tally: Tally
    data: list[ClientData]


@contextlib.contextmanager
def _stage(round_number: int, client: int, stage: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        who = "the server" if client < 0 else f"client {client}"
        when = "Before the first round" if round_number < 0 else f"Round {round_number}"
        raise StageError(f"{when}, {who}, stage {stage}: {type(error).__name__}: {error}") from error


def debug(
    algorithm: Algorithm, federation: Splits, training: Training, *, seed: int = 0, observe: Observer | None = None
) -> DebugRun:
    """Run `training.rounds` rounds eagerly; `observe` sees every stage's result."""
    rows = federation.train
    door.check_training(training, rows.clients)
    door.check_rows(rows)
    door.check_seeds([seed])
    watch = observe or (lambda event: None)
    with door.run_precision(training.precision):
        participation = door.participation_of(algorithm, training, rows.clients)
        admitted = door.admit(algorithm, rows.clients, training.precision, participation.chance)
        # without any padding: padding must not matter
        each, dtype = map(rows.pad, np.arange(rows.clients)[:, None]), door.PRECISIONS[training.precision]
        data = [tree.take(to_device(own, dtype), 0) for own in each]
        root = keys.root_key(seed)
        with _stage(-1, -1, "init_server"):
            server = server_init(admitted, root)
        clients, tally = [], NOTHING
        for client in range(rows.clients):
            with _stage(-1, client, "init_client"):
                state, cost = client_init(admitted, root, client, data[client])
            objective = admitted.objective
            if isinstance(objective, Prepares) and bool(objective.unprepared(state.prepared)):
                raise RequestError(f"Client {federation.names[client]!r} {objective.why_unprepared()}.")
            clients.append(state)
            tally = tally.plus(cost)
        members, present = participation.draw(seed, range(training.rounds))
        for number in range(training.rounds):
            cohort = [int(client) for client, here in zip(members[number], present[number]) if here]
            with _stage(number, -1, "broadcast"):
                now = open_round(admitted, root, number, server)
            watch(Event(number, -1, "broadcast", -1, now.sent))
            server, cost = _round(now, server, (clients, data), cohort, watch)
            tally = tally.plus(cost)
    return DebugRun(admitted, server, clients, Tally(*(int(count) for count in tally)), data)


def _round(
    now: Round, server: Tree, people: tuple[list[Tree], list[ClientData]], cohort: list[int], watch: Observer
) -> tuple[Tree, Tally]:
    """The rest of a round: (server, cost); the states among `people` become the new ones."""
    algorithm, root, number = now.algorithm, now.root, int(now.number)
    clients, data = people
    uploads, tally = [], NOTHING
    for client in cohort:
        upload, clients[client], cost = watched_round(Task(now, client, clients[client], data[client]), watch)
        uploads.append(upload)
        tally = tally.plus(cost)
    if not uploads:
        return server, tally
    with _stage(number, -1, "reduction"):
        stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *uploads)
        numbers = jnp.asarray(cohort, jnp.int32)
        # only those present are here, as a server sees it; compiled engines hand over all clients with a mask, and must
        # agree
        partial = algorithm.reduction.collect(stacked, numbers, jnp.ones(len(cohort), bool))
    with _stage(number, -1, "server_step"):
        moved = server_step(now, server, partial)
        check_form("server_step", "server's state", server, moved)
    watch(Event(number, -1, "server_step", -1, moved))
    if algorithm.settle is not None:
        after = open_round(algorithm, root, number + 1, moved)
        for client in cohort:
            with _stage(number, client, "settle"):
                clients[client] = client_settle(Task(after, client, clients[client], data[client]))
            watch(Event(number, client, "settle", -1, clients[client]))
    return moved, tally


def watched_round(task: Task, watch: Observer = lambda event: None) -> tuple[Tree, Tree, Tally]:
    """`engines.client.client_round` step by step: (upload, state, cost)."""
    number, client = int(task.round.number), int(task.client)
    with _stage(number, client, "receive"):
        working, tally = receive(task)
    watch(Event(number, client, "receive", -1, working))
    for t in range(int(steps_of(task))):
        with _stage(number, client, "step"):
            moved, cost = step(task, t, working)
            check_form("step", "working state", working, moved)
        working = moved
        tally = tally.plus(cost)
        watch(Event(number, client, "step", t, working))
    with _stage(number, client, "send"):
        upload, kept, cost = send(task, working)
        check_form("send", "client's state", task.state, kept)
    watch(Event(number, client, "send", -1, upload))
    return upload, kept, tally.plus(cost)


def personal_models(run: DebugRun, seed: int, round_number: int, precision: str = "float32") -> list[Params]:
    """What each client would predict with, in plain Python."""
    models = []
    with door.run_precision(precision):
        root = keys.root_key(seed)
        delivered = deliver(run.algorithm, root, round_number, run.server)
        for client, (state, data) in enumerate(zip(run.clients, run.data)):
            with _stage(round_number, client, "models"):
                models.append(client_model(Task(delivered, client, state, data))[0].personal)
    return models
