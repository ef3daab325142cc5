# SPDX-License-Identifier: Apache-2.0
"""One model for all clients: f_m(w) = f'_m(w)."""

from __future__ import annotations

from idiolect.core import settings
from idiolect.core.types import Array, Batch, Key, Params
from idiolect.models.routing import routed_model
from idiolect.objectives.composed import ComposedObjective
from idiolect.objectives.routed import RoutedLoss


@settings
class GlobalModel(ComposedObjective):
    """The traditional objective: no personal block."""

    has_shared = True
    has_personal = False
    carries_statistics = True  # one model, one pass

    def settled_loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> Array:
        """f'_m of what w predicts."""
        outputs = self.client_loss.model.apply(shared, batch.inputs)
        return self.client_loss.value_of(outputs, shared, batch)

    def routed(self, routed: str, widths: tuple[int, ...], fixed: bool, token_routing: str) -> RoutedLoss:
        """f'_m of a mixture of w and local layers."""
        model = routed_model(self.client_loss.model, routed, widths, fixed, token_routing)
        return RoutedLoss(self.client_loss, model)

    def deployed(self, shared: Params, personal: Params) -> Params:
        """w."""
        return shared
