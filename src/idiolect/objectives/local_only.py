# SPDX-License-Identifier: Apache-2.0
"""A model for each: f_m(beta_m) = f'_m(beta_m)."""

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
class LocalOnly(Objective):
    """The fully personal objective: no shared block."""

    client_loss: ClientLoss = dataclasses.field(kw_only=False)
    has_shared = False
    has_personal = True

    def init_shared(self, key: Key) -> Params:
        """Nothing."""
        return ()

    def init_personal(self, key: Key) -> Params:
        """The model's start."""
        return self.client_loss.init(key)

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Any]:
        """f'_m(beta_m)."""
        return self.client_loss.value(key, personal, batch)

    def deployed(self, shared: Params, personal: Params) -> Params:
        """beta_m."""
        return personal

    def predict(self, model: Params, inputs: Any) -> Any:
        """The model's outputs."""
        return self.client_loss.predict(model, inputs)
