# SPDX-License-Identifier: Apache-2.0
"""Model-agnostic meta-learning (Unified 2023, eq. 19): a shared start, good after one step on a client's rows."""

from __future__ import annotations

from typing import Any

import jax

from idiolect.core import gradient_tally, setting, settings, tree
from idiolect.core.objective import Adapting
from idiolect.core.statistics import moving
from idiolect.core.types import Batch, Key, Params, Tally
from idiolect.objectives.composed import ComposedObjective


@settings
class MAML(ComposedObjective, Adapting):
    """f_m(w) = f'_m(w - a grad f'_m(w)), with a = inner_step; no personal block, and not convex where f'_m is.

    Its gradient (I - a Hess f'_m(w)) grad f'_m(w - a grad f'_m(w)) comes from differentiating through the inner step.
    It counts as one w-gradient and reads every row twice: for the inner step and for the outer one. On a batch both
    use the same rows, which is the batch's own objective and only nearly unbiased for f_m.
    """

    has_shared = True
    has_personal = False
    carries_statistics = True  # both passes are of one model
    keeps_convexity = False

    inner_step: float = setting(default=0.1, at_least=0, doc="step size of a client's own step (a)")

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Any]:
        """f'_m(w - a grad f'_m(w))."""
        adapted, _ = self.personalize(key, shared, personal, batch)
        return self.client_loss.value(key, adapted, batch)

    def deployed(self, shared: Params, personal: Params) -> Params:
        """w: the start of a client that has no rows to adapt to."""
        return shared

    def personalize(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """w - a grad f'_m(w) on the client's training rows."""
        gradient, cost = self.plain_gradient(key, shared, batch)
        return tree.descend(shared, self.inner_step, gradient), cost

    def gradient_shared(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """(I - a Hess f'_m(w)) grad f'_m(w - a grad f'_m(w))."""
        # through the inner step too, which brings in the Hessian
        gradient, seen = jax.grad(lambda w: self.loss(key, w, personal, batch), has_aux=True)(shared)
        return moving(gradient, shared, seen), gradient_tally(batch, "shared", reads=2)

    def plain_gradient(self, key: Key, shared: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad f'_m(w)."""
        gradient = self.client_loss.gradient(key, shared, batch)
        return gradient, gradient_tally(batch, "shared")
