# SPDX-License-Identifier: Apache-2.0
"""Optimizers by name, of the server and of clients: those of optax, and a few as papers and released code have them.

With drift g, m <- 0.9 m + 0.1 g and w <- w - step_size m / (sqrt(v) + tau); v starts at tau^2, tau = 1e-3, without
bias correction: `fedadam` v <- 0.99 v + 0.01 g^2, `fedyogi` v <- v - 0.01 g^2 sign(v - g^2) (Reddi et al. 2021). A
client's `momentum` is m <- 0.9 m + g, w <- w - eta m.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from idiolect.core import tree
from idiolect.core.statistics import replace_running, trained
from idiolect.core.types import Params, Scalar

# Those of optax whose one needed setting is the learning rate; its schedules, clips and chains are no optimizers.
_KNOWN = (
    *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad"),
    *("fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_gradient_descent", "radam"),
    *("rmsprop", "rprop", "sgd", "sign_sgd", "sm3", "yogi"),
)
_FIRST, _SECOND, _ADAPTIVITY = 0.9, 0.99, 1e-3  # beta_1, beta_2 and tau of Reddi et al., section 5
_ADAPTIVE = {  # the next v, from v and g^2
    "fedadam": lambda second, square: _SECOND * second + (1 - _SECOND) * square,
    "fedyogi": lambda second, square: second - (1 - _SECOND) * square * jnp.sign(second - square),
}
OPTAX = tuple(name for name in _KNOWN if hasattr(optax, name))
OPTIMIZERS = (*_ADAPTIVE, *OPTAX)
PLAIN, MOMENTUM = "sgd", "momentum"
CLIENT_OPTIMIZERS = (PLAIN, MOMENTUM, *(name for name in OPTAX if name != PLAIN))


class ServerState(NamedTuple):
    """The shared block and the server optimizer's memory."""

    shared: Params
    optimizer: Any


class Moments(NamedTuple):
    """First and second moments of the drift."""

    first: Params
    second: Params


def server_optimizer(name: str, step_size: Scalar) -> optax.GradientTransformation:
    """The named optimizer, one of `OPTIMIZERS`; the engine's door refuses other names."""
    return _adaptive(step_size, name) if name in _ADAPTIVE else getattr(optax, name)(step_size)


def _adaptive(step_size: Scalar, name: str) -> optax.GradientTransformation:
    def init(params: Params) -> Moments:
        return Moments(tree.zeros(params), jax.tree.map(lambda leaf: jnp.full_like(leaf, _ADAPTIVITY**2), params))

    def update(drift: Params, state: Moments, params: Params | None = None) -> tuple[Params, Moments]:
        first = jax.tree.map(lambda old, new: _FIRST * old + (1 - _FIRST) * new, state.first, drift)
        second = jax.tree.map(lambda old, new: _ADAPTIVE[name](old, new**2), state.second, drift)
        updates = jax.tree.map(lambda m, v: -step_size * m / (jnp.sqrt(v) + _ADAPTIVITY), first, second)
        return updates, Moments(first, second)

    return optax.GradientTransformation(init, update)


class Descent(NamedTuple):
    """How a client steps; a plain step has nothing to remember."""

    name: str  # one of CLIENT_OPTIMIZERS; the engine's door refuses others
    step_size: Scalar

    def start(self, params: Params) -> Any:
        """The memory before the first step."""
        return () if self.name == PLAIN else self._rule.init(params)

    def step(self, params: Params, memory: Any, gradient: Params) -> tuple[Params, Any]:
        """The next parameters and memory."""
        plain = tree.descend(params, self.step_size, gradient)
        if self.name == PLAIN:
            return plain, memory
        updates, memory = self._rule.update(trained(gradient), memory, params)
        return replace_running(tree.add(params, updates), plain), memory  # statistics take their change whole

    @property
    def _rule(self) -> optax.GradientTransformation:
        if self.name == MOMENTUM:
            return optax.sgd(self.step_size, momentum=0.9)
        rule: optax.GradientTransformation = getattr(optax, self.name)(self.step_size)
        return rule
