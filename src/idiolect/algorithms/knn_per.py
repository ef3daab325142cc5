# SPDX-License-Identifier: Apache-2.0
"""kNN-Per (Marfoq et al. 2022; a baseline of Flow 2023): FedAvg, and at inference a vote of the client's own rows.

Training is FedAvg's. Client m then keeps phi(x), what the last layer of w sees of x, and the true label y of each of
its training rows. A query's k nearest rows vote with weights exp(-|phi - phi_i|^2 / (dim scale)), normalised:

    p(y | x) = lam p_knn(y | x) + (1 - lam) softmax(w(x))_y

`neighbours` is k, `own_share` lam, `kernel_scale` the scale, dim the width of phi. A client with fewer than k rows
lets all of them vote. lam = 0 is FedAvg. Outputs are log-probabilities. Of sequences every position is such a row, of
those whose target is below 0 none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.algorithms.one_model import OneModel, prepared_of
from idiolect.algorithms.tuples import Broadcast
from idiolect.core import BY_ROWS, Fit, Method, Models, RequestError, setting, settings
from idiolect.core.kinds import PredictsWithMore
from idiolect.core.objective import Represents
from idiolect.core.types import Array, ClientData, Key, Params, Tally


@settings
class KNNPer(OneModel, PredictsWithMore):
    """FedAvg, interpolated on each client with a vote of its own nearest rows."""

    neighbours: int = setting(default=10, at_least=1, doc="rows that vote (k); all of a client that has fewer")
    own_share: float = setting(
        default=0.5,
        at_least=0,
        at_most=1,
        way_out="0 is FedAvg, 1 is the vote alone.",
        doc="weight of the vote (lam)",
        strengths=(0.1, 0.3, 0.5, 0.7),
    )
    kernel_scale: float = setting(default=1.0, above=0, doc="how fast a vote fades with distance (scale)")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs classes to vote on, and to know what the last layer sees."""
        objective = self.objective
        if not isinstance(objective, Represents) or not objective.classifies:
            return Fit("it votes on classes; use another method where a number is to be predicted")
        if not objective.represents:
            return Fit(
                "its model does not say what its last layer sees, which nearest neighbours are found by; give it a "
                "method represent(params, inputs)"
            )
        return super().fit(chance)

    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """The shared model's parameters, and the client's rows as its last layer sees them."""
        if jnp.issubdtype(data.targets.dtype, jnp.floating):
            raise RequestError(
                f"{type(self).__name__} votes on classes, got targets of type {data.targets.dtype}; "
                "use another method where a number is to be predicted."
            )
        params, tally = self.tuned_model(key, sent.shared, prepared_of(client), data, self.client_optimizer)
        seen = self._represent(params, data.inputs)
        model = {"parameters": params, "rows": {"seen": seen, "labels": data.targets, "count": data.count}}
        return Models(model), tally.plus(Tally(forward=data.count, samples=data.count))

    def predict(self, model: Params, inputs: Any) -> Array:
        """Log-probabilities of a personal model; the plain outputs of a shared one."""
        if not (isinstance(model, dict) and set(model) == {"parameters", "rows"}):  # a shared one
            return super().predict(model, inputs)
        params, rows = model["parameters"], model["rows"]
        alone = jax.nn.log_softmax(super().predict(params, inputs), axis=-1)
        queries = self._represent(params, inputs)
        if queries.ndim == 2:
            vote = self._vote(queries, rows, alone.shape[-1])
        else:  # one sequence at a time: distances of all positions to all would be as many as both squared
            vote = jax.lax.map(lambda sequence: self._vote(sequence, rows, alone.shape[-1]), queries)
        share = jnp.asarray(self.own_share, alone.dtype)
        return jnp.logaddexp(jnp.log(share) + jnp.log(vote), jnp.log1p(-share) + alone)

    def _represent(self, params: Params, inputs: Any) -> Array:
        assert isinstance(self.objective, Represents), self.fit()  # the door refused other objectives
        return self.objective.represent(params, inputs)

    def _vote(self, queries: Array, rows: Mapping[str, Array], classes: int) -> Array:
        """(queries, classes): the normalised vote of each query's nearest rows."""
        width, labels = queries.shape[-1], rows["labels"]
        real = jnp.arange(labels.shape[0], dtype=jnp.int32) < rows["count"]
        real = real.reshape(-1, *(1,) * (labels.ndim - 1)) & (labels >= 0)
        real, seen = real.reshape(-1), rows["seen"].reshape(-1, width)
        # distances from the rows' mean: where all lie far from zero, their squares would cancel and leave rounding
        known = jnp.where(real[:, None], seen, 0)
        middle = jnp.sum(known, axis=0, keepdims=True) / jnp.maximum(jnp.sum(real.astype(seen.dtype)), 1)
        apart = _squared_distances(queries - middle, seen - middle)
        near, place = jax.lax.top_k(jnp.where(real[None], -apart, -jnp.inf), min(self.neighbours, labels.size))
        # a softmax: the nearest row weighs most, also where exp would give every row nothing; padding weighs nothing
        weights = jax.nn.softmax(near / (width * self.kernel_scale), axis=1)
        ballots = jax.nn.one_hot(labels.reshape(-1)[place], classes, dtype=weights.dtype)
        return jnp.sum(weights[:, :, None] * ballots, axis=1)


def _squared_distances(queries: Array, rows: Array) -> Array:
    """(queries, rows), as one matrix product: a difference per pair would be as wide as the representation."""
    squares = [jnp.sum(jnp.square(values), axis=1) for values in (queries, rows)]
    products = jnp.matmul(queries, rows.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.maximum(squares[0][:, None] - 2 * products + squares[1][None], 0)


_MARFOQ = "Marfoq et al. 2022, Personalized federated learning through local memorization"
METHODS = {
    "knn_per": Method(KNNPer, "global_model", BY_ROWS, _MARFOQ, "FedAvg, and a vote of the client's own nearest rows")
}
