# SPDX-License-Identifier: Apache-2.0
"""Local SGD on one shared model, with a proximal term, a start that clients prepare and fine-tuning if asked for."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from idiolect.algorithms.fine_tuning import FineTuned
from idiolect.algorithms.tuples import Broadcast
from idiolect.core import NOTHING, Fit, Models, setting, settings, step_key, tree
from idiolect.core.kinds import KeepsPrepared
from idiolect.core.objective import Prepares
from idiolect.core.types import Array, Batch, ClientData, Key, Params, StartKeys, Tally


class ClientState(NamedTuple):
    """What the objective prepared; a client that has nothing to prepare keeps nothing."""

    prepared: Params


class Working(NamedTuple):
    """A client's copy of the shared model, and what it prepared."""

    shared: Params
    prepared: Params
    drawn: Array


@settings
class OneModel(FineTuned[Any, Working], KeepsPrepared):
    """Local SGD on one shared model; still abstract: it leaves open what clients predict with."""

    carries_statistics = True
    makes_another = ("penalty",)  # FedAvg with a penalty is FedProx

    penalty: float | None = setting(default=None, at_least=0, doc="FedProx's mu; unset: no proximal term")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        return Fit(self.unless_one_model())

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[Any, Tally]:
        """What the objective prepares, if anything."""
        if not isinstance(self.objective, Prepares):
            return (), NOTHING
        prepared, tally = self.objective.prepare(keys.common, data)
        return ClientState(prepared), tally

    def receive(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """Start from the shared model."""
        return Working(sent.shared, _prepared(client), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step."""
        batch = self.batch(t, working.drawn, data)
        gradient, tally = self.objective.gradient_shared(step_key(key, t), working.shared, working.prepared, batch)
        if self.penalty is not None:
            gradient = tree.pull(gradient, self.penalty, working.shared, sent.shared)
        return working._replace(shared=tree.descend(working.shared, self.step_size, gradient)), tally

    @abc.abstractmethod
    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """What client m predicts with."""

    def tuned_model(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Params, Tally]:
        """What the objective makes of w, after fine-tuning on the client's own training rows if asked for."""
        own = _prepared(client)

        def gradient(at: Key, shared: Params, batch: Batch) -> tuple[Params, Tally]:
            return self.objective.gradient_shared(at, shared, own, batch)

        tuned, spent = self.fine_tuned(key, sent.shared, data, gradient)
        model, more = self.objective.personalize(key, tuned, own, data.batch())
        return model, spent.plus(more)


def _prepared(client: Any) -> Params:
    return getattr(client, "prepared", ())
