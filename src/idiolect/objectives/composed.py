# SPDX-License-Identifier: Apache-2.0
"""What every objective built on one plain loss shares: the loss, and how its model predicts."""

from __future__ import annotations

import dataclasses
from typing import Any

from idiolect.core.objective import Objective
from idiolect.core.settings import settings
from idiolect.core.tree import Params
from idiolect.objectives.client_loss import ClientLoss


@settings
class ComposedObjective(Objective):
    """An objective whose client terms are made of f'_m, a `ClientLoss`; still abstract."""

    client_loss: ClientLoss = dataclasses.field(kw_only=False)

    def predict(self, model: Params, inputs: Any) -> Any:
        """The model's outputs."""
        return self.client_loss.predict(model, inputs)
