# SPDX-License-Identifier: Apache-2.0
"""L2GD (Hanzely and Richtarik 2020; a baseline of Unified 2023): personal models pulled to their mean.

It minimises MX2 in beta alone, F(x) = mean_m f'_m(x_m) + (lam/2) mean_m |x_m - xbar|^2. One iteration tosses a coin:

    0: x_m <- x_m - (a/((1-p) M)) grad f'_m(x_m);    1 (chance p): x_m <- x_m - (a/(p M)) lam (x_m - xbar)

`step_size` is a, `averaging_probability` p, `personal` x_m, lam the objective's penalty; the step of coin 1 uses the
old x_m and xbar. It stops near the optimum, at a distance that falls with a. A round is the coin-0 iterations before a
message, as many as the server drew, and then the message: x_m itself goes up, xbar comes back and finishes coin 1.
"""

from __future__ import annotations

from idiolect.algorithms.pulled_to_mean import Broadcast, ClientState, PulledToMean, Working
from idiolect.algorithms.references import HANZELY
from idiolect.core import Method, settings, step_key, tree
from idiolect.core.types import Array, ClientData, Key, Tally
from idiolect.theory.solver_rules import L2GD as RULE


@settings
class L2GD(PulledToMean):
    """Exact gradient steps at home, now and then a step toward the mean of all personal models."""

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """Coin 0: one gradient step at home."""
        state = working.state
        gradient, tally = self._own_gradient(step_key(key, t), state.personal, data.batch())
        moved = tree.descend(state.personal, self._scale / (1 - self.averaging_probability), gradient)
        return Working(state._replace(personal=moved), working.drawn), tally

    def settle(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> ClientState:
        """Coin 1: a step toward the mean."""
        moved = tree.descend(client.personal, self._scale / self.averaging_probability, self._away(sent, client))
        return client._replace(personal=moved)


_SUMMARY = "own steps, now and then a step toward the mean of all models"
METHODS = {"l2gd": Method(L2GD, "mx2", {}, HANZELY, _SUMMARY, theory=RULE)}
