# SPDX-License-Identifier: Apache-2.0
"""Server optimizers by name: those of optax, and the two of Reddi et al. 2021 as they were published.

With drift g, m <- 0.9 m + 0.1 g and w <- w - step_size m / (sqrt(v) + tau); v starts at tau^2, tau = 1e-3, without
bias correction: `fedadam` v <- 0.99 v + 0.01 g^2, `fedyogi` v <- v - 0.01 g^2 sign(v - g^2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from idiolect.core import tree
from idiolect.core.types import Array, Params, Scalar

# Those of optax whose one needed setting is the learning rate; its schedules, clips and chains are no optimizers.
_KNOWN = (
    *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad"),
    *("fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_gradient_descent", "radam"),
    *("rmsprop", "rprop", "sgd", "sign_sgd", "sm3", "yogi"),
)
_FIRST, _SECOND, _ADAPTIVITY = 0.9, 0.99, 1e-3  # beta_1, beta_2 and tau of Reddi et al., section 5


class Moments(NamedTuple):
    """First and second moments of the drift."""

    first: Params
    second: Params


def _fedadam(second: Array, square: Array) -> Array:
    return _SECOND * second + (1 - _SECOND) * square


def _fedyogi(second: Array, square: Array) -> Array:
    return second - (1 - _SECOND) * square * jnp.sign(second - square)


_ADAPTIVE = {"fedadam": _fedadam, "fedyogi": _fedyogi}


OPTAX = tuple(name for name in _KNOWN if hasattr(optax, name))
OPTIMIZERS = (*_ADAPTIVE, *OPTAX)


def server_optimizer(name: str, step_size: Scalar) -> optax.GradientTransformation:
    """The named optimizer, one of `OPTIMIZERS`; the engine's door refuses other names."""
    return _adaptive(step_size, _ADAPTIVE[name]) if name in _ADAPTIVE else getattr(optax, name)(step_size)


def _adaptive(step_size: Scalar, rule: Callable[[Array, Array], Array]) -> optax.GradientTransformation:
    def init(params: Params) -> Moments:
        return Moments(tree.zeros(params), jax.tree.map(lambda leaf: jnp.full_like(leaf, _ADAPTIVITY**2), params))

    def update(drift: Params, state: Moments, params: Params | None = None) -> tuple[Params, Moments]:
        first = jax.tree.map(lambda old, new: _FIRST * old + (1 - _FIRST) * new, state.first, drift)
        second = jax.tree.map(lambda old, new: rule(old, new**2), state.second, drift)
        updates = jax.tree.map(lambda m, v: -step_size * m / (jnp.sqrt(v) + _ADAPTIVITY), first, second)
        return updates, Moments(first, second)

    return optax.GradientTransformation(init, update)
