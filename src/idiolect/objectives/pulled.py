# SPDX-License-Identifier: Apache-2.0
"""Personal models pulled toward a shared one: what MT2 and MX2 have in common."""

from __future__ import annotations

import jax

from idiolect.core.checks import setting
from idiolect.core.data import Batch
from idiolect.core.keys import Key
from idiolect.core.settings import settings
from idiolect.core.tally import Tally
from idiolect.core.tree import Params
from idiolect.objectives.rescaled import RescaledObjective


@settings
class PulledObjective(RescaledObjective):
    """f_m contains f'_m(beta_m) + (lam/2) |beta_m - u|^2 and nothing else of beta_m; still abstract."""

    penalty: float = setting(
        default=1.0,
        at_least=0,
        way_out="0 trains every client alone.",
        doc="how strongly personal models are held near the shared one (lam)",
        strengths=(0.01, 0.1, 1.0, 10.0),
    )

    def deployed(self, shared: Params, personal: Params) -> Params:
        """beta_m."""
        return personal

    def gradient_personal(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad f'_m(beta_m) + lam (beta_m - u): one pass at beta_m."""
        gradient = self.client_loss.gradient(key, personal, batch)
        penalty = self.penalty
        total = jax.tree.map(lambda g, b, u: g + penalty * (b - u), gradient, personal, self.to_model(shared))
        return total, Tally(personal=batch.rows(), samples=batch.rows(), full_personal=batch.passes)
