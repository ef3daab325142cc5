# SPDX-License-Identifier: Apache-2.0
"""Multi-layer perceptron."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.models.model import Model, Params


@dataclasses.dataclass(frozen=True)
class MLP(Model):
    """Dense layers, a rectifier between them, named `dense_0`, `dense_1`, ...; 0 `outputs` give one plain number.

    With `normalize`, every row's hidden units are brought to mean 0 and variance 1, then scaled and shifted (layer
    normalisation, `norm_0`, ...), before the rectifier.
    """

    features: int
    outputs: int
    hidden: tuple[int, ...] = (64,)
    normalize: bool = False

    def init(self, key: Any) -> Params:
        """He's normal initialisation (variance 2 / inputs keeps the scale through a rectifier); zero biases."""
        widths = (self.features, *self.hidden, self.outputs or 1)
        params = {}
        for layer, (inside, outside) in enumerate(itertools.pairwise(widths)):
            weights = jax.random.normal(jax.random.fold_in(key, layer), (inside, outside)) * (2 / inside) ** 0.5
            params[f"dense_{layer}"] = {"weights": weights, "bias": jnp.zeros(outside)}
            if self.normalize and layer < len(self.hidden):
                params[f"norm_{layer}"] = {"scale": jnp.ones(outside), "shift": jnp.zeros(outside)}
        return params

    def apply(self, params: Params, inputs: Any) -> Any:
        """(rows,) or (rows, outputs); inputs of any shape are flattened."""
        last = params[f"dense_{len(self.hidden)}"]
        outputs = self.represent(params, inputs) @ last["weights"] + last["bias"][None]
        return outputs if self.outputs else outputs[:, 0]

    def represent(self, params: Params, inputs: Any) -> Any:
        """The last hidden units."""
        flow = inputs.reshape(inputs.shape[0], self.features)
        for layer in range(len(self.hidden)):
            dense = params[f"dense_{layer}"]
            flow = flow @ dense["weights"] + dense["bias"][None]
            if self.normalize:
                flow = _normalized(flow, **params[f"norm_{layer}"])
            flow = jax.nn.relu(flow)
        return flow


def _normalized(values: Any, scale: Any, shift: Any) -> Any:
    apart = values - jnp.mean(values, axis=1, keepdims=True)
    variance = jnp.mean(jnp.square(apart), axis=1, keepdims=True)
    return apart * jax.lax.rsqrt(variance + 1e-5) * scale[None] + shift[None]
