# SPDX-License-Identifier: Apache-2.0
"""A site that adds noise itself answers each round once, of those that epsilon counts, whatever the server asks."""

from __future__ import annotations

import dataclasses
import time

import jax
import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.engines.deploy import answers, wire
from idiolect.engines.deploy.saved import Saved, train_saved
from idiolect.engines.door import Training
from idiolect.protection import (
    ClientPrivacy,
    Protection,
    RowPrivacy,
    SecureAggregation,
    protect,
    with_private_noise,
    with_private_rows,
)

ROUNDS = 3
TRAINING = Training(rounds=ROUNDS, record_every=ROUNDS, executor="batched", precision="float64")
OF_ROWS = Protection(rows=RowPrivacy(clip=0.5, noise_multiplier=1.0))
MASKS = SecureAggregation(threshold=4, cohort=6)
OF_CLIENTS = Protection(privacy=ClientPrivacy(clip=0.5, noise="clients"), secure_aggregation=MASKS)
SITE = "site-2"


@pytest.fixture
def make(workbench, make_bench, uniform, tmp_path):
    """Sites that agreed to `rounds` rounds, and a coordinator that asks for those of `training`."""
    # its clients keep control variates and settle them: a round asked again must find both as they were
    algorithm = workbench.build("scaffold", option=2, local_steps=1, batch_size=2)

    def made(protection=OF_ROWS, training=TRAINING, rounds=ROUNDS, secret=True):
        folder = tmp_path / f"sites-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        bench = make_bench(protect(algorithm, protection), uniform, training, 3, folder)
        for site, post in bench.posts.items():
            agreed = None if rounds is None else frozenset(range(rounds))
            post = dataclasses.replace(post, rounds=agreed)
            if secret:
                post = dataclasses.replace(post, with_secrets=lambda own: with_private_noise(with_private_rows(own)))
            bench.desks[site].post = post
        return bench

    return made


class Server:
    """What passed between a coordinator and one site, to be asked again in any other way."""

    def __init__(self, bench):
        self.bench, self.asked, self.answered = bench, {}, {}
        self.later = time.time_ns()  # above all numbers of messages, which go by microseconds

    def listen(self, site, number, message, handler):
        answer = handler.handle(message)
        if site == SITE:
            asked = wire.decode(message, "the server")
            self.asked[asked.kind, asked.round] = asked
            self.answered[asked.kind, asked.round] = wire.decode(answer, SITE)
        return answer

    def ask(self, kind, number, /, **changes):
        self.later += 1
        asked = self.asked[kind, number]._replace(sequence=self.later, **changes)
        return wire.decode(self.bench.sites[SITE].handle(wire.encode(asked)), SITE)

    def ask_otherwise(self, number):
        arrays = dict(self.asked["round", number].arrays)
        name = next(name for name in arrays if name.startswith("sent") and arrays[name].size)
        return self.ask("round", number, arrays=arrays | {name: arrays[name] + 1})


@pytest.fixture
def after_a_run(make):
    """(sites, the server that has trained them): what a server may still ask then."""

    def made(**more):
        bench = make(**more)
        server = Server(bench)
        bench.train(server.listen)
        return bench, server

    return made


def counted(bench):
    return bench.sites[SITE].running.work.__self__.given


def files_of(bench):
    return sorted(path.name for path in (bench.folder / SITE / "answers").rglob("*.safetensors"))


def alike(one, other):
    assert one.arrays
    return {name: array.tobytes() for name, array in one.arrays.items()} == {
        name: array.tobytes() for name, array in other.arrays.items()
    }


def test_counting_changes_no_number_and_no_message(make, workbench):
    """With noise from the seed, which a second run can repeat."""
    found = []
    for rounds in (None, ROUNDS):
        coordinator, standing = make(rounds=rounds, secret=False).train()
        found.append((standing, coordinator.link.traffic["round"]))
    (plain, sent), (counted, again) = found
    assert workbench.distance(plain.server, counted.server) == 0
    assert sent == again


def test_without_noise_of_its_own_a_site_keeps_no_answers(after_a_run):
    bench, server = after_a_run(rounds=None)
    assert not (bench.folder / SITE / "answers").exists()
    last = server.ask("round", ROUNDS - 1)
    assert not alike(last, server.answered["round", ROUNDS - 1])  # noise is drawn anew: what counting must prevent


def test_a_round_beyond_those_agreed_is_refused(make):
    bench = make(training=dataclasses.replace(TRAINING, rounds=ROUNDS + 1))
    with pytest.raises(RequestError, match=f"Round {ROUNDS} has 0 valid uploads"):
        bench.train()
    assert any(f"Round {ROUNDS} is not one of the {ROUNDS} that this site agreed to" in text for text in bench.said)
    assert counted(bench) == set(range(ROUNDS))


