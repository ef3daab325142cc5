# SPDX-License-Identifier: Apache-2.0
"""Sites vanish, return, lie and come late; the coordinator dies: what counted is what an undisturbed run counts."""

from __future__ import annotations

import errno
import os

import jax
import numpy as np
import pytest

from idiolect.core import keys
from idiolect.core.addressing import address
from idiolect.core.checks import RequestError
from idiolect.engines import door
from idiolect.engines.client import Round
from idiolect.engines.deploy import kept, wire
from idiolect.engines.deploy.coordinator import _opened, _stepped
from idiolect.engines.deploy.link import Rules
from idiolect.engines.deploy.saved import Saved, train_saved
from idiolect.engines.deploy.site import Allows
from idiolect.engines.deploy.uploads import _collected
from idiolect.engines.door import Training
from idiolect.engines.server import server_init

ROUNDS = 5
TRAINING = Training(rounds=ROUNDS, record_every=3, executor="batched", block=3, precision="float64")
PARTIAL = Training(rounds=ROUNDS, cohort=4, record_every=ROUNDS, executor="batched", block=3, precision="float64")
METHODS = ("scaffold", "scafflix")  # what the server holds is a sum over what clients hold: a lost upload breaks it


@pytest.fixture(scope="module", params=METHODS)
def bench(request, workbench, make_bench, uniform, tmp_path_factory):
    """A new set of sites for each call; programs, and what undisturbed runs end with, are shared."""
    algorithm = workbench.build(request.param, local_steps=2, batch_size=2)
    known = {}

    def make(training=TRAINING, **more):
        made = make_bench(algorithm, uniform, training, 4, tmp_path_factory.mktemp(request.param), **more)
        made.known = known
        return made

    return make


def replay(bench, cohorts):
    """Rounds of these cohorts without a message, a file or a fault: (server, states)."""
    workers = [bench.sites[site].running.worker for site in bench.numbers]
    people = [worker.start()[0] for worker in workers]
    with door.run_precision("float64"):
        root = keys.root_key(bench.seed)
        server = server_init(bench.admitted, root)
        for number, cohort in enumerate(cohorts):
            sent = _opened(bench.admitted, root, np.int32(number), server)
            now = Round(bench.admitted, root, np.int32(number), sent)
            done = {client: workers[client].work(number, address(sent, client), people[client]) for client in cohort}
            uploads = jax.tree.map(lambda *leaves: np.stack(leaves), *(one[0] for one in done.values()))
            partial = _collected(bench.admitted, uploads, np.array(cohort, np.int32))
            server, _ = _stepped(now, server, partial)
            after = _opened(bench.admitted, root, np.int32(number + 1), server)
            for client, (_, state, _) in done.items():
                people[client] = workers[client].settle(number, address(after, client), state)
    return server, people


def distance(one, other):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    gaps = (np.asarray(a, float) - np.asarray(b, float) for a, b in leaves)
    return max((float(np.max(np.abs(gap), initial=0)) for gap in gaps), default=0)


def check(bench, standing, cohorts):
    """Server and all states are those of an undisturbed run with these cohorts."""
    key = str(cohorts)
    if key not in bench.known:
        bench.known[key] = replay(bench, cohorts)
    server, people = bench.known[key]
    assert distance(standing.server, server) < 1e-12
    for site, client in bench.numbers.items():
        assert distance(bench.state_of(site), people[client]) < 1e-12, site


def everybody(*absent):
    """Cohorts of all rounds; `absent` are (round, client)."""
    return [[client for client in range(6) if (number, client) not in absent] for number in range(ROUNDS)]


def broken(site, number, how):
    """A fault in one round of one site; `how(message, handler)` is what happens instead."""

    def fault(name, now, message, handler):
        asked = wire.decode(message, "test")
        if name == site and now == number and asked.kind == "round":
            return how(message, handler)
        return handler.handle(message)

    return fault


def spoilt(change):
    """The answer with its arrays changed."""

    def how(message, handler):
        answer = wire.decode(handler.handle(message), "test")
        name = max(answer.arrays, key=lambda one: answer.arrays[one].size)
        return wire.encode(answer._replace(arrays=dict(answer.arrays) | change(name, answer.arrays[name])))

    return how


def stale(message, handler):
    answer = wire.decode(handler.handle(message), "test")
    return wire.encode(answer._replace(round=answer.round - 1, sequence=answer.sequence - 1))


