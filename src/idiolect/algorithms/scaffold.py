# SPDX-License-Identifier: Apache-2.0
"""Scaffold: control variates take the clients' drift out of local SGD.

Local step  y <- y - eta (grad f_m(y; batch) - c_m + c),  K times from y = w;
control     c_m+ = grad f_m(w) over all rows (option 1), or c_m - c + (w - y) / (K eta) (option 2);
server      w <- w + beta mean_m (y - w),  c <- c + (|cohort| / M) mean_m (c_m+ - c_m).

`step_size` is eta, `server_step_size` beta, `control` c and c_m, K the client's own number of steps. After every
round c = mean_m c_m over all M clients, whoever took part. Option 1 costs one more pass over the rows; two models
travel each way. Reference: Karimireddy et al. 2020, "SCAFFOLD: stochastic controlled averaging".
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from idiolect.algorithms.local_steps import LocalSteps
from idiolect.core import NOTHING, Changes, Method, RowReads, population, setting, settings, step_key, tree
from idiolect.core.types import Array, ClientData, Key, Mean, Params, StartKeys, Tally


class ServerState(NamedTuple):
    """The shared model and the mean of all clients' control variates."""

    shared: Params
    control: Params


class ClientState(NamedTuple):
    """The client's control variate: its last estimate of its own gradient."""

    control: Params


class Broadcast(NamedTuple):
    """The shared model and the mean control variate go down."""

    shared: Params
    control: Params


class Working(NamedTuple):
    """A client's copy of the shared model, and c - c_m, fixed for the round."""

    shared: Params
    correction: Params
    drawn: Array


class Upload(NamedTuple):
    """Start minus end of the local work, and the change of the control variate, go up."""

    drift: Params
    control_change: Params
    weight: Array


@settings
class Scaffold(LocalSteps[ServerState, ClientState, Broadcast, Working, Upload]):
    """Local SGD with control variates."""

    changes = Changes(
        {"drift": None, "control_change": None},
        unbiased="its control variates stay right only if what arrives is right in the mean",
    )

    option: int = setting(
        default=2, choices=(1, 2), doc="control variates: 1 a full gradient at w, 2 from the local steps"
    )

    @property
    def row_reads(self) -> RowReads:
        """Those of the steps, where control variates are made of them."""
        full = "its control variates are full gradients beside the batches; set option = 2, which makes them of steps"
        return RowReads(exact=full if self.option == 1 else None)

    def init_server(self, key: Key) -> ServerState:
        """The objective's start, no control."""
        shared = self.objective.init_shared(key)
        return ServerState(shared, tree.zeros(shared))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """No control, so that c = mean_m c_m from the start."""
        return ClientState(tree.zeros(self.objective.init_shared(keys.own))), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """The shared model and its control."""
        return Broadcast(server.shared, server.control)

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Start from the shared model."""
        correction = tree.subtract(sent.control, client.control)
        return Working(sent.shared, correction, self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One corrected gradient step."""
        batch = self.batch(t, working.drawn, data)
        gradient, tally = self.objective.gradient_shared(step_key(key, t), working.shared, (), batch)
        gradient = tree.add(gradient, working.correction)
        return working._replace(shared=tree.descend(working.shared, self.step_size, gradient)), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """The drift, and the control variate's change."""
        drift = tree.subtract(sent.shared, working.shared)
        if self.option == 1:
            control, tally = self.objective.gradient_shared(key, sent.shared, (), data.batch())
        else:
            control, tally = self._mean_gradient(sent, working, drift, client, data), NOTHING
        change = tree.subtract(control, client.control)
        # equal weights whatever the rows: c must remain the plain mean of all c_m
        return Upload(drift, change, jnp.ones(())), ClientState(control), tally

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """Move w along the mean drift, and c by what the cohort changed of the mean over all clients."""

        def moved(old: Array, change: Array) -> Array:
            # those who stayed away changed nothing: the mean change of the cohort is |S|/M of that of all
            return old + received.cohort.astype(old.dtype) / population(self) * change

        control = jax.tree.map(moved, server.control, received.mean.control_change)
        return ServerState(tree.descend(server.shared, self.server_step_size, received.mean.drift), control)

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """The model alone: predicting needs no control."""
        return Broadcast(server.shared, ())

    def _mean_gradient(
        self, sent: Broadcast, working: Working, drift: Params, client: ClientState, data: ClientData
    ) -> Params:
        """c_m - c + (w - y) / (K eta), the mean of the round's gradients; without a step c_m stays."""
        steps = jnp.asarray(self.steps(sent, data.count))

        def mean(old: Array, correction: Array, moved: Array) -> Array:
            divisor = jnp.maximum(steps, 1).astype(old.dtype) * self.step_size
            return jnp.where(steps > 0, moved / divisor - correction, old)

        return jax.tree.map(mean, client.control, working.correction, drift)


_KARIMIREDDY = "Karimireddy et al. 2020, SCAFFOLD: stochastic controlled averaging for federated learning"
METHODS = {
    "scaffold": Method(Scaffold, "global_model", {}, _KARIMIREDDY, "local SGD without drift, by control variates")
}