def test_the_same_question_has_the_same_answer_and_another_has_none(after_a_run):
    bench, server = after_a_run()
    last = ROUNDS - 1
    from_another_state = server.asked["round", last].content | {"counted": ROUNDS}
    assert server.ask("round", last, content=from_another_state).kind == "refused"
    again = server.ask("round", last)
    assert again.kind == "upload"
    assert alike(again, server.answered["round", last])
    assert again.content == server.answered["round", last].content
    refused = server.ask_otherwise(last)
    assert refused.kind == "refused"
    assert "another question about round 2" in refused.content["reason"]
    assert alike(server.ask("round", last), server.answered["round", last])  # a refusal costs nothing
    assert counted(bench) == set(range(ROUNDS))
    assert files_of(bench) == ["answer-00000001.safetensors", "answer-00000002.safetensors", answers.COUNT]


def test_a_round_that_was_passed_over_may_be_asked_once(after_a_run):
    """What counts is which rounds were answered, and not how far the server is."""
    bench, server = after_a_run(rounds=ROUNDS + 1)
    asked = server.asked["round", ROUNDS - 1]
    first = server.ask("round", ROUNDS - 1, round=ROUNDS)
    assert first.kind == "upload"
    assert counted(bench) == set(range(ROUNDS + 1))
    other = server.ask("round", ROUNDS - 1, round=ROUNDS, arrays={name: -part for name, part in asked.arrays.items()})
    assert other.kind == "refused"


def test_a_site_that_was_killed_has_not_forgotten(after_a_run):
    bench, server = after_a_run()
    last = ROUNDS - 1
    bench.restart(SITE)
    assert server.ask("begin", 0).kind == "ready"
    assert counted(bench) == set(range(ROUNDS))
    assert server.ask_otherwise(last).kind == "refused"
    assert alike(server.ask("round", last), server.answered["round", last])
    # killed after the answer was written and before it was counted: it might have left
    folder = next((bench.folder / SITE / "answers").iterdir())
    (folder / answers.COUNT).unlink()
    bench.restart(SITE)
    assert server.ask("begin", 0).kind == "ready"
    assert server.ask_otherwise(last).kind == "refused"


def test_an_answer_that_cannot_be_written_does_not_leave(after_a_run, monkeypatch):
    bench, server = after_a_run(rounds=ROUNDS + 1)

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(answers, "write_whole", full)
        assert "No space left" in server.ask("round", ROUNDS - 1, round=ROUNDS).content["reason"]
    assert ROUNDS not in counted(bench)
    assert server.ask("round", ROUNDS - 1, round=ROUNDS).kind == "upload"


def test_another_run_and_another_number_are_refused(after_a_run):
    """By the site's own name for what it agreed to: a server that gives the run another name begins no new count."""
    bench, server = after_a_run()
    begin = server.asked["begin", 0]
    refused = server.ask("begin", 0, content=begin.content | {"method": "again/method"})
    assert refused.kind == "refused"
    assert "answered 3 rounds of this method in another run" in refused.content["reason"]
    bench.desks[SITE].post = dataclasses.replace(bench.desks[SITE].post, number=3)
    assert server.ask("begin", 0, number=3).kind == "refused"
    bench.desks[SITE].post = dataclasses.replace(bench.desks[SITE].post, number=2)
    count = next((bench.folder / SITE / "answers").iterdir()) / answers.COUNT
    count.write_bytes(b"damaged")
    assert "cannot read count.safetensors" in server.ask("begin", 0).content["reason"]


class KilledError(Exception):
    """The coordinator's process ends here."""


@pytest.mark.parametrize("protection", [OF_ROWS, OF_CLIENTS], ids=["rows", "masked"])
def test_a_coordinator_that_lost_a_round_gets_it_again_bit_for_bit(protection, make, workbench, tmp_path):
    """It had all uploads and was killed before they were saved; what comes again is no second look."""
    bench, lost = make(protection), []

    def kills(standing):
        if standing.round == 2:
            lost.append(standing)
            raise KilledError
        saved.save(standing, coordinator.link)

    coordinator, saved = bench.coordinator(), Saved(tmp_path / "server")
    coordinator.save = kills
    with pytest.raises(KilledError):
        coordinator.train(coordinator.start())
    bench.restart(SITE)
    again, passed = bench.coordinator(), []
    store = Saved(tmp_path / "server")
    save = store.save

    def look(standing, link, ends=None):
        passed.append(standing)
        save(standing, link, ends)

    store.save = look
    standing, ends = train_saved(again, store)
    assert standing.round == ROUNDS
    assert len(ends.answered) == 6
    second = next(one for one in passed if one.round == 2)
    assert workbench.distance(second.server, lost[0].server) == 0
    assert bench.said == []


def test_a_coordinator_that_falls_back_to_its_older_checkpoint_ends_where_it_was(make, workbench, tmp_path):
    bench, saved = make(), Saved(tmp_path / "server")
    coordinator, stood = bench.coordinator(), []

    def stops(standing):
        saved.save(standing, coordinator.link)
        stood.append(standing)
        if standing.round == ROUNDS:
            raise KilledError

    coordinator.save = stops
    with pytest.raises(KilledError):
        coordinator.train(coordinator.start())
    saved.checkpoint.latest.write_bytes(b"damaged")
    standing, _ = train_saved(bench.coordinator(), Saved(tmp_path / "server", bench.said.append))
    assert workbench.distance(standing.server, stood[-1].server) == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(standing.server))
