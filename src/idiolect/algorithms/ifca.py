# SPDX-License-Identifier: Apache-2.0
"""IFCA (Ghosh et al. 2020), also HypCluster (Mansour et al. 2020; a baseline of Flow 2023): one model per cluster.

Client      takes the model with the lowest loss on all its training rows, c = argmin_j f_m(w_j);
local step  w_m <- w_m - eta grad f_m(w_m; batch),  K times from w_m = w_c;
server      w_j <- w_j + beta mean_m (w_m - w_j),  over the clients that chose j; a cluster that no client chose stays.

`clusters` is the number C of models: all of them go down, one drift and its number come up, and choosing costs C
forward passes. The personal model is the chosen one, after `fine_tuning_steps` own steps if asked for. The first model
starts where FedAvg's does, the others at starts of their own; where a model's start is not random (zeros) they are
moved by normal noise of deviation `start_spread`, since equal models would never part. One cluster is FedAvg.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.algorithms.fine_tuning import FineTuned
from idiolect.algorithms.optimizers import ServerState
from idiolect.algorithms.tuples import Broadcast
from idiolect.core import BY_ROWS, NOTHING, Fit, Method, Models, RowReads, client_weight, setting, settings, tree
from idiolect.core.objective import Settles
from idiolect.core.reduction import grouped_mean
from idiolect.core.types import Array, ClientData, Key, Params, Reduction, Tally


class Working(NamedTuple):
    """The chosen cluster, the client's copy of its model, and the rows of the round."""

    shared: Params
    cluster: Array
    drawn: Array


class Upload(NamedTuple):
    """Start minus end of the local work, and the cluster it belongs to, go up."""

    drift: Params
    group: Array
    weight: Array


@settings
class IFCA(FineTuned[tuple[()], Working]):
    """FedAvg in clusters that clients choose by their loss; models are stacked over clusters."""

    carries_statistics = True
    row_reads = RowReads(exact="its clients choose a cluster by their losses; use a method with one model")

    clusters: int = setting(default=2, at_least=1, way_out="1 is FedAvg.", doc="number of models (C)")
    start_spread: float = setting(
        default=0.1, above=0, doc="noise that parts the starts of a model whose start is not random"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        if 0 < self.clients < self.clusters:
            return Fit(f"it needs at most as many clusters as clients, {self.clients}, got {self.clusters}")
        return super().fit(chance)

    @property
    def reduction(self) -> Reduction:
        """One mean per cluster."""
        return grouped_mean(self.clusters)

    def init_server(self, key: Key) -> ServerState:
        """Distinct starts."""
        first = self.objective.init_shared(key)
        others = jax.vmap(lambda cluster: self._start(jax.random.fold_in(key, cluster), first))(
            jnp.arange(1, self.clusters, dtype=jnp.int32)
        )
        models = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), first, others)
        return ServerState(models, jax.vmap(self.optimizer.init)(models))

    def receive(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """Choose a cluster and start from its model."""
        cluster, tally = self._choose(key, sent, data)
        return Working(tree.take(sent.shared, cluster), cluster, self.draw_batches(key, data)), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: Any, data: ClientData
    ) -> tuple[Upload, Any, Tally]:
        """The drift from the chosen model."""
        drift = tree.subtract(tree.take(sent.shared, working.cluster), working.shared)
        return Upload(drift, working.cluster, client_weight(self.weighting, data)), client, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Any) -> ServerState:
        """One step of the server optimizer per cluster; without members a cluster and its memory stay."""
        moved = jax.vmap(self.follow)(server, received.means.drift)
        # a cluster that no client chose has no mean: neither its model nor its optimizer's memory may move
        return tree.choose_rows(received.weights > 0, moved, server)

    def shared_model(self, server: ServerState) -> Params | None:
        """None: there is one per cluster."""
        return None

    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """The cluster's model that fits the client's training rows best, and fine-tuned on them if asked for."""
        cluster, chosen = self._choose(key, sent, data)
        received = tree.take(sent.shared, cluster)
        model, spent = self.tuned_model(key, received, (), data)
        return Models(model, received), chosen.plus(spent)

    def point(self, sent: Broadcast, client: Any) -> tuple[Params, Params]:
        """None: several models are no point of F."""
        return (), ()

    def _start(self, key: Key, first: Params) -> Params:
        """The model's start, moved where it is the first one's whatever the key."""
        start = self.objective.init_shared(key)
        # models that start at zero whatever the key would make all clusters one for ever: every client would choose the
        # first
        equal = [jnp.all(a == b) for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(first))]
        moved = tree.add(start, tree.scale(self.start_spread, tree.normal(key, start)))
        return tree.choose(jnp.all(jnp.stack(equal)), moved, start)

    def _choose(self, key: Key, sent: Broadcast, data: ClientData) -> tuple[Any, Tally]:
        """The cluster with the lowest loss on all rows as it predicts, the first of equals, and C forward passes."""
        batch, objective = data.batch(), self.objective

        def loss(model: Params) -> Array:
            if isinstance(objective, Settles):
                return objective.settled_loss(key, model, (), batch)
            return objective.loss(key, model, (), batch)[0]

        losses = jax.vmap(loss)(sent.shared)
        losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)  # or the smallest of them would be not-a-number
        passes = self.clusters * batch.rows()
        return jnp.argmin(losses).astype(jnp.int32), Tally(forward=passes, samples=passes)


_GHOSH = "Ghosh et al. 2020, An efficient framework for clustered federated learning"
_MANSOUR = "Mansour et al. 2020, Three approaches for personalization with applications to federated learning"
METHODS = {
    "ifca": Method(IFCA, "global_model", {}, _GHOSH, "one model per cluster, chosen by each client's loss"),
    "hypcluster": Method(IFCA, "global_model", BY_ROWS, _MANSOUR, "IFCA with clients weighing by rows"),
}
