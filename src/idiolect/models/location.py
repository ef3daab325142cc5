# SPDX-License-Identifier: Apache-2.0
"""The location model: one number per coordinate, for mean estimation and quadratics with additive noise."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import Array

from idiolect.models.model import Model, Params


@dataclasses.dataclass(frozen=True)
class Location(Model):
    """inputs * location, coordinate by coordinate. Under the squared loss the gradient noise does not depend on it."""

    features: int

    @property
    def input_width(self) -> int:
        """As many as features."""
        return self.features

    def init(self, key: Array) -> Params:
        """Zeros."""
        return {"location": jnp.zeros(self.features)}

    def apply(self, params: Params, inputs: Array) -> Array:
        """(rows, features)."""
        return inputs * params["location"][None]
