# SPDX-License-Identifier: Apache-2.0
"""The plainest objectives: one model for all clients, a model for each, and a shared one with a correction for each.

`GlobalModel` f_m(w) = f'_m(w); `LocalOnly` f_m(beta_m) = f'_m(beta_m); `Additive` (PLSGD 2023) f_m(w, theta_m) =
f'_m(w + theta_m).
"""

from __future__ import annotations

from idiolect.core import settings, tree
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


@settings
class LocalOnly(ComposedObjective):
    """The fully personal objective: no shared block."""

    has_shared = False
    has_personal = True
    carries_statistics = True  # one model, one pass

    def deployed(self, shared: Params, personal: Params) -> Params:
        """beta_m."""
        return personal


@settings
class Additive(ComposedObjective):
    """The personal block is a correction to the shared model; both gradients are the same vector."""

    has_shared = True
    has_personal = True

    def init_personal(self, key: Key) -> Params:
        """Zero: every client starts at the shared model."""
        return tree.zeros(self.client_loss.init(key))

    def shared_model(self, shared: Params) -> Params:
        """w: no correction."""
        return shared

    def deployed(self, shared: Params, personal: Params) -> Params:
        """w + theta_m."""
        return tree.add(shared, personal)
