# SPDX-License-Identifier: Apache-2.0
"""What L2GD and L2SGD+ share: personal models go up, their mean comes back, and all is pulled toward it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, cast

import jax.numpy as jnp

from idiolect.algorithms.schedule import iterations_before_message, no_rows
from idiolect.core import NOTHING, Algorithm, Fit, Models, RowReads, beyond_theory, population, setting, settings, tree
from idiolect.core.objective import Mixture
from idiolect.core.types import Array, Batch, Changes, ClientData, Key, Mean, Params, Scalar, StartKeys, Tally


class ServerState(NamedTuple):
    """xbar of the last round."""

    mean: Params


class ClientState(NamedTuple):
    """x_m; for L2SGD+ also J_m, its mean Jbar_m, and Psi_m."""

    personal: Params
    gradients: Params
    mean_gradient: Params
    pull: Params


class Broadcast(NamedTuple):
    """xbar of the last round, and how many iterations come before the next one."""

    mean: Params
    iterations: Any


class Working(NamedTuple):
    """The client's state on its way, and the rows drawn for the next iterations."""

    state: ClientState
    drawn: Any


class Upload(NamedTuple):
    """x_m goes up, the personal model itself."""

    personal: Params
    weight: Array


@settings
class PulledToMean(Algorithm[ServerState, ClientState, Broadcast, Working, Upload]):
    """Gradient steps at home, now and then a step toward the mean of all personal models; still abstract."""

    changes = Changes({"personal": "mean"})
    row_reads = RowReads(exact="how many steps it takes between two rounds is drawn")

    batch_size = 0  # exact gradients

    objective: Mixture = dataclasses.field(kw_only=False)
    step_size: float = setting(default=None, above=0, theory=True, doc="step a")
    averaging_probability: float = setting(
        default=None, above=0, below=1, theory=True, doc="p, the chance that an iteration is a step toward the mean"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs the mixture objective."""
        if not isinstance(self.objective, Mixture):
            return Fit("it pulls personal models toward their mean, which only the mx2 objective asks for")
        return beyond_theory(
            chance, "the paper treats full participation; xbar is the mean of those present, the absent stand still"
        )

    def init_server(self, key: Key) -> ServerState:
        """The objective's start, until the first round."""
        return ServerState(self.objective.to_model(self.objective.init_shared(key)))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        return ClientState(self.objective.init_personal(keys.own), (), (), ()), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """xbar and the schedule."""
        return Broadcast(server.mean, iterations_before_message(key, self.averaging_probability))

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """x_m as it stands: `settle` has already used xbar."""
        return Working(client, no_rows(self.batch_size)), NOTHING

    def steps(self, sent: Broadcast, rows: Array) -> Array:
        """The drawn iterations of coin 0."""
        return sent.iterations

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """x_m; its step toward the mean waits for the mean."""
        return Upload(working.state.personal, jnp.ones(())), working.state, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """xbar."""
        return ServerState(received.mean.personal)

    def shared_model(self, server: ServerState) -> Params:
        """xbar, the mean of the last round."""
        return server.mean

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """Nothing: a client predicts with its own x_m."""
        return Broadcast((), ())

    def models(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Models, Tally]:
        """x_m."""
        shared = self.objective.from_model(client.personal)
        model, tally = self.objective.personalize(key, shared, client.personal, data.batch())
        return Models(model), tally

    @property
    def _scale(self) -> Scalar:
        """a / M."""
        return self.step_size / population(self)

    def _own_gradient(self, key: Key, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad f'_m: the objective's gradient without its penalty, so that w, here any, does not matter."""
        plain = dataclasses.replace(cast(Any, self.objective), penalty=0.0)
        gradient, tally = plain.gradient_personal(key, personal, personal, batch)
        return gradient, tally

    def _away(self, sent: Broadcast, client: ClientState) -> Params:
        """lam (x_m - xbar)."""
        return tree.scale(self.objective.penalty, tree.subtract(client.personal, sent.mean))
