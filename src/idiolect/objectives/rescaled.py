# SPDX-License-Identifier: Apache-2.0
"""The rescaled shared block of Unified 2023: the model is u = M^{-1/2} w, what is stored and stepped is w."""

from __future__ import annotations

import jax

from idiolect.core import RequestError, gradient_tally, setting, settings, tree
from idiolect.core.types import Batch, Key, Params, Tally
from idiolect.objectives.composed import ComposedObjective


@settings
class RescaledObjective(ComposedObjective):
    """An objective with a shared model u = M^{-1/2} w and a personal block beta_m; still abstract.

    Rescaling divides F's curvature in w by M, which brings it to that of the beta block (1/M: beta_m is in one of M
    client terms). The minimiser stays the same model: u* = M^{-1/2} w*.
    """

    has_shared = True
    has_personal = True

    rescale: bool = setting(default=True, doc="store w = sqrt(M) u, so that both blocks have curvatures of order 1/M")
    clients: int = setting(default=0, at_least=0, doc="number of clients M; filled in by the engine")

    @property
    def shrink(self) -> float:
        """du/dw: M^{-1/2}, or 1 without rescaling."""
        if not self.rescale:
            return 1.0
        # the engine fills M in at its door; without an engine M must be given
        if self.clients == 0:
            raise RequestError(
                f"{type(self).__name__}.clients must be at least 1 with rescale, got 0. "
                "Give the number of clients M, or set rescale = false."
            )
        return self.clients**-0.5

    def to_model(self, shared: Params) -> Params:
        """u = M^{-1/2} w."""
        return tree.scale(self.shrink, shared) if self.rescale else shared

    def from_model(self, model: Params) -> Params:
        """w = M^{1/2} u."""
        return tree.scale(1 / self.shrink, model) if self.rescale else model

    def shared_model(self, shared: Params) -> Params | None:
        """u."""
        return self.to_model(shared)

    def init_shared(self, key: Key) -> Params:
        """The w at which u is the model's start."""
        return self.from_model(self.client_loss.init(key))


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
        gradient, penalty = self.client_loss.gradient(key, personal, batch), self.penalty
        total = jax.tree.map(lambda g, b, u: g + penalty * (b - u), gradient, personal, self.to_model(shared))
        return total, gradient_tally(batch, "personal")
