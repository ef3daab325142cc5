# SPDX-License-Identifier: Apache-2.0
"""Group normalisation: every row by its own moments, so that no statistic is shared between rows or clients."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from idiolect.models.model import Params


@dataclasses.dataclass(frozen=True)
class GroupNorm:
    """(values - mean) / sqrt(variance + epsilon) * scale + shift; moments over positions and the group's channels."""

    normalizes: ClassVar[bool] = True  # a method that splits or routes layers leaves it shared unless it is named

    channels: int
    groups: int
    epsilon: float = 1e-5

    def init(self, key: Any) -> Params:
        """Scale 1, shift 0."""
        return {"scale": jnp.ones(self.channels), "shift": jnp.zeros(self.channels)}

    def apply(self, params: Params, values: Any) -> Any:
        """Of the same shape: (rows, ..., channels)."""
        grouped = values.reshape(values.shape[0], -1, self.groups, self.channels // self.groups)
        centred = grouped - grouped.mean(axis=(1, 3), keepdims=True)
        variance = jnp.square(centred).mean(axis=(1, 3), keepdims=True)
        normal = (centred * jax.lax.rsqrt(variance + self.epsilon)).reshape(values.shape)
        return normal * params["scale"] + params["shift"]
