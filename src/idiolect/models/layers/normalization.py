# SPDX-License-Identifier: Apache-2.0
"""Normalisation by a row's own moments (group) or by those of a batch, with running moments for prediction."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.core.checks import RequestError
from idiolect.models.model import Params


@dataclasses.dataclass(frozen=True)
class GroupNorm:
    """(values - mean) / sqrt(variance + epsilon) * scale + shift; moments over positions and the group's channels."""

    normalizes: ClassVar[bool] = True  # a method that splits or routes layers leaves it shared unless it is named

    channels: int
    groups: int
    epsilon: float = 1e-5

    def init(self, key: Array) -> Params:
        """Scale 1, shift 0."""
        return {"scale": jnp.ones(self.channels), "shift": jnp.zeros(self.channels)}

    def apply(self, params: Params, values: Array) -> Array:
        """Of the same shape: (rows, ..., channels)."""
        grouped = values.reshape(values.shape[0], -1, self.groups, self.channels // self.groups)
        # in two passes: the mean of squares less the squared mean loses all digits where the mean is large
        centred = grouped - grouped.mean(axis=(1, 3), keepdims=True)
        variance = jnp.square(centred).mean(axis=(1, 3), keepdims=True)
        normal = (centred * jax.lax.rsqrt(variance + self.epsilon)).reshape(values.shape)
        return normal * params["scale"] + params["shift"]


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """(values - mean) / sqrt(variance + epsilon) * scale + shift, channel by channel.

    In training the moments are those of the batch, over its real rows and all positions (the variance divides by their
    number), and the running moments follow: running <- (1 - momentum) running + momentum batch, but for a batch of one
    value per channel, which has no variance and leaves them. Without a key, they are the moments.
    """

    normalizes: ClassVar[bool] = True

    channels: int
    momentum: float = 0.1
    epsilon: float = 1e-5

    def init(self, key: Array) -> Params:
        """Scale 1, shift 0, running mean 0, running variance 1."""
        one, zero = jnp.ones(self.channels), jnp.zeros(self.channels)
        return {"scale": one, "shift": zero, "running_mean": zero, "running_variance": one}

    def apply(self, params: Params, values: Array) -> Array:
        """Of the same shape, (rows, ..., channels), by the running moments."""
        return self._normal(params, values, params["running_mean"], params["running_variance"])

    def observe(self, params: Params, values: Array, mask: Array) -> tuple[Any, Params]:
        """The same by the batch's moments, and the new running ones."""
        mean = _mean(values, mask)
        variance = _mean(jnp.square(values - mean), mask)
        kept = {"running_mean": params["running_mean"], "running_variance": params["running_variance"]}
        batch = {"running_mean": mean, "running_variance": variance}
        values_each = (values.shape[0] if mask is None else jnp.sum(mask)) * math.prod(values.shape[1:-1])
        pace = jnp.where(values_each > 1, self.momentum, 0).astype(values.dtype)
        # no gradient flows through what is remembered: only through the moments that normalise this batch
        moved = {name: (1 - pace) * old + pace * jax.lax.stop_gradient(batch[name]) for name, old in kept.items()}
        return self._normal(params, values, mean, variance), moved

    def _normal(self, params: Params, values: Array, mean: Array, variance: Array) -> Array:
        return (values - mean) * (jax.lax.rsqrt(variance + self.epsilon) * params["scale"]) + params["shift"]


def _mean(values: Array, mask: Array) -> Array:
    """(channels,): the mean over real rows and all positions."""
    flat = values.reshape(values.shape[0], -1, values.shape[-1])
    if mask is None:
        return flat.mean(axis=(0, 1))
    # every row has as many positions: the mean over real rows of means over positions is that over all
    rows = jnp.sum(flat.mean(axis=1) * mask.astype(values.dtype)[:, None], axis=0)
    return rows / jnp.maximum(jnp.sum(mask.astype(values.dtype)), 1)


def normalization(kind: str, channels: int, groups: int = 1) -> GroupNorm | BatchNorm:
    """The layer that a network's setting `normalize` asks for; "layer" is one group of all channels."""
    if kind not in ("batch", "group", "layer"):
        raise RequestError(f"normalize must be 'batch', 'group', 'layer' or 'none', got {kind!r}.")
    return BatchNorm(channels) if kind == "batch" else GroupNorm(channels, groups)
