# SPDX-License-Identifier: Apache-2.0
"""Ditto (Li et al. 2021; a baseline of Flow 2023): FedAvg, and beside it a model per client that is pulled toward w.

Local step  w_m <- w_m - eta grad f_m(w_m; batch),  K times from w_m = w;
            v_m <- v_m - eta_v (grad f_m(v_m; batch) + lam (v_m - w)),  s times, w the model received this round;
server      w <- w + beta mean_m (w_m - w).

`penalty` is lam, on biases `bias_penalty` times lam (1 in the paper), `personal` v_m, the personal model;
`personal_steps` is s: 0 makes one step on v_m beside every step on w_m, on its batch, as the authors' code does. w does
not depend on any v_m. lam = 0 trains every client alone, a large lam holds v_m at w. The pull is that of
(lam/2) |v_m - w|^2, toward the received w and not a moving copy.
"""

from __future__ import annotations

import functools

from idiolect.algorithms.federated_averaging import FederatedAveraging
from idiolect.algorithms.optimizers import PLAIN, Descent
from idiolect.algorithms.tuples import Broadcast, ClientState, Upload, Working
from idiolect.algorithms.walk import walk
from idiolect.core import NOTHING, Method, Models, RowReads, setting, settings, step_key, tree, unprotected
from idiolect.core.types import Array, Batch, ClientData, Key, Params, PerClient, Scalar, StartKeys, Tally


@settings
class Ditto(FederatedAveraging[ClientState, Working]):
    """FedAvg, and a personal model held near it."""

    carries_statistics = True
    row_reads = RowReads()  # those of w_m alone: nothing that is sent depends on v_m

    penalty: float | PerClient = setting(
        default=0.1,
        at_least=0,
        way_out="0 trains every client alone.",
        doc="how strongly v_m is held near w (lam)",
        strengths=(0.5, 3.0, 18.0, 108.0),
        in_rows=True,
    )
    bias_penalty: float = setting(
        default=1.0,
        at_least=0,
        at_most=1,
        way_out="1 holds biases as all other parameters, 0 leaves them free.",
        doc="part of `penalty` that holds biases: intercepts of clients often differ more than coefficients",
    )
    personal_steps: int = setting(
        default=0, at_least=0, doc="steps on v_m per round (s), on rows of their own; 0: one beside every other step"
    )
    personal_step_size: float | None = setting(default=None, above=0, doc="their step; unset: step_size")

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """v_m at the objective's start."""
        return ClientState(self.objective.init_shared(keys.common)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step on w_m, and one on v_m unless those come in one go."""
        moved, tally = super().step(key, t, sent, working, data)
        if self.personal_steps:
            return moved, tally
        personal, batch = working.own.personal, self.batch(t, working.drawn, data)
        own_gradient, own_tally = self._pulled(sent, step_key(key, t), personal, batch)
        own = ClientState(tree.descend(personal, self._personal_step, own_gradient))
        return moved._replace(own=own), tally.plus(own_tally)

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """The drift of w_m; v_m stays, after its own steps if they come in one go."""
        gradient, descent = functools.partial(self._pulled, sent), Descent(PLAIN, self._personal_step)
        personal, tally = walk(self, key, working.own.personal, data, gradient, descent, steps=self.personal_steps)
        return self.upload(sent, working.shared, data), ClientState(personal), tally

    def models(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Models, Tally]:
        """v_m."""
        return self.personalized(key, client.personal, data)

    @property
    def _personal_step(self) -> Scalar:
        return self.step_size if self.personal_step_size is None else self.personal_step_size

    def _pulled(self, sent: Broadcast, key: Key, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad f_m(v_m) + lam (v_m - w)."""
        gradient, tally = unprotected(self.objective).gradient_shared(key, personal, (), batch)
        return tree.pull(gradient, self.penalty, personal, sent.shared, self.bias_penalty), tally.as_personal()


_DITTO = "Li et al. 2021, Ditto: fair and robust federated learning through personalization"
METHODS = {"ditto": Method(Ditto, "global_model", {}, _DITTO, "FedAvg, and a model per client that is held near it")}
