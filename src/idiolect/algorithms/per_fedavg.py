# SPDX-License-Identifier: Apache-2.0
"""Per-FedAvg (Fallah et al. 2020; a baseline of Flow 2023): a shared start that is good after one own step.

Local step  z = w_m - a grad f'_m(w_m; D1),  g = grad f'_m(z; D2),  and from w_m = w, K times,
            first_order    w_m <- w_m - eta g,
            hessian_free   w_m <- w_m - eta (g - a [grad f'_m(w_m + d g; D3) - grad f'_m(w_m - d g; D3)] / (2 d));
server      w <- w + beta mean_m (w_m - w).

D1, D2, D3 are batches drawn apart. `step_size` is eta (the paper's b), `difference` d, a the `inner_step` of the
objective, of whose gradient (I - a Hess) g both are approximations; LocalSGD on that objective takes the exact one, on
one batch. The personal model is w - a grad f'_m(w) on all training rows. a = 0 is FedAvg.
"""

from __future__ import annotations

from typing import Any, cast

import jax

from idiolect.algorithms.federated_averaging import FederatedAveraging
from idiolect.algorithms.tuples import Broadcast, Working
from idiolect.core import NOTHING, Fit, Method, Models, setting, settings, step_key, tree
from idiolect.core.objective import Adapting
from idiolect.core.types import Array, ClientData, Key, Tally

FIRST_ORDER, HESSIAN_FREE = "first_order", "hessian_free"
_INNER, _CURVATURE = 2**31 - 1, 2**31 - 2  # what the draws of D1 and D3 are named by: no epoch has these numbers


@settings
class PerFedAvg(FederatedAveraging[tuple[()], Working]):
    """Federated averaging of a start that every client adapts by one step."""

    variant: str = setting(
        default=FIRST_ORDER, choices=(FIRST_ORDER, HESSIAN_FREE), doc="curvature left out, or by a difference"
    )
    difference: float = setting(default=1e-3, above=0, doc="hessian_free: half the length of the difference (d)")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs an objective with an inner step."""
        adapts = isinstance(self.objective, Adapting)
        return Fit(None if adapts else "it learns a start for one own step; use the maml objective")

    def receive(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """Start from w, with the rows of D1, D2 and D3."""
        inner = self.draw_batches(jax.random.fold_in(key, _INNER), data)
        curvature = ()
        if self.variant == HESSIAN_FREE:
            curvature = self.draw_batches(jax.random.fold_in(key, _CURVATURE), data)
        return Working(sent.shared, client, (inner, self.draw_batches(key, data), curvature)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One step along the gradient after an inner step."""
        start, key, objective = working.shared, step_key(key, t), cast(Adapting, self.objective)
        inner, outer, curvature = working.drawn
        gradient, tally = objective.plain_gradient(key, start, self.batch(t, inner, data))
        adapted = tree.descend(start, objective.inner_step, gradient)
        gradient, cost = objective.plain_gradient(key, adapted, self.batch(t, outer, data))
        tally = tally.plus(cost)
        if self.variant == HESSIAN_FREE:
            batch = self.batch(t, curvature, data)
            ahead, cost = objective.plain_gradient(key, tree.descend(start, -self.difference, gradient), batch)
            behind, more = objective.plain_gradient(key, tree.descend(start, self.difference, gradient), batch)
            correction = objective.inner_step / (2 * self.difference)
            gradient = tree.descend(gradient, correction, tree.subtract(ahead, behind))
            tally = tally.plus(cost).plus(more)
        return working._replace(shared=tree.descend(start, self.step_size, gradient)), tally

    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """w - a grad f'_m(w)."""
        return self.personalized(key, sent.shared, data)


_FALLAH = "Fallah et al. 2020, Personalized federated learning: a meta-learning approach"
METHODS = {"per_fedavg": Method(PerFedAvg, "maml", {}, _FALLAH, "a shared start that is good after one own step")}
