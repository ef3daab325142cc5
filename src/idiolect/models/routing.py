# SPDX-License-Identifier: Apache-2.0
"""Routes: every routed layer in two versions, shared and local, and a small net that weighs them for each input.

The routing net psi is a perceptron over the raw, flattened input (paper 003, eq. 2): the trunk's layer j, rectified, is
the input of its next layer and of exit j, a two-way softmax (q_0, q_1); where the trunk is shorter than the routes, the
last exits all read its last layer. Tokens are read as frequencies: the input at a position is how often each token
came so far, so that the trunk's first layer is a mean of vectors and no answer can see what it is to guess.

A pass with routes is another `call` of a model's `forward`: layer j gives q_0 layer_shared + q_1 layer_local (eq. 3),
and what follows a layer (rectifier, pooling, dropout) follows the mixture.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.core.checks import RequestError, nearest
from idiolect.core.control import cond
from idiolect.models.layered import Call, Layer, Layered
from idiolect.models.layers import Dense
from idiolect.models.model import Model, Params

WHOLE = "model"  # the one route of a model without named layers: its outputs


@dataclasses.dataclass(frozen=True)
class RoutingNet:
    """psi: inputs of `features` numbers, or of tokens out of as many, -> one margin log(q_0 / q_1) per exit."""

    features: int
    exits: int
    widths: tuple[int, ...]
    tokens: bool = False

    @property
    def _trunk(self) -> list[Dense]:
        return [Dense(*pair) for pair in itertools.pairwise((self.features, *self.widths))]

    @property
    def _exits(self) -> list[Dense]:
        # small weights: at the start no route is much preferred
        return [Dense(self.widths[min(place, len(self.widths) - 1)], 2, gain=1 / 3) for place in range(self.exits)]

    def init(self, key: Any) -> Params:
        """Start parameters."""
        layers = {f"trunk_{place}": layer for place, layer in enumerate(self._trunk)}
        layers |= {f"exit_{place}": layer for place, layer in enumerate(self._exits)}
        return {name: layer.init(jax.random.fold_in(key, place)) for place, (name, layer) in enumerate(layers.items())}

    def margins(self, params: Params, inputs: Any) -> Any:
        """log q_0 - log q_1: (rows, exits), or (rows, time, exits) for tokens."""
        flow = inputs if self.tokens else inputs.reshape(inputs.shape[0], self.features)
        trunk, found = self._trunk, []
        for place, way_out in enumerate(self._exits):
            if place < len(trunk):
                layer, own = trunk[place], params[f"trunk_{place}"]
                counted = self.tokens and place == 0
                flow = jax.nn.relu(_mean_so_far(own, flow) if counted else layer.apply(own, flow))
            logits = way_out.apply(params[f"exit_{place}"], flow)
            found.append(logits[..., 0] - logits[..., 1])
        return jnp.stack(found, axis=-1)


def _mean_so_far(params: Params, tokens: Any) -> Any:
    """(rows, time, width): a dense layer on the frequencies of the tokens up to each position."""
    vectors = jnp.cumsum(params["weights"][tokens], axis=1)
    length = jnp.arange(1, tokens.shape[1] + 1, dtype=jnp.int32).astype(vectors.dtype)
    return vectors / length[None, :, None] + params["bias"][None, None]


@dataclasses.dataclass(frozen=True)
class RoutedModel:
    """A model with its routes: `groups[j]` are the layers that exit j routes, called `names[j]`."""

    model: Model
    names: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    net: RoutingNet

    def local(self, shared: Params) -> Params:
        """The layers that have a second version, as they stand in `shared`."""
        if not isinstance(self.model, Layered):
            return shared
        return {name: shared[name] for group in self.groups for name in group}

    def mixed(self, shares: tuple[Any, Any], shared: Params, local: Params, inputs: Any, key: Any = None) -> Any:
        """Outputs of the mixture; shares q_0 and q_1 have an entry per exit on the last axis."""

        def mix(layer: Layer, place: int, ours: Params, theirs: Params, flow: Any) -> Any:
            first, second = shares[0][..., place], shares[1][..., place]
            if hasattr(layer, "mixed"):  # a recurrent layer mixes its states, not its outputs
                return layer.mixed(ours, theirs, (first, second), flow)
            outputs = layer.apply(ours, flow), layer.apply(theirs, flow)
            return _along(first, outputs[0]) * outputs[0] + _along(second, outputs[1]) * outputs[1]

        return self._forward(mix, shared, local, inputs, key)

    def chosen(self, picked: Any, shared: Params, local: Params, inputs: Any) -> Any:
        """Outputs where every row takes one version of each layer: the shared one where `picked` holds.

        A version that no row takes is not computed, unless this is one of many models under `vmap`.
        """

        def choose(layer: Layer, place: int, ours: Params, theirs: Params, flow: Any) -> Any:
            own = picked[..., place]
            if hasattr(layer, "chosen"):
                return layer.chosen(ours, theirs, own, flow)
            shape = jax.eval_shape(layer.apply, ours, flow)

            def idle() -> Any:
                return jnp.zeros(shape.shape, shape.dtype)

            first = cond(jnp.any(own), lambda: layer.apply(ours, flow), idle)
            second = cond(jnp.any(~own), lambda: layer.apply(theirs, flow), idle)
            return jnp.where(_along(own, first), first, second)

        return self._forward(choose, shared, local, inputs, None)

    def alone(self, shared: Params, local: Params, inputs: Any, key: Any = None) -> Any:
        """Outputs of the local version: every routed layer local, the others shared."""
        return self._forward(
            lambda layer, place, ours, theirs, flow: layer.apply(theirs, flow), shared, local, inputs, key
        )

    def _forward(self, join: Any, shared: Params, local: Params, inputs: Any, key: Any) -> Any:
        if not isinstance(self.model, Layered):
            return join(_Whole(self.model, key), 0, shared, local, inputs)
        layers = self.model.named_layers
        places = {name: place for place, group in enumerate(self.groups) for name in group}

        def call(name: str, flow: Any) -> Any:
            if name not in places:
                return layers[name].apply(shared[name], flow)
            return join(layers[name], places[name], shared[name], local[name], flow)

        return self.model.forward(call, inputs, key)


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A whole model as one layer, in training where there is a key."""

    model: Model
    key: Any

    def init(self, key: Any) -> Params:
        """The model's start."""
        return self.model.init(key)

    def apply(self, params: Params, inputs: Any) -> Any:
        """The model's outputs."""
        return self.model.apply(params, inputs) if self.key is None else self.model.train(self.key, params, inputs)


