# SPDX-License-Identifier: Apache-2.0
"""Minibatch SGD: all stochastic gradients of a round are taken at the same shared point.

Client   g_m = mean_{k < K} grad f_m(w; batch k);      server   w <- w - eta mean_m g_m.

`step_size` is eta, `local_steps` K (or `epochs` passes: batches then weigh by their rows). It pays the gradients of
K steps of local SGD for a K times larger batch instead of K moves, and is the limit of local SGD for inner steps
to 0 with outer step * inner step * K = eta (erratum E000-1). Reference: Woodworth et al. 2020, "Minibatch vs local
SGD for heterogeneous distributed learning"; paper 000.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.algorithms.averaging import toward
from idiolect.algorithms.server_optimizer import OPTIMIZERS, server_optimizer
from idiolect.algorithms.weighting import WEIGHTING, client_weight
from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import setting
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, step_key
from idiolect.core.settings import settings
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params


class ServerState(NamedTuple):
    """The shared model and the server optimizer's memory."""

    shared: Params
    optimizer: Any


class Broadcast(NamedTuple):
    """The shared model goes down."""

    shared: Params


class Working(NamedTuple):
    """The mean over rows of the gradients so far, and the rows it covers."""

    gradient: Params
    rows: Any
    drawn: Any


class Upload(NamedTuple):
    """The mean gradient goes up."""

    gradient: Params
    weight: Any


@settings
class MinibatchSGD(Algorithm):
    """SGD with one large batch per round, spread over the clients."""

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 0.1, or 1/L for an L-smooth loss.", doc="server step eta"
    )
    server_optimizer: str = setting(default="sgd", choices=OPTIMIZERS, doc="any optax optimizer, by name")
    weighting: str = setting(default="equal", choices=WEIGHTING, doc="weights of the clients in the mean")

    def skip(self) -> str | None:
        """Needs a shared block and nothing else."""
        if not self.objective.has_shared or self.objective.has_personal:
            return "it trains one shared model; use the global_model objective"
        return None

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        shared = self.objective.init_shared(key)
        return ServerState(shared, self._optimizer().init(shared))

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """The shared model."""
        return Broadcast(server.shared)

    def receive(self, key: Key, sent: Broadcast, client: tuple[()], data: ClientData) -> tuple[Working, Tally]:
        """No gradient yet."""
        return Working(tree.zeros(sent.shared), jnp.zeros(()), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Any, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One more gradient at the shared model."""
        batch = self.batch(t, working.drawn, data)
        slope, tally = self.objective.gradient_shared(step_key(key, t), sent.shared, (), batch)
        rows = jnp.asarray(batch.rows(), working.rows.dtype)
        seen = working.rows + rows
        part = rows / jnp.maximum(seen, 1)  # by rows: the last batch of an epoch may be short
        return Working(toward(working.gradient, slope, part), seen, working.drawn), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: tuple[()], data: ClientData
    ) -> tuple[Upload, tuple[()], Tally]:
        """The mean gradient."""
        return Upload(working.gradient, client_weight(self.weighting, data)), client, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Any) -> ServerState:
        """One step of the server optimizer along the mean gradient."""
        updates, optimizer = self._optimizer().update(received.mean.gradient, server.optimizer, server.shared)
        return ServerState(tree.add(server.shared, updates), optimizer)

    def shared_model(self, server: ServerState) -> Params:
        """w."""
        return server.shared

    def personal_model(self, key: Key, sent: Broadcast, client: tuple[()], data: ClientData) -> tuple[Params, Tally]:
        """What the objective makes of w."""
        return self.objective.personalize(key, sent.shared, (), data.batch())

    def _optimizer(self) -> Any:
        return server_optimizer(self.server_optimizer, self.step_size)
