# SPDX-License-Identifier: Apache-2.0
"""PartialFed-Adaptive (Sun et al. 2021; a baseline of Flow 2023): clients learn which layers to take from w.

Strategy    s_l <- s_l - eta_s d/ds_l f_m(q w + (1-q) v_m; batch),  q_l = sigmoid((s_l + noise_l) / T),  first, S times;
start       layer l of w_m is w's where s_l + noise_l >= 0 and v_m's elsewhere;
local step  w_m <- w_m - eta grad f_m(w_m; batch),  K times;  v_m <- w_m;
server      w <- w + beta mean_m (w_m - w),  the whole of every w_m.

The noise is logistic, the difference of two Gumbel draws: q is the two-way Gumbel-softmax at temperature T, and the
start its hard draw. `preference` is s (0 at first, one number per layer), `personal` v_m, the client's own previous
model, `strategy_steps` S, `strategy_step_size` eta_s, `temperature` T. The personal model takes layer l from w where
s_l >= 0 and from v_m elsewhere. Written from the abstract and from Flow 2023's description: no code is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.algorithms.federated_averaging import FederatedAveraging
from idiolect.algorithms.optimizers import PLAIN, Descent
from idiolect.algorithms.tuples import Broadcast, Upload, Working
from idiolect.algorithms.walk import walk
from idiolect.core import BY_ROWS, NOTHING, Method, Models, RowReads, beyond_theory, gradient_tally, setting, settings
from idiolect.core.types import Array, Batch, ClientData, Fit, Key, Params, StartKeys, Tally

_STRATEGY, _START = 2**31 - 1, 2**31 - 2  # what their draws are named by: no epoch and no step has these numbers


class ClientState(NamedTuple):
    """v_m, and how much w is preferred for each layer."""

    personal: Params
    preference: Array


@settings
class PartialFed(FederatedAveraging[ClientState, Working]):
    """Federated averaging in which every client chooses, layer by layer, between w and its own previous model."""

    carries_statistics = True
    row_reads = RowReads(exact="its clients choose layers by gradients of their own")

    strategy_steps: int = setting(default=1, at_least=0, doc="steps on the preferences per round (S)")
    strategy_step_size: float = setting(default=0.1, above=0, doc="their step (eta_s)")
    temperature: float = setting(default=1.0, above=0, doc="how soft a choice is while it is learnt (T)")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        absent = "the method was made for full participation; the absent keep their models and preferences"
        return beyond_theory(chance, absent)._replace(refused=super().fit(chance).refused)

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """v_m at the objective's start, no preference."""
        start = self.objective.init_shared(keys.common)
        return ClientState(start, jnp.zeros(max(_layers(start)) + 1)), NOTHING

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Learn the preferences, draw the layers by them, start from those."""

        def gradient(at: Key, preference: Array, batch: Batch) -> tuple[Any, Tally]:
            noise = _noise(jax.random.fold_in(at, _START), preference)

            def loss(moved: Array) -> Array:
                mixed = _mix(jax.nn.sigmoid((moved + noise) / self.temperature), sent.shared, client.personal)
                return self.objective.loss(at, mixed, (), batch)[0]

            return jax.grad(loss)(preference), gradient_tally(batch, "personal")

        own, descent = jax.random.fold_in(key, _STRATEGY), Descent(PLAIN, self.strategy_step_size)
        preference, tally = walk(self, own, client.preference, data, gradient, descent, steps=self.strategy_steps)
        drawn = preference + _noise(jax.random.fold_in(key, _START), preference)
        start = _mix((drawn >= 0).astype(drawn.dtype), sent.shared, client.personal)
        return Working(start, client._replace(preference=preference), self.draw_batches(key, data)), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """The whole model goes up, and stays as the client's own."""
        return self.upload(sent, working.shared, data), working.own._replace(personal=working.shared), NOTHING

    def models(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Models, Tally]:
        """Every layer from where it is preferred; w's where neither is."""
        chosen = (client.preference >= 0).astype(client.preference.dtype)
        mixed = _mix(chosen, sent.shared, client.personal)
        return self.personalized(key, mixed, data)


def _layers(params: Params) -> list[int]:
    """The layer of every leaf: arrays with one parent are one layer, an array at the top is a layer of its own."""
    paths = [path[:-1] or path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    numbers = {path: number for number, path in enumerate(dict.fromkeys(paths))}
    return [numbers[path] for path in paths]


def _mix(taken: Any, shared: Params, own: Params) -> Params:
    """Layer by layer: a share of `shared`, the rest of `own`."""
    leaves, form = jax.tree.flatten(shared)
    mixed = [
        taken[layer] * ours + (1 - taken[layer]) * mine
        for layer, ours, mine in zip(_layers(shared), leaves, jax.tree.leaves(own))
    ]
    return jax.tree.unflatten(form, mixed)


def _noise(key: Key, preference: Array) -> Array:
    """The difference of two Gumbel draws per layer."""
    return jax.random.logistic(key, preference.shape, preference.dtype)


_SUN = "Sun et al. 2021, PartialFed: cross-domain personalized federated learning via partial initialization"
METHODS = {
    "partialfed": Method(
        PartialFed, "global_model", BY_ROWS, _SUN, "each client learns which layers to take from the shared model"
    )
}
