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
    """Dense layers, a rectifier between them, named `dense_0`, `dense_1`, ...; 0 `outputs` give one plain number."""

    features: int
    outputs: int
    hidden: tuple[int, ...] = (64,)

    def init(self, key: Any) -> Params:
        """He's normal initialisation (variance 2 / inputs keeps the scale through a rectifier); zero biases."""
        widths = (self.features, *self.hidden, self.outputs or 1)
        params = {}
        for layer, (inside, outside) in enumerate(itertools.pairwise(widths)):
            weights = jax.random.normal(jax.random.fold_in(key, layer), (inside, outside)) * (2 / inside) ** 0.5
            params[f"dense_{layer}"] = {"weights": weights, "bias": jnp.zeros(outside)}
        return params

    def apply(self, params: Params, inputs: Any) -> Any:
        """(rows,) or (rows, outputs); inputs of any shape are flattened."""
        flow = inputs.reshape(inputs.shape[0], self.features)
        for layer in range(len(self.hidden) + 1):
            dense = params[f"dense_{layer}"]
            flow = flow @ dense["weights"] + dense["bias"]
            if layer < len(self.hidden):
                flow = jax.nn.relu(flow)
        return flow if self.outputs else flow[:, 0]