def _along(values: Any, outputs: Any) -> Any:
    """`values` with the rank of `outputs`, whose leading axes are theirs."""
    return jnp.reshape(values, (*values.shape, *(1,) * (outputs.ndim - values.ndim)))


@functools.lru_cache(maxsize=64)
def routed_model(model: Model, routed: str, widths: tuple[int, ...]) -> RoutedModel:
    """The model with the routes that `routed` asks for; RequestError where it names no layer.

    Names or patterns separated by commas; each has an exit of its own, which routes all layers it names. Empty: every
    layer with parameters but normalisation, each by an exit of its own.
    """
    if not widths:
        raise RequestError("routing_widths must have at least one width, got none; the paper's are [350, 150, 50].")
    groups = _groups(model, routed)
    net = RoutingNet(model.input_width, len(groups), widths[: len(groups)], model.reads_tokens)
    return RoutedModel(model, tuple(groups), tuple(groups.values()), net)


def _groups(model: Model, routed: str) -> dict[str, tuple[str, ...]]:
    """The layers of every exit, by what it is called."""
    parts = [part.strip() for part in routed.split(",")] if routed else []
    if not isinstance(model, Layered):
        if parts not in ([], [WHOLE]):
            raise RequestError(
                f"routed must be {WHOLE!r} or left out for {type(model).__name__}, which has no named layers, "
                f"got {routed!r}."
            )
        return {WHOLE: (WHOLE,)}
    layers, order = model.named_layers, _order_of_use(model)
    if not parts:
        return {name: (name,) for name in order if not getattr(layers[name], "normalizes", False)}
    taken: set[str] = set()
    groups = {}
    for part in parts:
        group = tuple(name for name in order if fnmatch.fnmatchcase(name, part))
        if not group:
            raise RequestError(f"routed names no layer with {part!r}.{nearest(part, layers)}")
        if taken & set(group):
            raise RequestError(
                f"routed must name a layer once, got {sorted(taken & set(group))[0]!r} again with {part!r}; "
                "leave one of them out."
            )
        taken |= set(group)
        groups[part] = group
    return groups


def _order_of_use(model: Layered) -> tuple[str, ...]:
    """The layers in the order in which an input meets them."""
    seen: dict[str, None] = {}

    def look(params: Params, inputs: Any) -> Any:
        layers = model.named_layers

        def call(name: str, flow: Any) -> Any:
            seen[name] = None
            return layers[name].apply(params[name], flow)

        watched: Call = call
        return model.forward(watched, inputs)

    shape, kind = ((1, 2), jnp.int32) if model.reads_tokens else ((1, model.input_width), jnp.result_type(float))
    params = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    jax.eval_shape(look, params, jax.ShapeDtypeStruct(shape, kind))
    return tuple(seen)
