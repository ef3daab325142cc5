# SPDX-License-Identifier: Apache-2.0
"""One trial per pair of algorithm and objective: what the compiled engine and plain Python make of the same request."""

from __future__ import annotations

import contextlib
import dataclasses
import functools

import jax
import numpy as np
import pytest

from idiolect.core import tree
from idiolect.core.algorithm import fit_of
from idiolect.core.tally import Tally
from idiolect.engines import door, start
from idiolect.engines.advance import move
from idiolect.engines.cohorts import Participation
from idiolect.engines.debug import debug
from idiolect.engines.door import Training
from idiolect.engines.simulate import open_session

ROUNDS = 3
FULL = Training(rounds=ROUNDS, precision="float64", executor="batched", block=ROUNDS, record_every=ROUNDS)
PARTIAL = dataclasses.replace(FULL, cohort=4, dropout=0.3)
LEDGER_OF_TALLY = (
    "gradients_shared",
    "gradients_personal",
    "gradients_both",
    "forward_passes",
    "samples",
    "full_gradients_shared",
    "full_gradients_personal",
    "proximal_calls",
)
BY_STEPS, BY_EPOCHS, EXACT = {"local_steps": 3, "batch_size": 2}, {"epochs": 1, "batch_size": 2}, {}


@pytest.fixture(autouse=True)
def strict_ranks():
    """No silent broadcasting either, on top of the strict dtypes of every test."""
    with jax.numpy_rank_promotion("raise"):
        yield


def telling_seed(clients):
    """A seed under which one client is never there, one comes twice, one drops out, and no round is empty."""
    draw = Participation(clients, PARTIAL.cohort, PARTIAL.dropout).draw
    for seed in range(1000):
        members, present = draw(seed, range(ROUNDS))
        seen = np.bincount(members[present], minlength=clients)
        if seen.min() == 0 and seen.max() >= 2 and not present.all() and present.any(axis=1).all():
            return seed
    raise AssertionError("no seed tells")


GRADIENTS = ("gradient_shared", "gradient_personal", "gradients")


@functools.cache
def compiled_gradient(objective, name):
    """One method of a class of objectives, compiled once for every shape of a batch."""
    return jax.jit(getattr(objective, name))


@contextlib.contextmanager
def compiled_gradients(objective):
    """Plain Python around compiled gradients of one batch, which all pairs of an objective have in common.

    Differentiating anew at every local step would be most of the cost of these tests. Nothing is compiled where each
    class is held to plain Python on its own objective (`test_full_cohort_equals_plain_python`).
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in GRADIENTS:
            patch.setattr(objective, name, compiled_gradient(objective, name))
        yield


class Trial:
    """A pair under a partial cohort with dropout and ragged epochs, where the algorithm takes them, in float64."""

    def __init__(self, workbench, federation, name, objective, more):
        self.name, self.objective, self.more = name, objective, more
        self.workbench, self.federation = workbench, federation
        wished = [workbench.build(name, objective, **more, **batching) for batching in (BY_EPOCHS, BY_STEPS, EXACT)]
        self.algorithm = next(algorithm for algorithm in wished if fit_of(algorithm).refused is None)
        self.training = FULL if self.algorithm.fit(chance=0.5).refused else PARTIAL
        self.seed = telling_seed(federation.train.clients)
        self.uploads = {}  # client -> its latest upload, filled by `debugged`

    def open(self, algorithm=None, seed=None):
        """A session at round 0."""
        seed = self.seed if seed is None else seed
        return open_session([algorithm or self.algorithm], self.federation, self.training, [seed], ("log_loss",))

    def run(self, session, first=0):
        """The compiled block: (server, states, costs)."""
        moved = move(session.plan, session.state._replace(round=first), ROUNDS)
        with door.run_precision(session.training.precision):
            return jax.block_until_ready(tree.take(moved[:3], 0))

    @functools.cached_property
    def session(self):
        return self.open()

    @functools.cached_property
    def outcome(self):
        return self.run(self.session)

    @functools.cached_property
    def debugged(self):
        def keep_uploads(event):
            if event.stage == "send":
                self.uploads[event.client] = event.value

        with compiled_gradients(type(self.algorithm.objective)):
            return debug(self.algorithm, self.federation, self.training, seed=self.seed, observe=keep_uploads)

    @functools.cached_property
    def wire(self):
        """Shapes of what goes down, comes up and is delivered."""
        with door.run_precision("float64"):
            return start.wire_types(self.session.plan.algorithms[0], self.session.plan.population.data)

    @functools.cached_property
    def never_present(self):
        """Clients that took part in no round."""
        costs = self.outcome[2]
        came = set(np.asarray(costs.clients)[np.asarray(costs.present)].tolist())
        return sorted(set(range(self.federation.train.clients)) - came)

    def spent(self, session, costs):
        """What the compiled engine counted, the clients' start included."""
        start = session.recorders[0].ledger
        before = [getattr(start, name) for name in LEDGER_OF_TALLY]
        counts = [np.where(costs.present, count, 0).sum() for count in costs.counts]
        return Tally(*(int(a) + int(b) for a, b in zip(before, counts)))


@pytest.fixture(scope="module")
def trial(request, workbench, ragged):
    """Everything in it is computed when a test first asks, and shared by the tests of one pair."""
    return Trial(workbench, ragged, *request.param)


@pytest.fixture(scope="session")
def tallied():
    """The ledger's names of what a Tally counts, in its order."""
    return LEDGER_OF_TALLY
