# SPDX-License-Identifier: Apache-2.0
"""Embedding: a vector for every token of a vocabulary."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.models.model import Params


@dataclasses.dataclass(frozen=True)
class Embedding:
    """Whole numbers 0 .. vocabulary - 1 -> vectors of `width`."""

    vocabulary: int
    width: int

    def init(self, key: Array) -> Params:
        """Standard normal vectors scaled by width^(-1/2): of length about 1."""
        return {"vectors": jax.random.normal(key, (self.vocabulary, self.width)) * self.width**-0.5}

    def apply(self, params: Params, tokens: Array) -> Array:
        """(..., width)."""
        return jnp.asarray(params["vectors"])[tokens]  # NumPy's, as read from a file, cannot be asked inside a loop
