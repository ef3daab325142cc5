# SPDX-License-Identifier: Apache-2.0
"""Dense layer."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.models.layers.precision import product
from idiolect.models.model import Params


@dataclasses.dataclass(frozen=True)
class Dense:
    """inputs . weights + bias over the last axis; `gain` 2 keeps the scale through a rectifier, 1 without one."""

    inside: int
    outside: int
    gain: float = 2.0
    compute: str = "float32"

    def init(self, key: Array) -> Params:
        """Normal weights of variance gain / inputs; zero bias."""
        weights = jax.random.normal(key, (self.inside, self.outside)) * (self.gain / self.inside) ** 0.5
        return {"weights": weights, "bias": jnp.zeros(self.outside)}

    def apply(self, params: Params, inputs: Array) -> Array:
        """(..., outside)."""
        outputs = product(inputs, params["weights"], self.compute)
        # brought to the rank of the outputs by hand: tests refuse arrays of different ranks side by side
        return outputs + params["bias"].reshape((1,) * (outputs.ndim - 1) + (-1,))
