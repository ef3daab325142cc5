# SPDX-License-Identifier: Apache-2.0
"""One client's part in a round: receive, step x steps, send.

It is a pure function of what the client holds (its state, its rows), of what was sent to it, and of coordinates: where
it runs, and who else takes part, changes nothing. `engines.round` does the same for a whole cohort at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core import keys
from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, Purpose
from idiolect.core.tally import Tally


class Round(NamedTuple):
    """What a round is for everybody: the algorithm as admitted, the coordinates of its draws, and the Broadcast."""

    algorithm: Algorithm
    root: Key
    number: Any
    sent: Any


class Task(NamedTuple):
    """What a round is for one client."""

    round: Round
    client: Any  # its number
    state: Any
    data: ClientData

    @property
    def seen(self) -> Any:
        """(algorithm, Broadcast) as the client sees them: of what is addressed, its own."""
        return address((self.round.algorithm, self.round.sent), self.client)

    def key(self, purpose: Purpose) -> Key:
        """The client's draws for one purpose."""
        return keys.client_key(self.round.root, purpose, self.round.number, self.client)


class Done(NamedTuple):
    """What a client's part ends with."""

    upload: Any
    state: Any
    tally: Tally
    steps: Any


def open_round(algorithm: Algorithm, root: Key, number: Any, server: Any) -> Round:
    """A round, with what its server sends."""
    return Round(algorithm, root, number, algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, number), server))


def receive(task: Task) -> tuple[Any, Tally]:
    """The Working state."""
    own, sent = task.seen
    return own.receive(task.key(Purpose.RECEIVE), sent, task.state, task.data)


def steps_of(task: Task) -> Any:
    """How many local steps follow."""
    own, sent = task.seen
    return own.steps(sent, task.data.count)


def step(task: Task, t: Any, working: Any) -> tuple[Any, Tally]:
    """One of them."""
    own, sent = task.seen
    return own.step(task.key(Purpose.STEP), t, sent, working, task.data)


def send(task: Task, working: Any) -> tuple[Any, Any, Tally]:
    """The Upload, and the state that is kept."""
    own, sent = task.seen
    return own.send(task.key(Purpose.SEND), sent, working, task.state, task.data)


def client_round(task: Task) -> Done:
    """All of it as one program."""
    working, tally = receive(task)
    steps = jnp.asarray(steps_of(task), jnp.int32)

    def one_step(t: Any, carried: tuple[Any, Tally]) -> tuple[Any, Tally]:
        moved, cost = step(task, t, carried[0])
        return moved, carried[1].plus(cost.counters())

    working, tally = jax.lax.fori_loop(0, steps, one_step, (working, tally.counters()))
    upload, kept, cost = send(task, working)
    return Done(upload, jax.tree.map(jnp.asarray, kept), tally.plus(cost.counters()), steps)
