# SPDX-License-Identifier: Apache-2.0
"""A shared block that is averaged, and own steps of every client before its model predicts."""

from __future__ import annotations

from idiolect.algorithms.federated_averaging import FederatedAveraging
from idiolect.algorithms.optimizers import PLAIN, Descent
from idiolect.algorithms.walk import Gradient, walk
from idiolect.core import setting, settings
from idiolect.core.algorithm import Client, Working
from idiolect.core.types import Batch, ClientData, Key, Params, Tally


@settings
class FineTuned(FederatedAveraging[Client, Working]):
    """A shared block, averaged, with some own steps at evaluation if asked for; still abstract."""

    fine_tuning_steps: int = setting(default=0, at_least=0, doc="personal model: own steps before it predicts")
    fine_tuning_epochs: int = setting(
        default=0, at_least=0, doc="the same in passes over the client's rows; 0: use fine_tuning_steps"
    )
    fine_tuning_step_size: float | None = setting(
        default=None, above=0, doc="their step; unset: step_size", strengths=(0.003, 0.03, 0.3)
    )

    def fine_tuned(
        self, key: Key, start: Params, data: ClientData, gradient: Gradient, optimizer: str = PLAIN
    ) -> tuple[Params, Tally]:
        """Some steps or passes from `start` on the client's own training rows."""
        step_size = self.step_size if self.fine_tuning_step_size is None else self.fine_tuning_step_size
        descent, steps, epochs = Descent(optimizer, step_size), self.fine_tuning_steps, self.fine_tuning_epochs
        return walk(self, key, start, data, gradient, descent, steps=steps, epochs=epochs)

    def tuned_model(
        self, key: Key, start: Params, own: Params, data: ClientData, optimizer: str = PLAIN
    ) -> tuple[Params, Tally]:
        """What the objective makes of a shared block beside `own`, after fine-tuning the shared one if asked for."""

        def gradient(at: Key, shared: Params, batch: Batch) -> tuple[Params, Tally]:
            return self.objective.gradient_shared(at, shared, own, batch)

        tuned, spent = self.fine_tuned(key, start, data, gradient, optimizer)
        model, more = self.objective.personalize(key, tuned, own, data.batch())
        return model, spent.plus(more)
