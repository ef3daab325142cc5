# SPDX-License-Identifier: Apache-2.0
"""Scafflix, i-Scaffnew, Scaffnew and GD on FLIX (Scafflix 2023, algorithms 1 and 2): local training without drift.

One iteration, with one coin for all clients that shows 1 with probability p (xt_m is the client's own model):

    xt_m = alpha_m x_m + (1 - alpha_m) x*_m;   xh_m = x_m - (gamma_m/alpha_m) (g_m - h_m),  g_m ~ grad f'_m(xt_m)
    0: x_m <- xh_m
    1: x_m <- xbar = sum_j (alpha_j^2/gamma_j) xh_j / sum_j (alpha_j^2/gamma_j);
       h_m <- h_m + (p alpha_m/gamma_m) (xbar - xh_m)

`local_step` is gamma_m (theory: 1/A_m, below), `communication_probability` p (theory: 1/sqrt(max L_m/mu_m)), `control`
h_m, `shared` xbar, `prepared` x*_m, alpha_m the objective's personalization. alpha = 1 (the global_model objective) is
i-Scaffnew, with equal gamma_m also Scaffnew; p = 1 is gradient descent on FLIX with step 1/mean_m(alpha_m^2/gamma_m).
h starts at 0: sum_m alpha_m h_m never changes and must be 0 (the paper prints sum_m h_m = 0, E001-1). A_m is L_m for
exact gradients, also with noise of bounded variance added; 2 Lc_m for single rows; 2 Lc_m/b + (1 - 2/b) L_m for b rows.

A round is the coin-0 iterations before a message, as many as the server drew, and the iteration that communicates: xh_m
goes up, xbar comes back at once, so that sum_m alpha_m h_m stays 0 over any cohort. A client with alpha_m = 0
keeps x*_m and never takes part.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.references import FLIX
from idiolect.algorithms.schedule import Broadcast, Scheduled, iterations_before_message, no_rows, one_batch, rows_ahead
from idiolect.algorithms.tuples import ServerState
from idiolect.core import NOTHING, Algorithm, Fit, Method, beyond_theory, setting, settings, step_key, tree
from idiolect.core.kinds import Changes, KeepsPrepared, RowReads
from idiolect.core.objective import Prepares
from idiolect.core.types import Array, Batch, ClientData, Key, Mean, Params, PerClient, StartKeys, Tally
from idiolect.theory.scafflix import FLIX_GD, SCAFFLIX, SCAFFNEW
from idiolect.theory.step_sizes import LOCAL_SGD


class ClientState(NamedTuple):
    """Where the client's last round ended (xh_m until xbar comes back, then xbar), h_m, and x*_m."""

    iterate: Params
    control: Params
    prepared: Params


class Working(NamedTuple):
    """x_m on its way, what stays fixed in a round, and the rows drawn for the next iterations."""

    iterate: Params
    control: Params
    prepared: Params
    drawn: Array


class Upload(NamedTuple):
    """xh_m goes up, with weight alpha_m^2/gamma_m."""

    iterate: Params
    weight: Array


