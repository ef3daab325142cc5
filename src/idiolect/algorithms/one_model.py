# SPDX-License-Identifier: Apache-2.0
"""Local SGD on one shared model, with a proximal term, a start that clients prepare and fine-tuning if asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

from idiolect.algorithms.fine_tuning import FineTuned
from idiolect.algorithms.local_steps import LocalSteps
from idiolect.algorithms.optimizers import CLIENT_OPTIMIZERS, PLAIN, Descent
from idiolect.algorithms.tuples import Broadcast, Working
from idiolect.core import NOTHING, Fit, KeepsPrepared, Prepares, RowReads, setting, settings, step_key, tree
from idiolect.core.types import Array, ClientData, Key, Params, StartKeys, Tally


class ClientState(NamedTuple):
    """What the objective prepared, and an optimizer's memory where it is kept; a client without both keeps nothing."""

    prepared: Params
    memory: Any = ()


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
        return Working(sent.shared, ClientState(prepared_of(client), memory), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step."""
        own, batch = working.own, self.batch(t, working.drawn, data)
        gradient, tally = self.objective.gradient_shared(step_key(key, t), working.shared, own.prepared, batch)
        if self.penalty is not None:
            gradient = tree.pull(gradient, self.penalty, working.shared, sent.shared)
        shared, memory = self._descent.step(working.shared, own.memory, gradient)
        return working._replace(shared=shared, own=own._replace(memory=memory)), tally

    def send(self, key: Key, sent: Any, working: Working, client: Any, data: ClientData) -> tuple[Any, Any, Tally]:
        """The drift of w_m; the client keeps what it has, and the memory of its optimizer if asked for."""
        return self.upload(sent, working.shared, data), working.own if self._keeps else client, NOTHING

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
