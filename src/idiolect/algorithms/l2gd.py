# SPDX-License-Identifier: Apache-2.0
"""L2GD and L2SGD+ (Hanzely and Richtarik 2020; baselines of paper 002): personal models pulled to their mean.

They minimise MX2 in beta alone, F(x) = mean_m f'_m(x_m) + (lam/2) mean_m |x_m - xbar|^2. One iteration tosses a coin:

    L2GD     0: x_m <- x_m - (a/((1-p) M)) grad f'_m(x_m);    1 (chance p): x_m <- x_m - (a/(p M)) lam (x_m - xbar)
    L2SGD+   x_m <- x_m - (a/M) g_m, with one component j of the client's n_m and a table of gradients J_mj:
             0: g_m = (G - J_mj)/(1-p) + Jbar_m + Psi_m,      G = grad f'_mj(x_m);  then J_mj <- G
             1: g_m = lam (x_m - xbar)/p - (1/p - 1) Psi_m + Jbar_m;                then Psi_m <- lam (x_m - xbar)

`step_size` is a, `averaging_probability` p, `personal` x_m, `slopes` J_m, `mean_slope` Jbar_m, `pull` Psi_m, lam the
objective's penalty; both steps of coin 1 use the old x_m and xbar. J and Psi start at 0: the estimate is unbiased
whatever they are, so no pass over the rows is needed first. L2GD stops near the optimum, at a distance that falls
with a; L2SGD+ converges linearly to it and keeps n_m models per client. A round is the coin-0 iterations before an
exchange, as many as the server drew, and then the exchange: x_m itself goes up, xbar comes back and finishes coin 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from idiolect.algorithms.population import population
from idiolect.algorithms.schedule import AHEAD, iterations_before_exchange, no_rows, rows_ahead
from idiolect.core import batches, tree
from idiolect.core.algorithm import Algorithm, Fit, Models, beyond_theory
from idiolect.core.checks import setting
from idiolect.core.data import Batch, ClientData
from idiolect.core.keys import Key, StartKeys, step_key
from idiolect.core.method import Method
from idiolect.core.objective import Mixture
from idiolect.core.settings import settings
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params
from idiolect.theory import solver_rules


class ServerState(NamedTuple):
    """xbar of the last exchange."""

    mean: Params


class ClientState(NamedTuple):
    """x_m; for L2SGD+ also J_m, its mean Jbar_m, and Psi_m."""

    personal: Params
    slopes: Any
    mean_slope: Any
    pull: Any


class Broadcast(NamedTuple):
    """xbar of the last exchange, and how many iterations come before the next one."""

    mean: Params
    iterations: Any


class Working(NamedTuple):
    """The client's state on its way, and the rows drawn for the next iterations."""

    state: ClientState
    drawn: Any


class Upload(NamedTuple):
    """x_m goes up, the personal model itself."""

    personal: Params
    weight: Any