FAULTS = {
    "vanishes before the work": lambda message, handler: None,
    "vanishes after the work": lambda message, handler: handler.handle(message) and None,
    "comes late": lambda message, handler: handler.handle(message) and None,
    "not a number": spoilt(lambda name, array: {name: np.full_like(array, np.nan)}),
    "infinite": spoilt(lambda name, array: {name: np.full_like(array, np.inf)}),
    "wrong shape": spoilt(lambda name, array: {name: array.reshape(-1)[:1]}),
    "wrong type": spoilt(lambda name, array: {name: array.astype(np.float32)}),
    "another name": spoilt(lambda name, array: {"upload.more": array}),
    "a huge norm": spoilt(lambda name, array: {name: array + 1e12}),
    "a stale round": stale,
    "no message": lambda message, handler: b"\x07" * 40,
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_costs_one_upload_and_nothing_else(bench, kind):
    here = bench()
    _, standing = here.train(fault=broken("site-2", 3, FAULTS[kind]))
    check(here, standing, everybody((3, 2)))
    assert len(here.said) == 1
    assert "site-2" in here.said[0]
    assert ("did not answer" in here.said[0]) == ("vanishes" in kind or "late" in kind)


def test_a_message_that_comes_twice_is_refused_the_second_time(bench):
    here = bench()

    def twice(message, handler):
        first = handler.handle(message)
        assert wire.decode(handler.handle(message), "test").kind == "refused"
        return first

    _, standing = here.train(fault=broken("site-2", 3, twice))
    check(here, standing, everybody())


def test_a_site_whose_process_dies_during_its_step_goes_on_from_its_folder(bench):
    here = bench()

    def dies(message, handler):
        answer = handler.handle(message)  # its state is on disk, the answer is lost
        here.restart("site-2")
        return None if wire.decode(answer, "test").kind == "upload" else answer

    _, standing = here.train(fault=broken("site-2", 3, dies))
    check(here, standing, everybody((3, 2)))

    here = bench()

    def restarts(message, handler):
        answer = handler.handle(message)
        here.restart("site-2")  # after its upload has left: it must count all the same
        return answer

    _, standing = here.train(fault=broken("site-2", 3, restarts))
    check(here, standing, everybody())


def test_a_site_joins_in_the_middle_and_another_stays_away_for_a_while(bench):
    here = bench()

    def fault(name, now, message, handler):
        gone = (name == "site-5" and now < 2) or (name == "site-1" and 2 <= now < 5)
        return None if gone else handler.handle(message)

    _, standing = here.train(fault=fault)
    check(here, standing, everybody((0, 5), (1, 5), (2, 1), (3, 1), (4, 1)))


def test_a_full_disk_costs_the_round(bench, monkeypatch):
    here = bench()
    write = kept.write_whole

    def full(message, handler):
        def fails(path, content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(kept, "write_whole", fails)
        answer = handler.handle(message)
        monkeypatch.setattr(kept, "write_whole", write)
        return answer

    _, standing = here.train(fault=broken("site-2", 3, full))
    check(here, standing, everybody((3, 2)))
    assert "No space left" in here.said[0]
    assert "site-2" in here.said[0]


class KilledError(Exception):
    """The coordinator's process ends here."""


@pytest.mark.parametrize("moment", [2, 4, 9])
def test_a_coordinator_that_is_killed_goes_on_with_the_same_result(bench, tmp_path, moment):
    """After any message: whether the round counted or not, the next process finds out."""
    here = bench(PARTIAL)
    seen = []

    def kills(name, now, message, handler):
        answer = handler.handle(message)
        seen.append(name)
        if len(seen) == 6 + 6 + moment:  # begin, the first record
            raise KilledError
        return answer

    coordinator = here.coordinator(fault=kills)
    with pytest.raises(KilledError):
        train_saved(coordinator, Saved(tmp_path / "server"))
    again = here.coordinator()
    standing, ends = train_saved(again, Saved(tmp_path / "server"))
    assert again.link.sequence > coordinator.link.sequence
    drawn, _ = here.participation.draw(here.seed, range(ROUNDS))
    check(here, standing, drawn.tolist())
    assert len(ends.answered) == 6
    finished, _ = train_saved(here.coordinator(), Saved(tmp_path / "server"))  # once more: nothing is left to do
    assert distance(finished.server, standing.server) == 0


def test_a_coordinator_that_lost_its_last_round_takes_the_sites_back_one(bench, tmp_path):
    here = bench()
    saved = Saved(tmp_path / "server", here.said.append)
    coordinator = here.coordinator()

    def stops(standing):
        saved.save(standing, coordinator.link)
        if standing.round == 4:
            raise KilledError

    coordinator.save = stops
    with pytest.raises(KilledError):
        coordinator.train(coordinator.start())
    saved.checkpoint.latest.write_bytes(b"damaged")
    standing, _ = train_saved(here.coordinator(), Saved(tmp_path / "server", here.said.append))
    check(here, standing, everybody())
    assert "checkpoint before it, round 3" in here.said[0]


def test_cohorts_settle_with_a_message_of_their_own_and_a_lost_one_is_repeated(bench):
    here = bench(PARTIAL)
    lost = []

    def fault(name, now, message, handler):
        if wire.decode(message, "test").kind == "settle" and len(lost) < 2:
            lost.append(name)
            return None
        return handler.handle(message)

    _, standing = here.train(fault=fault)
    drawn, _ = here.participation.draw(here.seed, range(ROUNDS))
    check(here, standing, drawn.tolist())


def test_too_few_sites_stop_the_run_with_their_names(bench):
    here = bench(rules=Rules(deadline=1.0, minimum=6, retries=1, wait=0.0))
    with pytest.raises(RequestError, match="site-2"):
        here.train(fault=broken("site-2", 3, lambda message, handler: None))


def test_a_site_refuses_what_it_does_not_allow(bench):
    for allows, word in ((Allows(least_rows=50), "fewer training rows"), (Allows(1, upload_bytes=10), "more than the")):
        here = bench(allows=allows)
        with pytest.raises(RequestError, match="begin"):
            here.train()
        assert all(word in text for text in here.said)
    here = bench()
    here.desks["site-1"].run = "another"
    _, standing = here.train()
    check_said = [text for text in here.said if "another run" in text]
    assert check_said
    assert all("site-1" in text for text in check_said)
    assert standing.round == ROUNDS


def test_a_site_keeps_a_log_of_all_that_it_sent(bench):
    here = bench()
    here.train()
    lines = (here.folder / "site-0" / kept.LOG).read_text().splitlines()
    assert len(lines) == 1 + ROUNDS + 3  # begin, uploads, records
    assert '"kind": "upload"' in lines[2]
    assert len(list((here.folder / "site-0" / "states").rglob("state-*"))) <= 3
