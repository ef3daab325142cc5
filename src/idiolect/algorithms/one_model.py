# SPDX-License-Identifier: Apache-2.0
"""Local SGD on one shared model, with a proximal term, a start that clients prepare and fine-tuning if asked for."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from idiolect.algorithms.fine_tuning import FineTuned
from idiolect.algorithms.local_steps import LocalSteps
from idiolect.algorithms.optimizers import CLIENT_OPTIMIZERS, PLAIN, Descent
from idiolect.algorithms.tuples import Broadcast
from idiolect.core import NOTHING, Fit, KeepsPrepared, Models, Prepares, RowReads, setting, settings, step_key, tree
from idiolect.core.types import Array, ClientData, Key, Params, StartKeys, Tally


class ClientState(NamedTuple):
    """What the objective prepared, and an optimizer's memory where it is kept; a client without both keeps nothing."""

    prepared: Params
    memory: Any = ()


class Working(NamedTuple):
    """A client's copy of the shared model, what it prepared, and its optimizer's memory."""

    shared: Params
    prepared: Params
    drawn: Array
    memory: Any


@settings
class OneModel(FineTuned[Any, Working], KeepsPrepared):
    """Local SGD on one shared model; still abstract: it leaves open what clients predict with."""

    carries_statistics = True
    row_reads = RowReads()
    makes_another = ("penalty",)  # FedAvg with a penalty is FedProx

    penalty: float | None = setting(default=None, at_least=0, doc="FedProx's mu; unset: no proximal term")
    client_optimizer: str = setting(
        default=PLAIN,
        choices=CLIENT_OPTIMIZERS,
        doc="of local steps and fine-tuning: any optax optimizer, by name; momentum: sgd with 0.9",
    )
    keep_memory: bool = setting(default=False, doc="keep the optimizer's memory from round to round; else start anew")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        return LocalSteps.fit(self, chance)  # also an objective that adapts models itself

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[Any, Tally]:
        """What the objective prepares, if anything, and an empty memory where it is kept."""
        memory = self._descent.start(self.objective.init_shared(keys.common)) if self._keeps else ()
        if not isinstance(self.objective, Prepares):
            return (ClientState((), memory) if self._keeps else ()), NOTHING
        prepared, tally = self.objective.prepare(keys.common, data)
        return ClientState(prepared, memory), tally

    def receive(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """Start from the shared model."""
        memory = client.memory if self._keeps else self._descent.start(sent.shared)
        return Working(sent.shared, prepared_of(client), self.draw_batches(key, data), memory), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step."""
        batch = self.batch(t, working.drawn, data)
        gradient, tally = self.objective.gradient_shared(step_key(key, t), working.shared, working.prepared, batch)
        if self.penalty is not None:
            gradient = tree.pull(gradient, self.penalty, working.shared, sent.shared)
        shared, memory = self._descent.step(working.shared, working.memory, gradient)
        return working._replace(shared=shared, memory=memory), tally

    def send(self, key: Key, sent: Any, working: Working, client: Any, data: ClientData) -> tuple[Any, Any, Tally]:
        """The drift of w_m; the client keeps what it has, and the memory of its optimizer if asked for."""
        kept = client._replace(memory=working.memory) if self._keeps else client
        return self.upload(sent, working.shared, data), kept, NOTHING

    @abc.abstractmethod
    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """What client m predicts with."""

    @property
    def _descent(self) -> Descent:
        return Descent(self.client_optimizer, self.step_size)

    @property
    def _keeps(self) -> bool:
        """Whether a client has a memory to keep."""
        return self.keep_memory and self.client_optimizer != PLAIN


def prepared_of(client: Any) -> Params:
    """What it has prepared, or nothing."""
    return getattr(client, "prepared", ())
