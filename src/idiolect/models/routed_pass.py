# SPDX-License-Identifier: Apache-2.0
"""A pass with routes: every routed layer in two versions, shared and local, whose outputs are weighed for each input.

It is another `call` of a model's `forward`: layer j gives q_0 layer_shared + q_1 layer_local (Flow 2023, eq. 3), and
what follows a layer (rectifier, pooling, dropout) follows the mixture. A whole model can be routed as one layer.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.core.control import cond
from idiolect.models.layered import Layered
from idiolect.models.model import Model, Params
from idiolect.models.routing_net import FixedShares, RoutingNet, Shares

WHOLE = "model"  # the one route of a whole model: its outputs are weighed
Join = Callable[[Any, int, Params, Params, Array], Array]  # a layer, its exit, both versions, what flows in


@dataclasses.dataclass(frozen=True)
class RoutedModel:
    """A model with its routes: `groups[j]` are the layers that exit j routes, called `names[j]`."""

    model: Model
    names: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    net: RoutingNet | FixedShares

    @property
    def whole(self) -> bool:
        """Whether there is one route, between two whole models."""
        return self.groups == ((WHOLE,),)

    @property
    def places(self) -> dict[str, int]:
        """The exit of every routed layer."""
        return {name: place for place, group in enumerate(self.groups) for name in group}

    def local(self, shared: Params) -> Params:
        """The layers that have a second version, as they stand in `shared`."""
        if self.whole:
            return shared
        return {name: shared[name] for group in self.groups for name in group}

    def soft(
        self, routing: Params, shared: Params, local: Params, inputs: Array, key: Array | None = None
    ) -> tuple[Array, Shares]:
        """Outputs of the mixture that psi asks for, and its shares."""
        shares = self.net.shares(routing, inputs)
        return self.mixed(shares, shared, local, inputs, key), shares

    def hard(self, routing: Params, shared: Params, local: Params, inputs: Array) -> tuple[Array, Shares]:
        """Outputs where every row takes the version of each layer that psi prefers, and psi's shares."""
        shares = self.net.shares(routing, inputs)
        return self.chosen(prefers_shared(shares), shared, local, inputs), shares

    def mixed(self, shares: Shares, shared: Params, local: Params, inputs: Array, key: Array | None = None) -> Array:
        """Outputs of the mixture with these shares."""

        def mix(layer: Any, place: int, ours: Params, theirs: Params, flow: Array) -> Array:
            first, second = shares.shared[..., place], shares.local[..., place]
            if hasattr(layer, "mixed"):  # a recurrent layer mixes its states, not its outputs
                return layer.mixed(ours, theirs, (first, second), flow)
            return blend(first, second, layer.apply(ours, flow), layer.apply(theirs, flow))

        return self._forward(mix, shared, local, inputs, key)

    def chosen(self, picked: Array, shared: Params, local: Params, inputs: Array) -> Array:
        """Outputs where every row takes one version of each layer: the shared one where `picked` holds."""

        def choose(layer: Any, place: int, ours: Params, theirs: Params, flow: Array) -> Array:
            own = picked[..., place]
            if hasattr(layer, "chosen"):
                return layer.chosen(ours, theirs, own, flow)
            return pick(own, lambda: layer.apply(ours, flow), lambda: layer.apply(theirs, flow))

        return self._forward(choose, shared, local, inputs, None)

    def alone(self, shared: Params, local: Params, inputs: Array, key: Array | None = None) -> Array:
        """Outputs of the local version: every routed layer local, the others shared."""
        return self._forward(
            lambda layer, place, ours, theirs, flow: layer.apply(theirs, flow), shared, local, inputs, key
        )

    def _forward(self, join: Join, shared: Params, local: Params, inputs: Array, key: Array | None) -> Array:
        if self.whole:
            # a whole model is one layer, in training where there is a key: its two versions meet in their outputs
            apply = self.model.apply if key is None else functools.partial(self.model.train, key)
            return join(SimpleNamespace(apply=apply), 0, shared, local, inputs)
        assert isinstance(self.model, Layered)  # another model is routed as a whole
        layers, places = self.model.named_layers, self.places

        def call(name: str, flow: Array) -> Array:
            if name not in places:
                return layers[name].apply(shared[name], flow)
            return join(layers[name], places[name], shared[name], local[name], flow)

        return self.model.forward(call, inputs, key)


def prefers_shared(shares: Shares) -> Array:
    """Where the shared version is taken; a tie is shared."""
    return shares.shared >= 0.5


def blend(first: Array, second: Array, ours: Array, theirs: Array) -> Array:
    """first * ours + second * theirs, row by row, in every array of two alike trees."""
    return jax.tree.map(lambda a, b: along(first, a) * a + along(second, b) * b, ours, theirs)


def pick(own: Array, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Array:
    """`ours()` in the rows where `own` holds, `theirs()` elsewhere.

    What no row takes is not computed, unless this is one of many models under `vmap`.
    """
    # a branch must return the same shapes: zeros stand for the version that no row takes
    shapes = jax.eval_shape(ours)

    def idle() -> Array:
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    first, second = cond(jnp.any(own), ours, idle), cond(jnp.any(~own), theirs, idle)
    return jax.tree.map(lambda a, b: jnp.where(along(own, a), a, b), first, second)


def along(values: Array, outputs: Array) -> Array:
    """`values` with the rank of `outputs`, whose leading axes are theirs."""
    return jnp.reshape(values, (*values.shape, *(1,) * (outputs.ndim - values.ndim)))