@settings
class PulledToMean(Algorithm[ServerState, ClientState, Broadcast, Working, Upload]):
    """Gradient steps at home, now and then a step toward the mean of all personal models; still abstract."""

    batch_size = 0  # exact gradients

    step_size: float = setting(default=None, above=0, theory=True, doc="step a")
    averaging_probability: float = setting(
        default=None, above=0, below=1, theory=True, doc="p, the chance that an iteration is a step toward the mean"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs the mixture objective."""
        if not isinstance(self.objective, Mixture):
            return Fit("it pulls personal models toward their mean, which only the mx2 objective asks for")
        return beyond_theory(
            chance,
            "the paper treats full participation; xbar is the mean of those present, the absent stand still",
        )

    def init_server(self, key: Key) -> ServerState:
        """The objective's start, until the first exchange."""
        return ServerState(self._mixture.to_model(self.objective.init_shared(key)))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        return ClientState(self.objective.init_personal(keys.own), (), (), ()), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """xbar and the schedule."""
        return Broadcast(server.mean, iterations_before_exchange(key, self.averaging_probability))

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """x_m as it stands: `settle` has already used xbar."""
        return Working(client, no_rows(self.batch_size)), NOTHING

    def steps(self, sent: Broadcast, rows: Any) -> Any:
        """The drawn iterations of coin 0."""
        return sent.iterations

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """x_m; its step toward the mean waits for the mean."""
        return Upload(working.state.personal, jnp.ones(())), working.state, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Any) -> ServerState:
        """xbar."""
        return ServerState(received.mean.personal)

    def shared_model(self, server: ServerState) -> Params:
        """xbar, the mean of the last exchange."""
        return server.mean

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """Nothing: a client predicts with its own x_m."""
        return Broadcast((), ())

    def models(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Models, Tally]:
        """x_m."""
        shared = self._mixture.from_model(client.personal)
        model, tally = self.objective.personalize(key, shared, client.personal, data.batch())
        return Models(model), tally

    @property
    def _mixture(self) -> Mixture:
        return cast(Mixture, self.objective)

    @property
    def _scale(self) -> Any:
        """a / M."""
        return self.step_size / population(self)

    def _own_slope(self, key: Key, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad f'_m: the objective's gradient without its penalty, so that w, here any, does not matter."""
        plain = dataclasses.replace(cast(Any, self.objective), penalty=0.0)
        slope, tally = plain.gradient_personal(key, personal, personal, batch)
        return slope, tally

    def _away(self, sent: Broadcast, client: ClientState) -> Params:
        """lam (x_m - xbar)."""
        return tree.scale(self._mixture.penalty, tree.subtract(client.personal, sent.mean))


@settings
class L2GD(PulledToMean):
    """Exact gradient steps at home, now and then a step toward the mean of all personal models."""

    def step(self, key: Key, t: Any, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """Coin 0: one gradient step at home."""
        state = working.state
        slope, tally = self._own_slope(step_key(key, t), state.personal, data.batch())
        moved = tree.descend(state.personal, self._scale / (1 - self.averaging_probability), slope)
        return Working(state._replace(personal=moved), working.drawn), tally

    def settle(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> ClientState:
        """Coin 1: a step toward the mean."""
        moved = tree.descend(client.personal, self._scale / self.averaging_probability, self._away(sent, client))
        return client._replace(personal=moved)


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
        slopes = jax.tree.map(lambda leaf: jnp.zeros((data.capacity, *leaf.shape), leaf.dtype), personal)
        return ClientState(personal, slopes, nothing, nothing), NOTHING

    def step(self, key: Key, t: Any, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """Coin 0: one component's gradient, corrected by what the table holds."""
        drawn = rows_ahead(key, t, working.drawn, self.batch_size, data)
        rows, state = drawn[t % AHEAD], working.state
        slope, tally = self._own_slope(step_key(key, t), state.personal, batches.take_rows(data, rows))
        news = tree.subtract(slope, tree.take(state.slopes, rows[0]))
        stays = 1 - self.averaging_probability
        estimate = jax.tree.map(lambda new, mean, pull: new / stays + mean + pull, news, state.mean_slope, state.pull)
        count = jnp.maximum(data.count, 1)
        # the table gets G by adding G - J_j: that orders its reading before its writing, so it is never copied
        moved = ClientState(
            tree.descend(state.personal, self._scale, estimate),
            jax.tree.map(lambda table, new: table.at[rows[0]].add(new), state.slopes, news),
            jax.tree.map(lambda mean, new: mean + new / count.astype(new.dtype), state.mean_slope, news),
            state.pull,
        )
        return Working(moved, drawn), tally

    def settle(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> ClientState:
        """Coin 1: a step toward the mean, corrected by the last pull."""
        away, p = self._away(sent, client), self.averaging_probability
        estimate = jax.tree.map(
            lambda now, last, mean: now / p - (1 / p - 1) * last + mean, away, client.pull, client.mean_slope
        )
        return client._replace(personal=tree.descend(client.personal, self._scale, estimate), pull=away)


_HANZELY = "Hanzely and Richtarik 2020, Federated learning of a mixture of global and local models"
METHODS = {
    "l2gd": Method(
        L2GD,
        "mx2",
        {},
        _HANZELY,
        "own steps, now and then a step toward the mean of all models",
        theory=solver_rules.L2GD,
    ),
    "l2sgd_plus": Method(
        L2SGDPlus,
        "mx2",
        {},
        _HANZELY,
        "L2GD from single rows with variance reduction; exact",
        theory=solver_rules.L2SGD_PLUS,
    ),
}
