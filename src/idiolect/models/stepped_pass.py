# SPDX-License-Identifier: Apache-2.0
"""A pass with routes where psi reads what the model itself has seen: the text models of Flow 2023.

At every position psi reads the shared vector of the token there and the hidden states that the recurrent layers
brought along, all of them mixtures already. So shares are known position by position, and the whole model walks through
the text in one loop: no product stands outside it, and gradients of weights are summed position by position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.core.checks import RequestError
from idiolect.core.tree import Tree
from idiolect.models.layered import Layered
from idiolect.models.layers import LSTM, Embedding
from idiolect.models.layers.lstm import State
from idiolect.models.model import Model, Params
from idiolect.models.routed_pass import RoutedModel, blend, pick, prefers_shared
from idiolect.models.routing_net import Shares

Version = Callable[[], Tree]  # what one version of a layer makes: an array, with its state where it has one
Join = Callable[[Shares, int, Version, Version], Tree]


@dataclasses.dataclass(frozen=True)
class SteppedModel(RoutedModel):
    """Routes that depend on the states of a model which `walks`."""

    def soft(
        self, routing: Params, shared: Params, local: Params, inputs: Array, key: Array | None = None
    ) -> tuple[Array, Shares]:
        """Outputs of the mixture that psi asks for, and its shares."""

        def mix(shares: Shares, place: int, ours: Version, theirs: Version) -> Tree:
            return blend(shares.shared[..., place], shares.local[..., place], ours(), theirs())

        return self._walk(mix, routing, shared, local, inputs, key)

    def hard(self, routing: Params, shared: Params, local: Params, inputs: Array) -> tuple[Array, Shares]:
        """Outputs where every row takes, position by position, the version of each layer that psi prefers."""

        def choose(shares: Shares, place: int, ours: Version, theirs: Version) -> Tree:
            return pick(prefers_shared(shares)[..., place], ours, theirs)

        return self._walk(choose, routing, shared, local, inputs, None)

    def _walk(
        self, join: Join, routing: Params, shared: Params, local: Params, tokens: Array, key: Array | None
    ) -> tuple[Array, Shares]:
        model, places = self.model, self.places
        assert isinstance(model, Layered)
        layers, embedding = model.named_layers, _embeddings(model)[0]
        zeros = {
            name: State(*(jnp.zeros((tokens.shape[0], layer.width), shared[name]["bias"].dtype),) * 2)
            for name, layer in _recurrent(model).items()
        }

        def step(states: dict[str, State], at: tuple[Array, Array]) -> tuple[dict[str, State], tuple[Array, Shares]]:
            time, token = at
            seen = layers[embedding].apply(shared[embedding], token)
            shares = self.net.shares(routing, jnp.concatenate([seen, *(state.hidden for state in states.values())], -1))
            # every layer of this position begins with the states of the last one, whichever layer has moved on already
            after = dict(states)

            def version(name: str, params: Params, flow: Array) -> Array:
                layer: Any = layers[name]
                return layer.run(params, flow, states[name]) if name in states else layer.apply(params, flow)

            def call(name: str, flow: Array) -> Array:
                if name not in places:
                    outputs = version(name, shared[name], flow)
                else:
                    versions = (lambda: version(name, shared[name], flow), lambda: version(name, local[name], flow))
                    outputs = join(shares, places[name], *versions)
                if name in states:
                    outputs, after[name] = outputs
                return outputs

            # dropout is drawn anew at every position
            own_key = None if key is None else jax.random.fold_in(key, time)
            return after, (model.forward(call, token[:, None], own_key)[:, 0], shares)

        positions = jnp.arange(tokens.shape[1], dtype=jnp.int32)
        _, (outputs, shares) = jax.lax.scan(step, zeros, (positions, tokens.T))
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (outputs, shares))


def seen_width(model: Model) -> int:
    """How many numbers psi reads at a position; RequestError for a model without such states.

    A subclass that changes layers says for itself that it still `walks`: a recurrent layer that is unknown here would
    begin anew at every position.
    """
    if not (isinstance(model, Layered) and vars(type(model)).get("walks") and _embeddings(model)):
        raise RequestError(
            f"token_routing must be 'frequencies' for {type(model).__name__}, which does not say that it walks: that "
            "it begins with an Embedding, and that LSTM layers alone bring something from one position to the next; "
            "got 'states'."
        )
    embedding: Any = model.named_layers[_embeddings(model)[0]]
    return embedding.width + sum(layer.width for layer in _recurrent(model).values())


def _recurrent(model: Layered) -> dict[str, LSTM]:
    return {name: layer for name, layer in model.named_layers.items() if isinstance(layer, LSTM)}


def _embeddings(model: Layered) -> list[str]:
    return [name for name, layer in model.named_layers.items() if isinstance(layer, Embedding)]
