# SPDX-License-Identifier: Apache-2.0
"""MT2, relaxed multi-task learning (Unified 2023, eq. 8): Ditto's objective with the shared model left free."""

from __future__ import annotations

from typing import Any

import jax

from idiolect.core import gradient_tally, setting, settings, tree
from idiolect.core.types import Batch, Key, Params, Tally
from idiolect.objectives.rescaled import PulledObjective


@settings
class MT2(PulledObjective):
    """f_m(w, beta_m) = Lam f'_m(u) + f'_m(beta_m) + (lam/2) |beta_m - u|^2, with lam = penalty, Lam = relaxation.

    The printed eq. 7 has lam instead of lam/2; the lemmas, the constants and the released code have lam/2 (E002-8).
    The gradients decouple: each block takes one pass at its own model, so both together take two.
    """

    relaxation: float = setting(default=1.0, at_least=0, doc="weight of the shared model's own loss (Lam)")

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Any]:
        """Lam f'_m(u) + f'_m(beta_m) + (lam/2) |beta_m - u|^2, and the statistics of the personal pass."""
        model = self.to_model(shared)
        together, _ = self.client_loss.value(key, model, batch)
        own, statistics = self.client_loss.value(key, personal, batch)
        apart = tree.squared_norm(tree.subtract(personal, model))
        return self.relaxation * together + own + 0.5 * self.penalty * apart, statistics

    def gradient_shared(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """M^{-1/2} [Lam grad f'_m(u) + lam (u - beta_m)]: one pass at u."""
        model = self.to_model(shared)
        gradient = self.client_loss.gradient(key, model, batch)
        shrink, relaxation, penalty = self.shrink, self.relaxation, self.penalty
        total = jax.tree.map(lambda g, u, b: shrink * (relaxation * g + penalty * (u - b)), gradient, model, personal)
        return total, gradient_tally(batch, "shared")

    def gradients(
        self, key: Key, shared: Params, personal: Params, batch: Batch
    ) -> tuple[tuple[Params, Params], Tally]:
        """Both, from two passes that share nothing: counted as one gradient of each block, every row read twice."""
        shared_gradient, shared_cost = self.gradient_shared(key, shared, personal, batch)
        personal_gradient, personal_cost = self.gradient_personal(key, shared, personal, batch)
        return (shared_gradient, personal_gradient), shared_cost.plus(personal_cost)
