# SPDX-License-Identifier: Apache-2.0
"""Addressed values and settling, on algorithms small enough to predict by hand."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.core import NOTHING, Batched, Models, PerClient, RequestError, Tally, settings, tree
from idiolect.core.reduction import gather
from idiolect.engines.advance import move
from idiolect.engines.cohorts import Participation
from idiolect.engines.debug import debug
from idiolect.engines.simulate import open_session, simulate, simulate_many

ENGINES = [("batched", 0), ("chunked", 3), ("looped", 0), ("looped_steps", 0)]


class ServerState(NamedTuple):
    table: Any  # one number per client
    rounds: Any


class ClientState(NamedTuple):
    settled: Any  # the number of rounds this client was told of when it settled
    seen: Any  # the largest number that was ever in its own letter


class Broadcast(NamedTuple):
    letter: PerClient
    rounds: Any


class Working(NamedTuple):
    number: Any


class Upload(NamedTuple):
    number: Any
    weight: Any


@settings
class Mailbox(Batched):
    """Client i gets row i of a table, adds its own step_size in every local step, and sends it back."""

    step_size: float = 1.0
    reduction = gather

    def init_server(self, key):
        return ServerState(100.0 * jnp.arange(self.clients, dtype=jnp.float32), jnp.zeros((), jnp.int32))

    def init_client(self, keys, data):
        return ClientState(jnp.full((), -1, jnp.int32), jnp.zeros(())), Tally(forward=1)

    def broadcast(self, key, server):
        return Broadcast(PerClient(server.table), server.rounds)

    def receive(self, key, sent, client, data):
        return Working(sent.letter), NOTHING

    def step(self, key, t, sent, working, data):
        return Working(working.number + self.step_size), Tally(samples=1)

    def send(self, key, sent, working, client, data):
        return Upload(working.number, jnp.ones(())), client._replace(seen=sent.letter), NOTHING

    def server_step(self, key, server, sent, received):
        arrived = received.present
        place = jnp.where(arrived, received.clients, self.clients)
        table = server.table.at[place].set(received.uploads.number, mode="drop")
        return ServerState(table, server.rounds + 1)

    def settle(self, key, sent, client, data):
        return client._replace(settled=sent.rounds)

    def models(self, key, sent, client, data):
        return Models(self.objective.init_personal(key)), NOTHING


@pytest.fixture(scope="module")
def mailbox(workbench):
    """Client i adds 1 + i in each of two steps."""
    own = PerClient(1.0 + np.arange(6))
    return Mailbox(workbench.build_objective("local_only"), step_size=own, local_steps=2)


def attendance(training, seed):
    """(rounds, clients): who was there."""
    members, present = Participation(6, training.cohort or 6, training.dropout).draw(seed, range(training.rounds))
    there = np.zeros((training.rounds, 6), bool)
    for row, (who, here) in enumerate(zip(members, present)):
        there[row, who[here]] = True
    return there


@pytest.mark.parametrize("cohort", ["partial", "full"])
@pytest.mark.parametrize(("executor", "chunk"), ENGINES, ids=[name for name, _ in ENGINES])
def test_letters_arrive_and_the_cohort_settles(executor, chunk, cohort, mailbox, bench, ragged):
    training = dataclasses.replace(getattr(bench, cohort), executor=executor, chunk=chunk)
    session = open_session([mailbox], ragged, training, [3], ("log_loss",))
    server, states, _ = jax.tree.map(lambda leaf: np.asarray(leaf)[0], move(session.plan, session.state, 3)[:3])
    there = attendance(dataclasses.replace(training, rounds=3), 3)
    came = there.sum(axis=0)
    # row i: 100 i, and 2 (1 + i) more for every round that client i was there
    np.testing.assert_allclose(server.table, 100.0 * np.arange(6) + came * 2 * (1 + np.arange(6)))
    # the last letter a client saw is its row before its last round
    expected = np.where(came > 0, 100.0 * np.arange(6) + (came - 1) * 2 * (1 + np.arange(6)), 0)
    np.testing.assert_allclose(states.seen, expected)
    # who uploaded in round r was told r + 1 rounds; who never came was told nothing
    last = np.where(there, np.arange(3)[:, None] + 1, -1).max(axis=0)
    np.testing.assert_array_equal(states.settled, last)
    if cohort == "partial":
        assert came.min() < 3


def test_plain_python_delivers_the_same_letters(mailbox, bench, ragged, workbench):
    plain = debug(mailbox, ragged, bench.partial, seed=3)
    run = simulate(mailbox, ragged, bench.partial, seed=3)
    assert workbench.same_bits(run.server, plain.server)
    for client, state in enumerate(plain.clients):
        assert workbench.same_bits(tree.take(run.states, client), state)
    assert plain.tally.samples == run.ledger.samples
    assert plain.tally.forward == run.ledger.forward_passes == 6  # the clients' start is billed


def test_settling_is_a_second_download_unless_it_is_the_next_broadcast(mailbox, bench, ragged):
    letter_bytes = 4 + 4  # one row of the table and the count of rounds, however many clients there are
    full = simulate(mailbox, ragged, bench.full, seed=3).ledger
    assert full.download_bytes == 6 * 6 * letter_bytes
    partial = simulate(mailbox, ragged, bench.partial, seed=3).ledger
    arrived = int(attendance(bench.partial, 3).sum())
    assert partial.download_bytes == (6 * 4 + arrived) * letter_bytes


def test_a_step_size_per_client_is_each_client_with_its_own(bench, ragged, workbench):
    sizes = np.asarray([0.01, 0.02, 0.05, 0.1, 0.2, 0.4])
    alone = workbench.build("local", epochs=1, batch_size=2)
    together = simulate(dataclasses.replace(alone, step_size=PerClient(sizes)), ragged, bench.full, seed=3)
    singles = [dataclasses.replace(alone, step_size=float(size)) for size in sizes]
    runs = simulate_many(singles, ragged, bench.full, seeds=[3] * 6)
    for client, run in enumerate(runs):
        ours, theirs = (tree.take(states, client) for states in (together.states, run.states))
        assert workbench.distance(ours, theirs) < 1e-6
    assert workbench.distance(tree.take(together.states, 0), tree.take(runs[5].states, 0)) > 1e-3


def test_a_step_size_for_other_clients_is_refused(bench, ragged, workbench):
    short = workbench.build("local", step_size=PerClient(np.full(5, 0.1)))
    with pytest.raises(RequestError, match=r"must have one row per client, 6, got shape \(5,\)"):
        simulate(short, ragged, bench.full)
