# SPDX-License-Identifier: Apache-2.0
"""APFL (Deng et al. 2020; a baseline of Flow 2023): every client mixes a model of its own with its copy of w.

Local step  w_m <- w_m - eta grad f_m(w_m; batch),
            v_m <- v_m - eta a grad f_m(z_m; batch),  z_m = a v_m + (1-a) w_m,  both gradients at the old point,
            a   <- clip(a - eta <v_m - w_m, grad f_m(z_m; batch)>, 0, 1)  where a is learnt, K times from w_m = w;
server      w <- w + beta mean_m (w_m - w).

`own_share` is a, `learn_share` says whether it is learnt, `personal` v_m. v_m and a learnt a stay on the client from
round to round; the personal model is z_m with w_m = w as delivered. a = 0 is FedAvg, a = 1 trains every client alone.
The parameters are mixed, not the outputs, and v_m is never overwritten by the mix (two repositories do that).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.algorithms.federated_averaging import FederatedAveraging
from idiolect.algorithms.tuples import Broadcast, Working
from idiolect.core import NOTHING, Method, Models, RowReads, setting, settings, step_key, tree, unprotected
from idiolect.core.types import Array, ClientData, Key, Params, PerClient, StartKeys, Tally


class ClientState(NamedTuple):
    """v_m, and a_m where it is learnt."""

    personal: Params
    own_share: Any


@settings
class APFL(FederatedAveraging[ClientState, Working]):
    """A shared model, and on every client a mix of it with a model of its own."""

    row_reads = RowReads()  # those of w_m alone: nothing that is sent depends on v_m or a

    own_share: float | PerClient = setting(
        default=0.25,
        at_least=0,
        at_most=1,
        way_out="0 is FedAvg, 1 trains every client alone.",
        doc="weight of the own model in the personal one (a); the start where it is learnt",
        strengths=(0.1, 0.25, 0.5, 0.75),
    )
    learn_share: bool = setting(default=False, doc="every client learns its own a")

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """v_m at the objective's start."""
        share = jnp.asarray(self.own_share, jnp.result_type(float)) if self.learn_share else ()
        return ClientState(self.objective.init_shared(keys.common), share), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient at w_m, one at the mix."""
        moved, tally = super().step(key, t, sent, working, data)
        own, share, batch = working.own, working.own.own_share, self.batch(t, working.drawn, data)
        mixed = self._mix(working.shared, own)
        own_gradient, own_tally = unprotected(self.objective).gradient_shared(step_key(key, t), mixed, (), batch)
        if self.learn_share:
            # d f(z_m) / d a, at the old point as the other two gradients
            along = tree.inner(tree.subtract(own.personal, working.shared), own_gradient)
            share = jnp.clip(share - self.step_size * along, 0, 1)
        personal = tree.descend(own.personal, self.step_size * self._share(own), own_gradient)
        return moved._replace(own=ClientState(personal, share)), tally.plus(own_tally.as_personal())

    def models(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Models, Tally]:
        """a v_m + (1-a) w."""
        return self.personalized(key, self._mix(sent.shared, client), data)

    def _share(self, own: ClientState) -> Any:
        return own.own_share if self.learn_share else self.own_share

    def _mix(self, shared: Params, own: ClientState) -> Params:
        share = self._share(own)
        return jax.tree.map(lambda v, w: share * v + (1 - share) * w, own.personal, shared)


_DENG = "Deng, Kamani and Mahdavi 2020, Adaptive personalized federated learning"
METHODS = {"apfl": Method(APFL, "global_model", {}, _DENG, "FedAvg, mixed on each client with a model of its own")}