@settings
class Scafflix(Scheduled[ClientState, Working, Upload], KeepsPrepared):
    """Local steps corrected by h_m, a message now and then; linear convergence to the exact optimum."""

    changes = Changes(
        {"iterate": "shared"},
        exact="its control variates add up to zero only while every iterate arrives as it is; use flix_sgd",
    )
    row_reads = RowReads(exact="how many steps it takes between two rounds is drawn; use scaffold with option = 2")

    batch_size: int = setting(default=0, at_least=0, doc="rows per local step; 0: all rows, exact gradients")
    local_step: float | PerClient = setting(
        default=None, above=0, theory=True, doc="gamma_m, the client's own local step"
    )
    communication_probability: float = setting(
        default=None,
        above=0,
        at_most=1,
        way_out="1 communicates in every iteration.",
        theory=True,
        doc="p, the probability that an iteration communicates",
    )
    noise: float | None = setting(
        default=None, at_least=0, doc="standard deviation of noise added to every gradient; unset: none"
    )
    target_accuracy: float | None = setting(
        default=None, above=0, doc="eps of corollary 6: theory takes smaller steps to get this near; unset: 1/A_m"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        if not self.objective.has_shared or self.objective.has_personal:
            return Fit("it trains one shared model, mixed or not; use the flix or the global_model objective")
        return beyond_theory(
            chance, "the paper's theorems treat full participation; the mean here is over those present"
        )

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """h_m = 0, and what the objective prepares; x_m comes with the first broadcast."""
        nothing = tree.zeros(self.objective.init_shared(keys.common))
        # FLIX solves for the client's own optimum here, once, before any round
        objective = self.objective
        prepared, tally = objective.prepare(keys.common, data) if isinstance(objective, Prepares) else ((), NOTHING)
        return ClientState(nothing, nothing, prepared), tally

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """xbar and the schedule."""
        return Broadcast(server.shared, iterations_before_message(key, self.communication_probability))

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """x_m = xbar: one that was absent starts where the others are."""
        return Working(sent.shared, client.control, client.prepared, no_rows(self.batch_size)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """Coin 0."""
        drawn, batch = rows_ahead(key, t, working.drawn, self.batch_size, data)
        moved, tally = self._moved(step_key(key, t), working, batch)
        return working._replace(iterate=moved, drawn=drawn), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """Coin 1: xh_m; h_m waits for xbar."""
        moved, tally = self._moved(key, working, one_batch(key, self.batch_size, data))
        return Upload(moved, self._weight), client._replace(iterate=moved), tally

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """xbar; it stays where no client that came has a weight."""
        return ServerState(tree.choose(received.weight > 0, received.mean.iterate, server.shared))

    def settle(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> ClientState:
        """h_m takes what separates xbar from xh_m."""
        # xbar - xh_m holds about 1/p local steps of gamma_m/alpha_m: this factor makes the mean gradient's error of it
        change = self.communication_probability * self._share / self._step

        def corrected(h: Array, mean: Array, mine: Array) -> Array:
            return h + change * (mean - mine)

        control = jax.tree.map(corrected, client.control, sent.shared, client.iterate)
        return client._replace(iterate=sent.shared, control=control)

    def carry(self, earlier: Algorithm, server: ServerState, clients: ClientState) -> tuple[ServerState, ClientState]:
        """h_m follows alpha: near the optimum h_m = grad f'_m(xt_m) is proportional to alpha_m.

        One ratio of new to old alpha_m for all keeps sum_m alpha_m h_m = 0; with several h_m starts anew at 0.
        """
        before, now = _rows(earlier.objective, clients), _rows(self.objective, clients)
        ratio = jnp.where(before > 0, now / jnp.where(before > 0, before, 1), 0)
        # different ratios would break the sum that must stay 0, and with it the limit (E001-1)
        ratio = jnp.where((ratio == ratio[0]).all(), ratio[0], 0)
        return server, clients._replace(control=tree.scale(ratio, clients.control))

    @property
    def _share(self) -> Array:
        """alpha_m; 1 for an objective without it."""
        return jnp.asarray(getattr(self.objective, "personalization", 1.0), jnp.result_type(float))

    @property
    def _step(self) -> Any:
        """gamma_m: a client sees its own, never the PerClient around it."""
        return self.local_step

    @property
    def _weight(self) -> Array:
        """alpha_m^2/gamma_m."""
        return self._share**2 / self._step

    def _moved(self, key: Key, working: Working, batch: Batch) -> tuple[Params, Tally]:
        """xh_m = x_m - (gamma_m/alpha_m^2) (alpha_m g_m - alpha_m h_m): the objective's gradient is alpha_m g_m."""
        gradient, tally = self.objective.gradient_shared(key, working.iterate, working.prepared, batch)
        if self.noise is not None:
            gradient = tree.add(gradient, self._noise(key, gradient))
        share = self._share
        # both sides of a `where` are computed: the inner one keeps 0 out of the division, whose NaN would spread
        # through gradients
        stretch = jnp.where(share > 0, 1 / jnp.where(share > 0, self._weight, 1), 0)

        def moved(x: Array, g: Array, h: Array) -> Array:
            return x - stretch * (g - share * h)

        return jax.tree.map(moved, working.iterate, gradient, working.control), tally

    def _noise(self, key: Key, like: Params) -> Params:
        """alpha_m times a normal vector of standard deviation `noise` in all: E |.|^2 = noise^2 of g_m."""
        size = sum(leaf.size for leaf in jax.tree.leaves(like))
        assert self.noise is not None
        # per coordinate, so that the whole vector has the stated deviation whatever the size of the model
        return tree.scale(self._share * self.noise * size**-0.5, tree.normal(key, like))


def _rows(objective: Any, clients: ClientState) -> Array:
    """The alpha_m of all clients."""
    alpha = getattr(objective, "personalization", 1.0)
    values = alpha.values if isinstance(alpha, PerClient) else alpha
    number = jax.tree.leaves(clients.control)[0].shape[0]
    return jnp.broadcast_to(jnp.asarray(values, jnp.result_type(float)), (number,))


_GASANOV = "Gasanov et al. 2022, FLIX: a simple and communication-efficient alternative to local methods"
_MISHCHENKO = "Mishchenko et al. 2022, ProxSkip: yes! local gradient steps provably lead to acceleration"
_ALWAYS = {"communication_probability": 1.0}
_MIXED = "own optima mixed in, local steps without drift; exact"
_OWN_STEPS = "one model, local steps without drift, own steps; exact"
_ERRATA = ("E001-1", "E001-2", "E001-3", "E001-4", "E001-5", "E001-6", "E001-7")
_on_flix, _on_one_model = (functools.partial(Method, Scafflix, objective) for objective in ("flix", "global_model"))
METHODS = {
    "scafflix": _on_flix({}, FLIX, _MIXED, theory=SCAFFLIX, errata=_ERRATA),
    "i_scaffnew": _on_one_model({}, FLIX, _OWN_STEPS, theory=SCAFFLIX, errata=("E001-2", "E001-3", "E001-4")),
    "scaffnew": _on_one_model({}, _MISHCHENKO, "one model, local steps without drift; exact", theory=SCAFFNEW),
    "flix_gd": _on_flix(_ALWAYS, _GASANOV, "own optima mixed in, gradient descent; exact", theory=FLIX_GD),
    "flix_sgd": Method(LocalSGD, "flix", {}, _GASANOV, "own optima mixed in, local SGD", theory=LOCAL_SGD),
}
