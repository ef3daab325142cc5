# SPDX-License-Identifier: Apache-2.0
"""A pass with routes where psi reads what the model itself has seen: the text models of Flow 2023.

At every position psi reads the shared vector of the token there and the hidden states that the recurrent layers
brought along, all of them mixtures already. So shares are known position by position, in one loop through the text.
What needs no state stands before the loop (vectors of tokens), what no state needs behind it (the layers that follow
the last recurrent one). In it both versions of a recurrent layer are one product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
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
from idiolect.models.routed_pass import RoutedModel, along, blend, prefers_shared
from idiolect.models.routing_net import Shares

Join = Callable[[Shares, int, Tree, Tree], Tree]  # of the shares, an exit, and what both versions of its layer made


@dataclasses.dataclass(frozen=True)
class SteppedModel(RoutedModel):
    """Routes that depend on the states of a model which `walks`."""

    def soft(
        self, routing: Params, shared: Params, local: Params, inputs: Array, key: Array | None = None
    ) -> tuple[Array, Shares]:
        """Outputs of the mixture that psi asks for, and its shares."""

        def mix(shares: Shares, place: int, ours: Tree, theirs: Tree) -> Tree:
            return blend(shares.shared[..., place], shares.local[..., place], ours, theirs)

        return self._walk(mix, routing, shared, local, inputs, key)

    def hard(self, routing: Params, shared: Params, local: Params, inputs: Array) -> tuple[Array, Shares]:
        """Outputs where every row takes, position by position, the version of each layer that psi prefers."""

        def choose(shares: Shares, place: int, ours: Tree, theirs: Tree) -> Tree:
            own = prefers_shared(shares)[..., place]
            return jax.tree.map(lambda a, b: jnp.where(along(own, a), a, b), ours, theirs)

        return self._walk(choose, routing, shared, local, inputs, None)

    def _walk(
        self, join: Join, routing: Params, shared: Params, local: Params, tokens: Array, key: Array | None
    ) -> tuple[Array, Shares]:
        model, places = self.model, self.places
        assert isinstance(model, Layered)
        layers, recurrent, first = model.named_layers, _recurrent(model), _embeddings(model)[0]

        def versions(name: str) -> list[Params]:
            return [shared[name], local[name]] if name in places else [shared[name]]

        def joined(shares: Shares, name: str, made: Sequence[Tree]) -> Tree:
            return join(shares, places[name], *made) if name in places else made[0]

        weights = {name: layer.side_by_side(versions(name)) for name, layer in recurrent.items()}

        def step(states: dict[str, State], at: tuple[Array, Array, list[Array]]) -> tuple[dict[str, State], Any]:
            time, token, vectors = at
            shares = self.net.shares(routing, jnp.concatenate([vectors[0], *_hidden(states).values()], -1))
            # every layer of this position begins with the states of the last one, whichever layer has moved on already
            after: dict[str, State] = {}

            def call(name: str, flow: Array) -> Array:
                if len(after) == len(recurrent):  # follows the loop
                    return jnp.zeros(jax.eval_shape(layers[name].apply, shared[name], flow).shape, flow.dtype)
                if name in recurrent:
                    made = recurrent[name].step(weights[name], flow[:, 0], states[name])
                    after[name] = joined(shares, name, made)
                    return after[name].hidden[:, None]
                if name == first:
                    return joined(shares, name, vectors)[:, None]
                return joined(shares, name, [layers[name].apply(params, flow) for params in versions(name)])

            # dropout is drawn anew at every position
            model.forward(call, token[:, None], None if key is None else jax.random.fold_in(key, time))
            return after, (_hidden(after), shares)

        positions = jnp.arange(tokens.shape[1], dtype=jnp.int32)
        vectors = [layers[first].apply(params, tokens.T) for params in versions(first)]
        start = {name: layer.begin(tokens.shape[0], shared[name]) for name, layer in recurrent.items()}
        _, seen = jax.lax.scan(step, start, (positions, tokens.T, vectors))
        hidden, shares = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), seen)

        def call(name: str, flow: Array) -> Array:
            if name in recurrent:
                return hidden[name]
            return joined(shares, name, [layers[name].apply(params, flow) for params in versions(name)])

        return model.forward(call, tokens, key), shares


def _hidden(states: dict[str, State]) -> dict[str, Array]:
    return {name: state.hidden for name, state in states.items()}


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
