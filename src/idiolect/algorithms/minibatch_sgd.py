# SPDX-License-Identifier: Apache-2.0
"""Minibatch SGD: all stochastic gradients of a round are taken at the same shared point.

Client   g_m = mean_{k < K} grad f_m(w; batch k);      server   w <- w - eta mean_m g_m.

`step_size` is eta, `local_steps` K (or `epochs` passes: batches then weigh by their rows). It pays the gradients of
K steps of local SGD for a K times larger batch instead of K moves, and is the limit of local SGD for inner steps
to 0 with outer step * inner step * K = eta (erratum E000-1). Reference: Woodworth et al. 2020, "Minibatch vs local
SGD for heterogeneous distributed learning"; PLSGD 2023.
"""

from __future__ import annotations

import optax

from idiolect.algorithms.one_point import OnePoint
from idiolect.algorithms.optimizers import OPTIMIZERS, ServerState, server_optimizer
from idiolect.algorithms.tuples import Broadcast
from idiolect.core import WEIGHTING, Fit, Method, RowReads, client_weight, setting, settings, tree
from idiolect.core.types import Array, Batch, ClientData, Key, Mean, Params, Tally
from idiolect.theory.step_sizes import MINIBATCH_SGD


@settings
class MinibatchSGD(OnePoint[ServerState, tuple[()], Broadcast]):
    """SGD with one large batch per round, spread over the clients."""

    row_reads = RowReads()

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 0.1, or 1/L for an L-smooth loss.", doc="server step eta"
    )
    server_optimizer: str = setting(default="sgd", choices=OPTIMIZERS, doc="any optax optimizer, by name")
    weighting: str = setting(default="equal", choices=WEIGHTING, doc="weights of the clients in the mean")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        one_model = self.objective.has_shared and not self.objective.has_personal
        return Fit(None if one_model else "it trains one shared model; use the global_model objective")

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        shared = self.objective.init_shared(key)
        return ServerState(shared, self._optimizer().init(shared))

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """The shared model."""
        return Broadcast(server.shared)

    def gradient(self, key: Key, sent: Broadcast, batch: Batch) -> tuple[Params, Tally]:
        """grad f_m(w) on a batch."""
        return self.objective.gradient_shared(key, sent.shared, (), batch)

    def weight(self, sent: Broadcast, data: ClientData) -> Array:
        """As `weighting` says."""
        return client_weight(self.weighting, data)

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """One step of the server optimizer along the mean gradient."""
        updates, optimizer = self._optimizer().update(received.mean.gradient, server.optimizer, server.shared)
        return ServerState(tree.add(server.shared, updates), optimizer)

    def shared_model(self, server: ServerState) -> Params:
        """w."""
        return server.shared

    def _optimizer(self) -> optax.GradientTransformation:
        return server_optimizer(self.server_optimizer, self.step_size)


_WOODWORTH = "Woodworth et al. 2020, Minibatch vs local SGD for heterogeneous distributed learning"
_SUMMARY = "one model, one large batch per round"
METHODS = {
    "minibatch_sgd": Method(
        MinibatchSGD, "global_model", {}, _WOODWORTH, _SUMMARY, theory=MINIBATCH_SGD, errata=("E000-1",)
    )
}
