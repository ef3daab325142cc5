# SPDX-License-Identifier: Apache-2.0
"""The client's half of a run: its start, its part in a round (receive, step x steps, send), settle, its models.

Each is a pure function of what the client holds (its state, its rows), of what was sent to it, and of coordinates:
where it runs, and who else takes part, changes nothing. `engines.round` does the same for a whole cohort at once, and
`engines.server` is the other half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import keys
from idiolect.core.addressing import address, axes
from idiolect.core.algorithm import Algorithm, Models
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, Purpose, StartKeys
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree

Found = TypeVar("Found")
Number = int | np.integer | jax.Array  # of a round, a client, a step; traced or not


class Round(NamedTuple):
    """What a round is for all clients: the algorithm as admitted, the coordinates of its draws, and the Broadcast."""

    algorithm: Algorithm
    root: Key
    number: Number
    sent: Tree


class Task(NamedTuple):
    """What a round is for one client."""

    round: Round
    client: Number  # its number
    state: Tree
    data: ClientData

    @property
    def seen(self) -> tuple[Algorithm, Tree]:
        """(algorithm, Broadcast) as the client sees them: of what is addressed, its own."""
        return address((self.round.algorithm, self.round.sent), self.client)

    def key(self, purpose: Purpose) -> Key:
        """The client's draws for one purpose."""
        return keys.client_key(self.round.root, purpose, self.round.number, self.client)


class Done(NamedTuple):
    """What a client's part ends with."""

    upload: Tree
    state: Tree
    tally: Tally
    steps: jax.Array


def client_init(algorithm: Algorithm, root: Key, client: Number, data: ClientData) -> tuple[Tree, Tally]:
    """The state that a client starts with, and what it cost."""
    starts = StartKeys(keys.init_key(root), keys.client_key(root, Purpose.INIT_CLIENT, 0, client))
    own: Algorithm = address(algorithm, client)
    return own.init_client(starts, data)


def receive(task: Task) -> tuple[Tree, Tally]:
    """The Working state."""
    own, sent = task.seen
    return own.receive(task.key(Purpose.RECEIVE), sent, task.state, task.data)


def steps_of(task: Task) -> Number:
    """How many local steps follow."""
    own, sent = task.seen
    return own.steps(sent, task.data.count)


def step(task: Task, t: Number, working: Tree) -> tuple[Tree, Tally]:
    """One of them."""
    own, sent = task.seen
    return own.step(task.key(Purpose.STEP), t, sent, working, task.data)


def send(task: Task, working: Tree) -> tuple[Tree, Tree, Tally]:
    """The Upload, and the state that is kept."""
    own, sent = task.seen
    return own.send(task.key(Purpose.SEND), sent, working, task.state, task.data)


def client_round(task: Task) -> Done:
    """All of it as one program."""
    working, tally = receive(task)
    steps = jnp.asarray(steps_of(task), jnp.int32)

    def one_step(t: jax.Array, carried: tuple[Tree, Tally]) -> tuple[Tree, Tally]:
        moved, cost = step(task, t, carried[0])
        return moved, carried[1].plus(cost.counters())

    working, tally = jax.lax.fori_loop(0, steps, one_step, (working, tally.counters()))
    upload, kept, cost = send(task, working)
    return Done(upload, jax.tree.map(jnp.asarray, kept), tally.plus(cost.counters()), steps)


def client_settle(task: Task) -> Tree:
    """The client's state once the round it was in has ended; `task.round` is the next one, with its new Broadcast.

    Only for an algorithm that has a `settle`.
    """
    own, sent = task.seen
    assert own.settle is not None
    ended = task._replace(round=task.round._replace(number=task.round.number - 1))  # whose draws these are
    return own.settle(ended.key(Purpose.SETTLE), sent, task.state, task.data)


def client_model(task: Task) -> tuple[Models, Tally]:
    """The client's models and what making them costs; `task.round` is what `engines.server.deliver` returned."""
    own, sent = task.seen
    return own.models(task.key(Purpose.PERSONAL_MODEL), sent, task.state, task.data)


def for_clients(
    function: Callable[..., Found], now: Round, clients: jax.Array, states: Tree, data: ClientData, *more: Tree
) -> Found:
    """`function(task, ...)` of each of several clients at once; all but `now` have one row per client."""
    seen = (now.algorithm, now.sent)

    def one(own: tuple[Algorithm, Tree], client: jax.Array, state: Tree, rows: ClientData, *rest: Tree) -> Found:
        return function(Task(Round(own[0], now.root, now.number, own[1]), client, state, rows), *rest)

    # addressed outside: what is the same for all clients stays unbatched, and a branch on it a real branch
    in_axes = (axes(seen), *[0] * (3 + len(more)))
    return jax.vmap(one, in_axes=in_axes)(address(seen, clients), clients, states, data, *more)


def check_form(stage: str, what: str, before: Tree, after: Tree) -> None:
    """RequestError where `after`, which `stage` returned as the new `what`, has other names or shapes than `before`.

    Else no loop could carry it.
    """
    forms: list[object] = [jax.tree.structure(value) for value in (before, after)]
    if forms[0] != forms[1]:
        raise RequestError(
            f"{stage} must return the {what} with the form it had, {_form(before)}, got {_form(after)}; return all of "
            "its fields, and nothing else."
        )
    old, _ = jax.tree_util.tree_flatten_with_path(before)
    for (path, leaf), other in zip(old, jax.tree.leaves(after)):
        if np.shape(leaf) != np.shape(other):
            raise RequestError(
                f"{stage} must return the {what} with the shapes it had, {np.shape(leaf)} of {_name(path)}, got "
                f"{np.shape(other)}; keep the shape, or make it so in the first place."
            )


def _form(value: Tree) -> str:
    """'ClientState(personal, control)', or the paths of its arrays where it has no name."""
    fields, kind = getattr(value, "_fields", None), type(value).__name__
    if fields is not None:
        return f"{kind}({', '.join(fields)})"
    names = [_name(path) for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]]
    return f"{kind} of {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}" if names else "nothing"


def _name(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
