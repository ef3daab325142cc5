# SPDX-License-Identifier: Apache-2.0
"""Additive personalization (PLSGD 2023): f_m(w, theta_m) = f'_m(w + theta_m)."""

from __future__ import annotations

from idiolect.core import settings, tree
from idiolect.core.types import Key, Params
from idiolect.objectives.composed import ComposedObjective


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
