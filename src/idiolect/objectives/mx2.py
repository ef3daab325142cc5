# SPDX-License-Identifier: Apache-2.0
"""MX2, the mixture of shared and personal models (Unified 2023, eq. 11): the objective of L2GD and of pFedMe."""

from __future__ import annotations

from typing import Any

from idiolect.core import gradient_tally, settings, tree
from idiolect.core.objective import Mixture
from idiolect.core.types import Batch, Key, Params, Tally
from idiolect.objectives.rescaled import PulledObjective


@settings
class MX2(PulledObjective, Mixture):
    """f_m(w, beta_m) = f'_m(beta_m) + (lam/2) |u - beta_m|^2, with lam = penalty.

    At the optimum u is the mean of the beta_m, so beta solves mean f'_m(beta_m) + (lam/2) mean |beta_m - betabar|^2
    and u is pFedMe's shared model. The line before eq. 11 prints lam for lam/2 (E002-8). The penalty belongs to every
    component, so a component's w-gradient needs no row at all: it is counted, as theory counts it, but reads nothing.
    """

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Any]:
        """f'_m(beta_m) + (lam/2) |u - beta_m|^2."""
        own, statistics = self.client_loss.value(key, personal, batch)
        apart = tree.squared_norm(tree.subtract(self.to_model(shared), personal))
        return own + 0.5 * self.penalty * apart, statistics

    def gradient_shared(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """M^{-1/2} lam (u - beta_m): no row is read."""
        pull = self.shrink * self.penalty
        gradient = tree.scale(pull, tree.subtract(self.to_model(shared), personal))
        return gradient, gradient_tally(batch, "shared")._replace(samples=0)

    def gradients(
        self, key: Key, shared: Params, personal: Params, batch: Batch
    ) -> tuple[tuple[Params, Params], Tally]:
        """Both, from the one pass that beta_m needs."""
        gradient = self.client_loss.gradient(key, personal, batch)
        away = tree.scale(self.penalty, tree.subtract(personal, self.to_model(shared)))
        return (tree.scale(-self.shrink, away), tree.add(gradient, away)), gradient_tally(batch, "both")
