# SPDX-License-Identifier: Apache-2.0
"""What a site computes: its start, its part in a round, settle, scores and models; compiled once, then kept."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import keys
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData, Rows
from idiolect.core.kinds import Masks
from idiolect.core.objective import Prepares
from idiolect.core.tree import Params, Tree
from idiolect.engines import door
from idiolect.engines.client import Done, Round, Task, client_init, client_round, client_settle
from idiolect.engines.deploy.reports import Scores, Work
from idiolect.engines.deploy.wire import digest
from idiolect.engines.evaluate import Delivered, Judging, Moment, models_and_outputs, score_clients
from idiolect.engines.population import load_held, to_device
from idiolect.engines.round import is_finite
from idiolect.engines.start import wire_types


@dataclasses.dataclass(frozen=True)
class Post:
    """A site's part in one method's training: its own settings, its number, its rows."""

    algorithm: Algorithm  # `door.own_settings`, in the run's precision
    number: int
    seed: int
    precision: str
    scores: tuple[str, ...]
    train: Rows  # of this client alone
    validation: Rows
    test: Rows
    label: str = ""  # what the method is called
    # the algorithm of one round with secrets of the site: anew whenever it is asked, since noise that hides rows from a
    # server must not be the same where that asks twice
    with_secrets: Callable[[Algorithm], Algorithm] = lambda algorithm: algorithm
    # those that the site answers, each once, where it adds noise itself; None: its answers spend no epsilon
    rounds: frozenset[int] | None = None


@jax.jit
def _start(algorithm: Algorithm, root: keys.Key, client: jax.Array, data: ClientData) -> tuple[Tree, Tree]:
    state, cost = client_init(algorithm, root, client, data)
    return jax.tree.map(jnp.asarray, state), cost.counters()


@jax.jit
def _work(task: Task) -> tuple[Done, jax.Array]:
    done = client_round(task)
    return done, is_finite((done.upload, done.state))


@jax.jit
def _lifted(algorithm: Algorithm, client: jax.Array, upload: Tree) -> Tree:
    reduction = algorithm.reduction
    assert isinstance(reduction, Masks)
    return reduction.lift(upload, client, jnp.ones((), bool))


_settle = jax.jit(client_settle)
_score = functools.partial(jax.jit, static_argnames=("how",))(score_clients)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function, which differs from process to process


def settings_digest(own: Algorithm, precision: str) -> str:
    """An algorithm as one client knows it, compared without being sent: equal where program and settings are.

    Structure, integers and names, and every float; no secret of one side.
    """
    own = jax.tree.map(lambda node: None if _is_secret(node) else node, own, is_leaf=_is_secret)
    leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(own)]
    return digest(type(own).__name__, _ADDRESS.sub("", str(jax.tree.structure(own))), leaves, precision)


def _is_secret(node: object) -> bool:
    return isinstance(node, keys.Secret)


class Worker:
    """A post with its rows on the device. Nothing here knows of messages or files."""

    def __init__(self, post: Post):
        self.post = post
        dtype = door.PRECISIONS[post.precision]
        with door.run_precision(post.precision):
            self.root = keys.root_key(post.seed)
            one = np.zeros(1, np.int64)
            self._train = to_device(post.train.pad(one), dtype)
            self._held = load_held(post, one, dtype)
            self.data: ClientData = jax.tree.map(lambda leaf: leaf[0], self._train)
            self.forms = wire_types(post.algorithm, self._train).of_one()
            self.state_form = jax.eval_shape(_start, post.algorithm, self.root, np.int32(post.number), self.data)[0]

    def start(self) -> tuple[Tree, Work]:
        """The state before the first round; RequestError where the objective could not prepare the client."""
        post = self.post
        with door.run_precision(post.precision):
            state, cost = _start(post.algorithm, self.root, np.int32(post.number), self.data)
            objective = post.algorithm.objective
            if isinstance(objective, Prepares) and bool(objective.unprepared(state.prepared)):
                raise RequestError(f"This site {objective.why_unprepared()}.")
            return jax.tree.map(np.asarray, state), Work(_counts(cost), 0, True)

    def work(self, number: int, sent: Tree, state: Tree) -> tuple[Tree, Tree, Work]:
        """(upload, state, report) of a round."""
        with door.run_precision(self.post.precision):
            done, finite = _work(self._task(number, sent, state))
            upload, kept = jax.tree.map(np.asarray, (done.upload, done.state))
            return upload, kept, Work(_counts(done.tally), int(done.steps), bool(finite))

    def lift(self, upload: Tree) -> Tree:
        """What the upload adds to a sum."""
        with door.run_precision(self.post.precision):
            lifted = _lifted(self.post.algorithm, np.int32(self.post.number), upload)
            return jax.tree.map(np.asarray, lifted)

    def settle(self, number: int, sent: Tree, state: Tree) -> Tree:
        """The state once round `number` has ended; `sent` is the next round's Broadcast."""
        if self.post.algorithm.settle is None:
            return state
        with door.run_precision(self.post.precision):
            return jax.tree.map(np.asarray, _settle(self._task(number + 1, sent, state)))

    def score(self, number: int, delivered: Delivered, state: Tree, split: str) -> tuple[Scores, Work]:
        """Scores of both models on a split of the site's rows, and what the models cost."""
        with door.run_precision(self.post.precision):
            moment = self._moment(number, delivered, state)
            found, cost = _score(moment, self._held[split], how=Judging(self.post.scores))
        scores = {model: {name: float(value[0]) for name, value in named.items()} for model, named in found.items()}
        return scores, Work(_counts(cost), 0, True)

    def model(self, number: int, delivered: Delivered, state: Tree) -> Params:
        """The personal model, with a leading axis of length one."""
        with door.run_precision(self.post.precision):
            found, _ = models_and_outputs(self._moment(number, delivered, state), self._held["test"])
            return jax.tree.map(np.asarray, found)

    def _task(self, number: int, sent: Tree, state: Tree) -> Task:
        now = Round(self.post.with_secrets(self.post.algorithm), self.root, np.int32(number), sent)
        return Task(now, np.int32(self.post.number), state, self.data)

    def _moment(self, number: int, delivered: Delivered, state: Tree) -> Moment:
        states = jax.tree.map(lambda leaf: np.asarray(leaf)[None], state)
        clients = np.full(1, self.post.number, np.int32)
        # addressed values are this site's own already: `address` finds none to pick from
        return Moment(self.post.algorithm, self.root, np.int32(number), delivered, clients, states, self._train)


def _counts(cost: Tree) -> Tree:
    return jax.tree.map(lambda count: int(np.asarray(count).sum()), cost)
