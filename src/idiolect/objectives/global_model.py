# SPDX-License-Identifier: Apache-2.0
"""One model for everybody: f_m(w) = f'_m(w)."""

from __future__ import annotations

import dataclasses
from typing import Any

from idiolect.core.data import Batch
from idiolect.core.keys import Key
from idiolect.core.objective import Objective
from idiolect.core.settings import settings
from idiolect.core.tree import Params
from idiolect.objectives.client_loss import ClientLoss


@settings
class GlobalModel(Objective):
    """The traditional objective: no personal block."""

    client_loss: ClientLoss = dataclasses.field(kw_only=False)
    has_shared = True
    has_personal = False

    def init_shared(self, key: Key) -> Params:
        """The model's start."""
        return self.client_loss.init(key)

    def init_personal(self, key: Key) -> Params:
        """Nothing."""
        return ()

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Any]:
        """f'_m(w)."""
        return self.client_loss.value(key, shared, batch)

    def deployed(self, shared: Params, personal: Params) -> Params:
        """w."""
        return shared

    def predict(self, model: Params, inputs: Any) -> Any:
        """The model's outputs."""
        return self.client_loss.predict(model, inputs)
