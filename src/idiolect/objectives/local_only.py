# SPDX-License-Identifier: Apache-2.0
"""A model for each: f_m(beta_m) = f'_m(beta_m)."""

from __future__ import annotations

from typing import Any

from idiolect.core.data import Batch
from idiolect.core.keys import Key
from idiolect.core.settings import settings
from idiolect.core.tree import Params
from idiolect.objectives.composed import ComposedObjective


@settings
class LocalOnly(ComposedObjective):
    """The fully personal objective: no shared block."""

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

    def _lost_statistics(self) -> str | None:
        """It carries them: one model, one pass."""
        return None
