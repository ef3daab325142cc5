# SPDX-License-Identifier: Apache-2.0
"""All-for-one (All-for-all 2022, section 4): weighted gradient averaging, one model for one client by those like it.

    x <- x - eta sum_j lambda_j G_j(x),      G_j = g_j (all), (N/cohort) 1{j in S} g_j (a cohort; one: N g_j)

lambda is row `target` of Lambda (`neighbours`; without them `own_share` as in all-for-all), `shared` is x, `step_size`
eta. lambda = e_i is SGD on f_i, lambda = 1/N minibatch SGD. Clients with lambda_j = 0 are neither asked nor billed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from idiolect.algorithms.one_point import OnePoint
from idiolect.algorithms.references import EVEN
from idiolect.algorithms.tuples import ServerState
from idiolect.core import Fit, Method, RowReads, beyond_theory, population, setting, settings, tree
from idiolect.core.kinds import Listens, Messages
from idiolect.core.mixing import Neighbours, misses_agents
from idiolect.core.types import Array, Batch, ClientData, Key, Mean, Params, PerClient, Tally
from idiolect.theory.all_for_all import ALL_FOR_ONE


class Broadcast(NamedTuple):
    """The target's model goes down, and how much the client counts."""

    shared: Params
    share: Any  # PerClient: lambda_j; nothing when delivered


@settings
class AllForOne(OnePoint[ServerState, tuple[()], Broadcast], Listens):
    """SGD for one client on the gradients of all who are like it."""

    server_only = ("neighbours",)
    row_reads = RowReads()
    delivers = True  # the target's model goes to every client

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 1/(2 L) for L-smooth losses.", doc="step eta of the target's model"
    )
    target: int = setting(default=0, at_least=0, doc="number of the client i whose model is trained")
    own_share: float = setting(
        default=0.5,
        at_least=0,
        at_most=1,
        doc="alpha: the weight of a client's own gradient, where neighbours are unset",
    )
    neighbours: Neighbours | None = setting(default=None, doc="who listens to whom (Lambda); from [collaboration]")
    target_accuracy: float | None = setting(
        default=None, above=0, doc="eps of the step from theory; unset: the largest stable step"
    )
    participation: float = setting(
        default=1.0, above=0, at_most=1, doc="P(present), the chance of a client to be in a round; from the engine"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        if not self.objective.has_shared or self.objective.has_personal:
            return Fit("it trains one model, that of its target; use the global_model objective")
        if 0 < self.clients <= self.target:
            return Fit(f"its target is {self.target}, and clients are numbered from 0 to {self.clients - 1}")
        if missed := misses_agents("neighbours", self.neighbours, self.clients):
            return Fit(missed)
        return beyond_theory(
            chance, "the paper treats one client or all of them per round; the estimator stays unbiased over cohorts"
        )

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        return ServerState(self.objective.init_shared(key))

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """x, and lambda_j to client j."""
        return Broadcast(server.shared, PerClient(self._shares()))

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """x."""
        return Broadcast(server.shared, ())

    def gradient(self, key: Key, sent: Broadcast, batch: Batch) -> tuple[Params, Tally]:
        """grad f_j(x) on a batch; not worked out, and not counted, where no client wants it."""
        gradient, tally = self.objective.gradient_shared(key, sent.shared, (), batch)
        return gradient, tally.times(jnp.asarray(sent.share > 0, jnp.int32))

    def weight(self, sent: Broadcast, data: ClientData) -> Array:
        """lambda_j."""
        return sent.share

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """x <- x - eta sum_j lambda_j g_j / P(present)."""
        eta = self.step_size * received.weight / self.participation  # the mean times the weight is the sum
        return ServerState(tree.descend(server.shared, eta, received.mean.gradient))

    def shared_model(self, server: ServerState) -> Params:
        """x."""
        return server.shared

    def bill(self, sent: Any, upload: Any, rounds: np.ndarray, clients: np.ndarray, present: np.ndarray) -> Messages:
        """Only clients that count are asked."""
        counts = np.asarray(self._shares()) > 0
        asked, arrived = int(counts[clients].sum()), int(counts[clients[present]].sum())
        down, up = (tree.size_in_bytes(part) for part in (sent.shared, upload))
        scalar = np.dtype(sent.share.values.dtype).itemsize
        return Messages(asked, arrived, asked * (down + scalar), arrived * up)

    def _shares(self) -> Array:
        """lambda: row `target` of Lambda."""
        agents, neighbours = population(self), self.neighbours
        if neighbours is None:
            share = jnp.asarray(self.own_share, jnp.result_type(float))
            return (1 - share) / agents + share * (jnp.arange(agents) == self.target).astype(share.dtype)
        if neighbours.is_dense:
            return jnp.asarray(neighbours.weights)[self.target]
        whom, weights = (jnp.asarray(part)[:, self.target] for part in (neighbours.indices, neighbours.weights))
        return jnp.zeros(agents, weights.dtype).at[whom].add(weights)


_SUMMARY = "one client's model from the gradients of those who are alike"
_ERRATA = ("E004-2", "E004-7")
METHODS = {"all_for_one": Method(AllForOne, "global_model", {}, EVEN, _SUMMARY, theory=ALL_FOR_ONE, errata=_ERRATA)}
