# SPDX-License-Identifier: Apache-2.0
"""Client optimizers by name: plain steps, heavy-ball momentum of 0.9, or one of optax.

`momentum` is m <- 0.9 m + g, w <- w - eta m, as released code of several papers trains clients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import optax

from idiolect.algorithms.server_optimizer import OPTAX
from idiolect.core import tree
from idiolect.core.statistics import replace_running, trained
from idiolect.core.types import Params, Scalar

PLAIN, MOMENTUM = "sgd", "momentum"
CLIENT_OPTIMIZERS = (PLAIN, MOMENTUM, *(name for name in OPTAX if name != PLAIN))


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
