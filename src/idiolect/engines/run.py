# SPDX-License-Identifier: Apache-2.0
"""What goes into a training run and what comes out of it."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import Rows
from idiolect.core.kinds import Routes
from idiolect.core.tree import Params
from idiolect.engines.door import Training, run_precision
from idiolect.engines.evaluate import outputs_alone, routes_taken
from idiolect.engines.footprint import Flops, Storage, client_flops, storage
from idiolect.engines.recording import ClientScores, Recorder
from idiolect.metrics.personalization import Personalization, personalization_of
from idiolect.metrics.routing import Routing, routing_report
from idiolect.metrics.scores import SCORES

if TYPE_CHECKING:
    from idiolect.engines.session import Session


class Splits(Protocol):
    """What the engine needs of a federation."""

    @property
    def train(self) -> Rows:
        """Rows to learn from."""

    @property
    def validation(self) -> Rows:
        """Rows to choose by."""

    @property
    def test(self) -> Rows:
        """Rows to judge by."""

    @property
    def names(self) -> tuple[str, ...]:
        """What clients are called."""


class Snapshot(NamedTuple):
    """One lane's whole state after a round."""

    round: int
    server: Any
    states: Any  # one row per client; None where they are on disk


@dataclasses.dataclass
class Run:
    """The outcome of one lane."""

    algorithm: Algorithm
    seed: int
    training: Training  # resolved: the executor, chunk and block that were used
    recorder: Recorder
    last: Snapshot
    selected: Snapshot  # the best recorded round on validation rows
    session: Session = dataclasses.field(repr=False)
    lane: int = 0
    _new_clients: ClientScores | None = dataclasses.field(default=None, repr=False)
    _answers: dict[str, np.ndarray] | None = dataclasses.field(default=None, repr=False)  # selected round, test rows

    @property
    def ledger(self) -> Ledger:
        """What the run cost."""
        return self.recorder.ledger

    @property
    def history(self) -> list[dict[str, Any]]:
        """One row per recorded round."""
        return self.recorder.history

    @property
    def server(self) -> Any:
        """The server after the last round."""
        return self.last.server

    @property
    def states(self) -> Any:
        """The clients' states after the last round."""
        return self.last.states

    def shared_model(self, snapshot: Snapshot | None = None) -> Params | None:
        """The one model for everybody, if there is one (default: after the last round)."""
        with run_precision(self.training.precision):
            return self.algorithm.shared_model((snapshot or self.last).server)

    def personal_models(self, snapshot: Snapshot | None = None) -> Params:
        """Every client's model, stacked over clients (default: after the last round)."""
        where = snapshot or self.last
        models, outputs = self.session.models_and_outputs(self, where, "test")
        if where is self.selected and not self._chunk:
            self._answers = outputs  # made on the way: gains and predictions are about these
        return models

    def outputs(self, snapshot: Snapshot | None = None, split: str = "test") -> dict[str, np.ndarray]:
        """What the shared and personal models answer on each client's rows, padded: (clients, rows, ...).

        As many clients at a time as the executor takes, so that a run that fits the memory can be asked. What the
        selected round answers on test rows is computed once.
        """
        where = snapshot or self.last
        kept = where is self.selected and split == "test"
        if kept and self._answers is not None:
            return self._answers
        if self._chunk:
            found = self.session.look(self, where, split, functools.partial(outputs_alone, chunk=self._chunk))
        else:
            found = self.session.models_and_outputs(self, where, split)[1]
        if kept:
            self._answers = found
        return found

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
        if not isinstance(self.algorithm, Routes) or not self._of_classes:
            return None
        program = functools.partial(routes_taken, chunk=self._chunk)
        found = self.session.look(self, snapshot or self.selected, split, program)
        return routing_report(self.algorithm.route_names, *found)

    @property
    def _chunk(self) -> int:
        """Clients that the executor takes at a time; 0: all of them."""
        return {"batched": 0, "chunked": self.training.chunk}.get(self.training.executor, 1)

    @property
    def _of_classes(self) -> bool:
        return SCORES[self.recorder.scores[0]].task == "classification"

    def storage(self) -> Storage:
        """Bytes that a client and the server keep between rounds, and those of a personal model."""
        return storage(self.algorithm, self.session.federation.train, self.training.precision)

    def flops(self) -> Flops:
        """What the compiler counts for a client of as many rows as the mean client; takes seconds with deep models."""
        arguments = (self.algorithm, self.last.server, self.seed)
        return client_flops(*arguments, self.session.federation.train, self.training.precision)

    def new_clients(self) -> ClientScores:
        """Scores of the federation's held-out clients, which never trained."""
        if self._new_clients is None:
            self._new_clients = self.session.new_clients(self)
        return self._new_clients
