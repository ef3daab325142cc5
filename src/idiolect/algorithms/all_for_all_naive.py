# SPDX-License-Identifier: Apache-2.0
"""Naive all-for-all (2022, section 5): every client's model is trained by its own weighted gradient averaging.

    x_i <- x_i - eta sum_j lambda_ij G_j(x_i)   for all i,   G_j = g_j (all), (N/cohort) 1{j in S} g_j (a cohort)

Client j takes a gradient at x_i for every i that listens to it (the text prints x_j, E004-7) and sends one per such i:
as many gradients, and models on the wire, as it has listeners. The guarantee is on the worst client, not on their
mean. `models` are the x_i, `step_size` eta, `neighbours` Lambda; without them `own_share` as in all-for-all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.algorithms.model_per_agent import ModelPerAgent, ServerState
from idiolect.algorithms.references import EVEN
from idiolect.core import Method, RowReads, population, setting, settings, tree
from idiolect.core.kinds import Messages
from idiolect.core.types import Array, Batch, Key, Params, PerClient, Tally
from idiolect.theory.all_for_all import ALL_FOR_ALL_NAIVE


class Broadcast(NamedTuple):
    """Client j gets the models of its listeners, padded, and how many they are; at the end it gets its own."""

    models: PerClient  # (K', ...) of the listeners, the true ones first; delivered: x_j
    helps: Any  # PerClient; nothing when delivered


@settings
class AllForAllNaive(ModelPerAgent):
    """One weighted gradient averaging per client, side by side."""

    row_reads = RowReads(exact="it takes gradients at the models of all listeners on the same rows; use all_for_all")
    cohorts = "the paper treats one client or all of them per round; the estimator stays unbiased over cohorts"

    participation: float = setting(
        default=1.0, above=0, at_most=1, doc="P(present), the chance of a client to be in a round; from the engine"
    )

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """The models of those who listen to client j."""
        listeners, weights = self._listeners()
        models = jax.tree.map(lambda leaf: leaf[listeners.T], server.models)
        return Broadcast(PerClient(models), PerClient(jnp.sum(weights > 0, axis=0, dtype=jnp.int32)))

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """x_j to client j."""
        return Broadcast(PerClient(server.models), ())

    def gradient(self, key: Key, sent: Broadcast, batch: Batch) -> tuple[Params, Tally]:
        """grad f_j at every listener's model, counted without the padding; the rows are read once."""
        gradients = jax.vmap(lambda model: self.objective.gradient_personal(key, (), model, batch)[0])(sent.models)
        _, tally = self.objective.gradient_personal(key, (), tree.take(sent.models, 0), batch)
        counted = {"personal": tally.personal * sent.helps, "full_personal": tally.full_personal * sent.helps}
        return gradients, tally._replace(**counted)

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Any) -> ServerState:
        """Every x_i moves along the gradients taken at it."""
        listeners, weights = self._listeners()
        whom, shares = listeners.T[received.clients], weights.T[received.clients]  # (cohort, K')
        eta = self.step_size / self.participation

        def moved(models: Any, gradients: Any) -> Array:
            rows = gradients.reshape(-1, *gradients.shape[2:])
            share = shares.astype(rows.dtype).reshape(-1, *(1,) * (rows.ndim - 1))
            return models - eta * jnp.zeros_like(models).at[whom.reshape(-1)].add(share * rows)

        return ServerState(jax.tree.map(moved, server.models, received.uploads.gradient))

    def point(self, sent: Broadcast, client: Any) -> tuple[Params, Params]:
        """x_j, as delivered."""
        return (), sent.models

    def bill(self, sent: Any, upload: Any, rounds: np.ndarray, clients: np.ndarray, present: np.ndarray) -> Messages:
        """A model down and a gradient up for every true listener; between peers each is sent and received."""
        listeners, weights = map(np.asarray, self._listeners())
        helped = (weights > 0).sum(axis=0)
        each = tree.size_in_bytes(upload.gradient) // len(weights)
        if self.route == "peers":
            helped = 2 * (helped - ((weights > 0) & (listeners == np.arange(len(helped))[None])).sum(axis=0))
        number = int(helped[clients[present]].sum())
        return Messages(number, number, number * each, number * each)

    def _listeners(self) -> tuple[Any, Any]:
        """(K', N) who listens to each client, the true ones first, and how much."""
        if self.neighbours is not None and not self.neighbours.is_dense:
            return self.neighbours.listeners, self.neighbours.listener_weights
        agents = population(self)
        if self.neighbours is not None:
            matrix = jnp.asarray(self.neighbours.weights)
        else:
            share = jnp.asarray(self.own_share, jnp.result_type(float))
            matrix = share * jnp.eye(agents) + (1 - share) / agents
        order = jnp.argsort(matrix <= 0, axis=0, stable=True)
        return order.astype(jnp.int32), jnp.take_along_axis(matrix, order, axis=0)


_SUMMARY = "a model per client, each with gradients taken at it; many messages"
METHODS = {
    "all_for_all_naive": Method(
        AllForAllNaive, "local_only", {}, EVEN, _SUMMARY, theory=ALL_FOR_ALL_NAIVE, errata=("E004-7",)
    )
}
