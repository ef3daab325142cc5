# SPDX-License-Identifier: Apache-2.0
"""What comes out of a training run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable

import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.core.algorithm import Algorithm
from idiolect.core.keys import Key
from idiolect.core.kinds import Routes
from idiolect.core.tree import Params, Tree
from idiolect.engines.door import Training, run_precision
from idiolect.engines.evaluate import Standing, models_and_outputs, routes_taken
from idiolect.engines.footprint import client_flops, storage
from idiolect.engines.judge import find_lane_standing, look, score_new_clients
from idiolect.engines.plan import Plan
from idiolect.engines.recording import ClientScores, Recorder, Row
from idiolect.engines.state import Snapshot
from idiolect.metrics.personalization import personalization_of
from idiolect.metrics.routing import Routing, routing_report
from idiolect.metrics.scores import SCORES
from idiolect.record.schema import Flops, Personalization, Storage


@dataclasses.dataclass
class Run:
    """The outcome of one lane."""

    plan: Plan = dataclasses.field(repr=False)
    lane: int
    algorithm: Algorithm
    recorder: Recorder
    last: Snapshot
    selected: Snapshot  # the best recorded round on validation rows
    # what was asked once: answers on test rows are written, compared and charted, but computed once
    _found: dict[Hashable, Tree] = dataclasses.field(default_factory=dict, repr=False, init=False)

    @property
    def seed(self) -> int:
        """Of its draws."""
        return self.plan.seeds[self.lane]

    @property
    def training(self) -> Training:
        """Resolved: the executor, chunk and block that were used."""
        return self.plan.training

    @property
    def ledger(self) -> Ledger:
        """What the run cost."""
        return self.recorder.ledger

    @property
    def history(self) -> list[Row]:
        """One row per recorded round."""
        return self.recorder.history

    @property
    def server(self) -> Tree:
        """The server after the last round."""
        return self.last.server

    @property
    def states(self) -> Tree:
        """The clients' states after the last round."""
        return self.last.states

    def shared_model(self, snapshot: Snapshot | None = None) -> Params | None:
        """The one model for all clients, if there is one (default: after the last round)."""
        with run_precision(self.training.precision):
            return self.algorithm.shared_model((snapshot or self.last).server)

    def personal_models(self, snapshot: Snapshot | None = None) -> Params:
        """Every client's model, stacked over clients (default: after the last round)."""
        return self._ask(models_and_outputs, snapshot or self.last, "test")[0]

    def outputs(self, snapshot: Snapshot | None = None, split: str = "test") -> dict[str, np.ndarray]:
        """What the shared and personal models answer on each client's rows, padded: (clients, rows, ...).

        As many clients at a time as the executor takes, so that a run that fits the memory can be asked. What is found
        is kept for whoever asks again: the arrays are read-only.
        """
        some = {"chunk": self._chunk} if self._chunk else {}  # all at once are the models' own program
        return self._ask(models_and_outputs, snapshot or self.last, split, **some)[1]

    def _ask(self, program: Callable[..., Tree], where: Snapshot, split: str, **how: int) -> Tree:
        """What a program finds of all clients. Of the last and the selected round it is computed once and kept."""
        known = where is self.last or where is self.selected
        asked = (program, where.round, split, *how.values()) if known else None
        if asked not in self._found:
            self._found[asked] = look(self.plan, self._who, where, split, functools.partial(program, **how))
        return self._found[asked] if asked else self._found.pop(asked)

    def standing(self) -> Standing:
        """Where the run stands in its objective after the last round: w, every beta_m, every model; on the host."""
        return find_lane_standing(self.plan, self._who, self.last)

    def personalization(self, of: str = "selected") -> Personalization | None:
        """Accuracy before and after adaptation on test rows, over the clients; None where targets are no classes.

        `of` is the "selected" or the "last" round, or "new_clients".
        """
        found = self.new_clients() if of == "new_clients" else getattr(self.recorder, of)
        instances = found.get("test", {}).get("instances")
        return None if instances is None else personalization_of(instances)

    def routing(self, snapshot: Snapshot | None = None, split: str = "test") -> Routing | None:
        """Where the clients' rows of a split are routed (default: the selected round); None where nothing is.

        As many clients at a time as the executor takes, so that a run that fits the memory can be asked.
        """
        if not isinstance(self.algorithm, Routes) or SCORES[self.recorder.scores[0]].task != "classification":
            return None
        found = self._ask(routes_taken, snapshot or self.selected, split, chunk=self._chunk)
        return routing_report(self.algorithm.route_names, *found)

    @property
    def _who(self) -> tuple[Algorithm, Key]:
        return self.algorithm, self.plan.roots[self.lane]

    @property
    def _chunk(self) -> int:
        """Clients that the executor takes at a time; 0: all of them."""
        return {"batched": 0, "chunked": self.training.chunk}.get(self.training.executor, 1)

    def storage(self) -> Storage:
        """Bytes that a client and the server keep between rounds, and those of a personal model."""
        return storage(self.algorithm, self.plan.federation.train, self.training.precision)

    def flops(self) -> Flops:
        """What the compiler counts for a client of as many rows as the mean client; takes seconds with deep models."""
        arguments = (self.algorithm, self.last.server, self.seed)
        return client_flops(*arguments, self.plan.federation.train, self.training.precision)

    def new_clients(self) -> ClientScores:
        """Scores of the federation's held-out clients, which never trained."""
        # of the round that every other answer is about
        if "new clients" not in self._found:
            self._found["new clients"] = score_new_clients(self.plan, self._who, self.selected)
        return self._found["new clients"]
