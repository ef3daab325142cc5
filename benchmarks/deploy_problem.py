# SPDX-License-Identifier: Apache-2.0
"""A small problem over sites in this process, built without specs or tables: what the deploy benchmarks ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problems import small_logistic
from idiolect.algorithms import Scaffold
from idiolect.core.algorithm import Algorithm
from idiolect.engines import door
from idiolect.engines.deploy.coordinator import Coordinator, Job
from idiolect.engines.deploy.link import Link, Rules
from idiolect.engines.deploy.site import Allows, Finished, Site
from idiolect.engines.deploy.transport import Transport
from idiolect.engines.deploy.wire import Facts
from idiolect.engines.deploy.worker import Post
from idiolect.engines.door import Training
from idiolect.objectives import GlobalModel
from idiolect.protection import Protection, SecureAggregation, protect

RUN = "0" * 32
METHOD = "benchmark"
SEED = 3


class OwnDesk:
    """A desk that has its post ready."""

    def __init__(self, post: Post):
        self.run, self.post = RUN, post

    def answer(self, kind: str, content: Facts) -> Facts:
        return {}

    def begin(self, content: Facts) -> Post:
        return self.post

    def finish(self, finished: Finished) -> None:
        pass


class Problem:
    """An algorithm, the rows of its clients as sites, and what a coordinator needs."""

    def __init__(self, rounds: int, rows: int = 8, clients: int = 20, scaffold: bool = False, masked: bool = False):
        self.algorithm: Algorithm
        self.algorithm, self.federation = small_logistic(clients, rows)
        if scaffold:
            loss = self.algorithm.objective.client_loss  # type: ignore[attr-defined]
            self.algorithm = Scaffold(GlobalModel(loss), local_steps=2, batch_size=2, step_size=0.1)
        if masked:
            rules = SecureAggregation(threshold=clients // 2 + 1, cohort=clients)
            self.algorithm = protect(self.algorithm, Protection(secure_aggregation=rules))
        self.training = Training(rounds=rounds, record_every=rounds, executor="batched", precision="float32")
        train = self.federation.train
        self.numbers = {f"site-{client}": client for client in range(train.clients)}
        self.participation = door.participation_of(self.algorithm, self.training, train.clients)
        self.admitted: Algorithm = door.admit(self.algorithm, train.clients, "float32", self.participation.chance)

    def site(self, name: str, folder: Path) -> Site:
        client = self.numbers[name]
        parts = [getattr(self.federation, part).select(np.array([client])) for part in ("train", "validation", "test")]
        own = door.own_settings(self.admitted, client)
        post = Post(own, client, SEED, "float32", ("log_loss",), *parts)
        return Site(OwnDesk(post), folder / name, Allows(least_rows=1))

    def coordinator(self, transport: Transport, say: Any = lambda text: None) -> Coordinator:
        link = Link(transport, RUN, self.numbers, Rules(wait=0.0), say)
        link.method = METHOD
        scores = (("log_loss",), "log_loss")
        facts = (self.training, self.participation, *scores, self.federation.train, lambda site: {})
        return Coordinator(Job(METHOD, self.admitted, SEED, *facts), link)
