# SPDX-License-Identifier: Apache-2.0
"""APFL2, adaptive personalization with the shared model left free (Unified 2023, eq. 14)."""

from __future__ import annotations

from typing import Any

import jax

from idiolect.core import gradient_tally, setting, settings, tree
from idiolect.core.types import Batch, Key, Params, PerClient, Tally
from idiolect.objectives.rescaled import RescaledObjective


@settings
class APFL2(RescaledObjective):
    """f_m(w, beta_m) = Lam f'_m(u) + f'_m(z_m), z_m = (1-a_m) beta_m + a_m u; Lam = relaxation, a_m = mixing.

    A client predicts with z_m (the paper's experiments score beta_m alone). One w-gradient takes two passes, at u and
    at z_m: it counts as one w-gradient, as in the paper, and reads every row twice.
    """

    relaxation: float = setting(default=1.0, at_least=0, doc="weight of the shared model's own loss (Lam)")
    mixing: float | PerClient = setting(
        default=0.5,
        at_least=0,
        at_most=1,
        way_out="0 predicts with the personal block alone, 1 with the shared model.",
        doc="weight of the shared model in a client's own (a_m)",
        strengths=(0.25, 0.5, 0.75, 0.9),
    )

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Any]:
        """Lam f'_m(u) + f'_m(z_m), and the statistics of the pass at z_m."""
        together, _ = self.client_loss.value(key, self.to_model(shared), batch)
        own, statistics = self.client_loss.value(key, self.deployed(shared, personal), batch)
        return self.relaxation * together + own, statistics

    def deployed(self, shared: Params, personal: Params) -> Params:
        """z_m = (1-a_m) beta_m + a_m u."""
        mixing: Any = self.mixing  # a client sees its own a_m, never the PerClient around it
        return jax.tree.map(lambda b, u: (1 - mixing) * b + mixing * u, personal, self.to_model(shared))

    def gradient_shared(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """M^{-1/2} [Lam grad f'_m(u) + a_m grad f'_m(z_m)]."""
        (gradient, _), _ = self.gradients(key, shared, personal, batch)
        return gradient, gradient_tally(batch, "shared", reads=2)  # two passes: at u and at z_m

    def gradient_personal(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """(1-a_m) grad f'_m(z_m)."""
        at_mix = self.client_loss.gradient(key, self.deployed(shared, personal), batch)
        # a client sees its own a_m
        return tree.scale(1 - self.mixing, at_mix), gradient_tally(batch, "personal")  # type: ignore[operator]

    def gradients(
        self, key: Key, shared: Params, personal: Params, batch: Batch
    ) -> tuple[tuple[Params, Params], Tally]:
        """Both, from the two passes of the w-gradient: the one at z_m serves both blocks."""
        at_model = self.client_loss.gradient(key, self.to_model(shared), batch)
        at_mix = self.client_loss.gradient(key, self.deployed(shared, personal), batch)
        relaxation, mixing = self.shrink * self.relaxation, self.shrink * self.mixing  # type: ignore[operator]
        gradient = jax.tree.map(lambda g, h: relaxation * g + mixing * h, at_model, at_mix)
        own = tree.scale(1 - self.mixing, at_mix)  # type: ignore[operator]
        return (gradient, own), gradient_tally(batch, "both", reads=2)
