# SPDX-License-Identifier: Apache-2.0
"""L2SGD+ (Hanzely and Richtarik 2020; a baseline of Unified 2023): L2GD from single components, variance reduced.

x_m <- x_m - (a/M) g_m, with one component j of the client's n_m and a table of gradients J_mj; the coin shows 1 with
chance p (see l2gd.py):

    0: g_m = (G - J_mj)/(1-p) + Jbar_m + Psi_m,      G = grad f'_mj(x_m);  then J_mj <- G
    1: g_m = lam (x_m - xbar)/p - (1/p - 1) Psi_m + Jbar_m;                then Psi_m <- lam (x_m - xbar)

`step_size` is a, `averaging_probability` p, `personal` x_m, `gradients` J_m, `mean_gradient` Jbar_m, `pull` Psi_m, lam
the objective's penalty; the step of coin 1 uses the old x_m and xbar. J and Psi start at 0: the estimate is unbiased
whatever they are, so no pass over the rows is needed first. It converges linearly to the optimum and keeps n_m models
per client.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from idiolect.algorithms.pulled_to_mean import Broadcast, ClientState, PulledToMean, Working
from idiolect.algorithms.references import HANZELY
from idiolect.algorithms.schedule import AHEAD, rows_ahead
from idiolect.core import NOTHING, Fit, Method, setting, settings, step_key, tree
from idiolect.core.types import Array, ClientData, Key, StartKeys, Tally
from idiolect.theory.solver_rules import L2SGD_PLUS


@settings
class L2SGDPlus(PulledToMean):
    """L2GD from single components, with the variance of both components and coin reduced: linear convergence."""

    batch_size: int = setting(default=1, at_least=0, doc="components per iteration; the gradient table takes 1 alone")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs the mixture objective and one component at a time."""
        if self.batch_size != 1:
            return Fit("its table keeps the gradient of every component, drawn one at a time; set batch_size = 1")
        return super().fit(chance)

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start, an empty table and no pull; rows beyond the client's own stay 0."""
        personal = self.objective.init_personal(keys.own)
        nothing = tree.zeros(personal)
        gradients = jax.tree.map(lambda leaf: jnp.zeros((data.capacity, *leaf.shape), leaf.dtype), personal)
        return ClientState(personal, gradients, nothing, nothing), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """Coin 0: one component's gradient, corrected by what the table holds."""
        drawn, batch = rows_ahead(key, t, working.drawn, self.batch_size, data)
        row, state = drawn[t % AHEAD][0], working.state
        gradient, tally = self._own_gradient(step_key(key, t), state.personal, batch)
        news = tree.subtract(gradient, tree.take(state.gradients, row))
        stays = 1 - self.averaging_probability
        estimate = jax.tree.map(
            lambda new, mean, pull: new / stays + mean + pull, news, state.mean_gradient, state.pull
        )
        count = jnp.maximum(data.count, 1)
        # the table gets G by adding G - J_j: that orders its reading before its writing, so it is never copied
        moved = ClientState(
            tree.descend(state.personal, self._scale, estimate),
            jax.tree.map(lambda table, new: table.at[row].add(new), state.gradients, news),
            jax.tree.map(lambda mean, new: mean + new / count.astype(new.dtype), state.mean_gradient, news),
            state.pull,
        )
        return Working(moved, drawn), tally

    def settle(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> ClientState:
        """Coin 1: a step toward the mean, corrected by the last pull."""
        away, p = self._away(sent, client), self.averaging_probability
        estimate = jax.tree.map(
            lambda now, last, mean: now / p - (1 / p - 1) * last + mean, away, client.pull, client.mean_gradient
        )
        return client._replace(personal=tree.descend(client.personal, self._scale, estimate), pull=away)


_SUMMARY = "L2GD from single rows with variance reduction; exact"
METHODS = {"l2sgd_plus": Method(L2SGDPlus, "mx2", {}, HANZELY, _SUMMARY, theory=L2SGD_PLUS, errata=("E002-14",))}
