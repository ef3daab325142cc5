# SPDX-License-Identifier: Apache-2.0
"""Running averages of iterates with weights (1 - decay)^{-k-1}, k = 0, 1, ...; decay 0 is the plain mean.

The weights themselves overflow, so an average is kept normalised: relative to the newest weight, `count`
iterates weigh S(count) = sum_{j < count} (1 - decay)^j together, and the newest `new` of them have the share
S(new) / S(count). The tuples are those of methods whose output may be such an average: what it needs is () otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.core.types import Array, Params, Scalar


class ServerState(NamedTuple):
    """w; for an average also that of the past means of w_m, and the rounds it covers."""

    shared: Params
    averaged: Params
    rounds: Any


class Broadcast(NamedTuple):
    """w goes down; for an average also the number of rounds so far."""

    shared: Params
    rounds: Any


class Upload(NamedTuple):
    """w - w_m goes up; for an average also that of the round's w_m."""

    drift: Params
    averaged: Params
    weight: Array


def share(new: ArrayLike, count: ArrayLike, decay: Scalar) -> Array:
    """Weight of the newest `new` among `count` iterates, in [0, 1]; 0 when there are none yet."""
    return _weight(new, decay) / jnp.maximum(_weight(count, decay), 1)  # S(count) >= 1 as soon as there is one


def _weight(count: ArrayLike, decay: Scalar) -> Array:
    count = jnp.asarray(count, jnp.result_type(float))
    # 1 - (1 - decay)^count without cancellation: decay = eta mu is often below the precision of float32
    geometric = -jnp.expm1(count * jnp.log1p(-decay)) / jnp.where(decay > 0, decay, 1)
    return jnp.where(decay > 0, geometric, count)
