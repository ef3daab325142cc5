# SPDX-License-Identifier: Apache-2.0
"""Sites in this process around a loopback: what a coordinator makes of any algorithm, with or without faults."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from idiolect.engines import door
from idiolect.engines.deploy.coordinator import Coordinator, Job
from idiolect.engines.deploy.link import Link, Rules
from idiolect.engines.deploy.site import Allows, Site
from idiolect.engines.deploy.transport import Loopback, no_fault
from idiolect.engines.deploy.worker import Post
from idiolect.engines.door import Training
from idiolect.record import files

RUN = "0" * 32
QUICK = Rules(deadline=60.0, minimum=1, retries=2, wait=0.0)


class OwnDesk:
    """A desk that has everything ready: own settings, own rows."""

    def __init__(self, post, run=RUN):
        self.post, self.run, self.finished = post, run, None

    def answer(self, kind, content):
        return {"kind": kind}

    def begin(self, content):
        return self.post

    def finish(self, finished):
        self.finished = finished


@dataclasses.dataclass
class Bench:
    """A federation as sites, and a coordinator over them."""

    algorithm: object
    federation: object
    training: Training
    seed: int
    folder: object
    rules: Rules = QUICK
    allows: Allows = dataclasses.field(default_factory=lambda: Allows(least_rows=1))
    scores: tuple = ("log_loss",)

    def __post_init__(self):
        training, rows = self.training, self.federation.train
        self.participation = door.participation_of(self.algorithm, training, rows.clients)
        with door.run_precision(training.precision):
            self.admitted = door.admit(self.algorithm, rows.clients, training.precision, self.participation.chance)
            owns = [door.own_settings(self.admitted, client) for client in range(rows.clients)]
        parts = [
            [getattr(self.federation, part).select(np.array([client])) for part in ("train", "validation", "test")]
            for client in range(rows.clients)
        ]
        self.numbers = {f"site-{client}": client for client in range(rows.clients)}
        self.posts = {
            site: Post(owns[client], client, self.seed, training.precision, self.scores, *parts[client])
            for site, client in self.numbers.items()
        }
        self.desks = {site: OwnDesk(post) for site, post in self.posts.items()}
        self.sites = {site: self.new_site(site) for site in self.numbers}
        self.transport = Loopback(self.sites)
        self.said = []

    def new_site(self, site):
        return Site(self.desks[site], self.folder / site, self.allows)

    def restart(self, site):
        """A new process of the site: only its folder is left of the old one."""
        self.transport.handlers[site] = self.sites[site] = self.new_site(site)

    def coordinator(self, save=lambda standing: None, fault=no_fault):
        self.transport.fault = fault
        link = Link(self.transport, RUN, self.numbers, self.rules, self.said.append)
        link.method = "run/method"
        job = Job(
            "method",
            self.admitted,
            self.seed,
            self.training,
            self.participation,
            self.scores,
            self.scores[0],
            self.federation.train,
            lambda site: {},
        )
        return Coordinator(job, link, save)

    def train(self, fault=no_fault, save=lambda standing: None):
        """(coordinator, where it stands at the end)."""
        coordinator = self.coordinator(save, fault)
        return coordinator, coordinator.train(coordinator.start())

    def state_of(self, site):
        """The site's newest state that counted, as its process has it."""
        kept = self.sites[site].running.kept
        return kept.entries[max(kept.entries)].state


@pytest.fixture(autouse=True, scope="session")
def without_power_cuts():
    """Thousands of small files: to wait for the disk with each would be most of the time of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_flush", lambda path: None)
        yield


@pytest.fixture(scope="session")
def make_bench():
    return Bench
