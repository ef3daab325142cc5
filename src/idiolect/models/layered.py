# SPDX-License-Identifier: Apache-2.0
"""Models of named layers: which layers there are, and how inputs flow through them, is said once.

A split, a route or a fine-tune names layers. Since `forward` asks for each layer by name, whoever answers decides what
a layer is: its own parameters (`apply`), a mixture of two versions (a route), or what is seen passing by (`represent`).
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import jax
from jax import Array

from idiolect.core.checks import RequestError
from idiolect.models.model import Model, Params

Call = Callable[[str, Any], Any]


class Layer(Protocol):
    """An init/apply pair with parameters."""

    def init(self, key: Array) -> Params:
        """Start parameters."""

    def apply(self, params: Params, inputs: Array) -> Array:
        """What comes out."""


class Layered(Model):
    """Write `named_layers` and `forward`; the rest follows.

    A model of tokens `walks` if it may be asked position by position: it begins with an `Embedding`, and its `LSTM`
    layers alone carry something from one to the next. Every class says so for itself; it is not inherited.
    """

    walks: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def named_layers(self) -> Mapping[str, Layer]:
        """The layers with parameters, by name."""

    @abc.abstractmethod
    def forward(self, call: Call, inputs: Array, key: Array | None = None) -> Array:
        """Outputs; `call(name, flow)` is what layer `name` makes of `flow`. `key` is for what is random in training."""

    def init(self, key: Array) -> Params:
        """Start parameters of every layer."""
        named = enumerate(self.named_layers.items())
        # keys by place, not split: a layer that is added at the end changes the start of no other
        return {name: layer.init(jax.random.fold_in(key, place)) for place, (name, layer) in named}

    def apply(self, params: Params, inputs: Array) -> Array:
        """Outputs for a batch of inputs: one row each."""
        return self.watch(params, inputs, lambda name, flow: None)

    def train(self, key: Array, params: Params, inputs: Array) -> Array:
        """The same, with what is random in training."""
        return self.observe(key, params, inputs)[0]

    def observe(
        self, key: Array, params: Params, inputs: Array, mask: Array | None = None
    ) -> tuple[Array, dict[str, Array]]:
        """`train`, and what running statistics become: layers that have some say so in their own `observe`."""
        layers, seen = self.named_layers, {}

        def call(name: str, flow: Array) -> Array:
            layer: Any = layers[name]
            # only layers with running moments see a batch otherwise than in prediction
            if not hasattr(layer, "observe"):
                return layer.apply(params[name], flow)
            outputs, moved = layer.observe(params[name], flow, mask)
            seen.update({f"{name}.{key}": value for key, value in moved.items()})
            return outputs

        return self.forward(call, inputs, key), seen

    def represent(self, params: Params, inputs: Array) -> Array:
        """What the last layer sees."""
        seen: list[Array] = []
        self.watch(params, inputs, lambda name, flow: seen.append(flow))
        return seen[-1]

    def watch(self, params: Params, inputs: Array, see: Callable[[str, Any], None]) -> Array:
        """`apply`, where `see(name, flow)` is told what reaches each layer."""
        layers = self.named_layers

        def call(name: str, flow: Array) -> Array:
            see(name, flow)
            return layers[name].apply(params[name], flow)

        return self.forward(call, inputs)


@dataclasses.dataclass(frozen=True)
class OfImages(Layered):
    """A network for images of one size; still abstract."""

    height: int
    width: int
    channels: int
    outputs: int

    @property
    def input_width(self) -> int:
        """Pixels times channels."""
        return self.height * self.width * self.channels

    def images(self, inputs: Array) -> Array:
        """(rows, height, width, channels), from the same or from flat rows."""
        if math.prod(inputs.shape[1:]) != self.input_width:
            raise RequestError(
                f"The model was made for images of {self.height} x {self.width} x {self.channels}, got inputs of shape "
                f"{inputs.shape[1:]}; make it for these, or bring all images to one size."
            )
        return inputs.reshape(inputs.shape[0], self.height, self.width, self.channels)
