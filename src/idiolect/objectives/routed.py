# SPDX-License-Identifier: Apache-2.0
"""A plain loss seen through routes: f'_m of outputs that mix a shared and a local version of every routed layer."""

from __future__ import annotations

import dataclasses
from typing import Any

from idiolect.core.types import Array, Batch, Key, Params
from idiolect.models.routed_pass import RoutedModel
from idiolect.models.routing_net import Shares
from idiolect.objectives.client_loss import ClientLoss


@dataclasses.dataclass(frozen=True)
class RoutedLoss:
    """f'_m(w_p), where w_p is made of w (shared), the local versions of its routed layers, and shares of both.

    An l2 term is that of the parameters in training: w's, or those of the local version.
    """

    client_loss: ClientLoss
    routes: RoutedModel

    @property
    def names(self) -> tuple[str, ...]:
        """What each exit routes."""
        return self.routes.names

    def init_routing(self, key: Key) -> Params:
        """A start for psi."""
        return self.routes.net.init(key)

    def start_local(self, shared: Params) -> Params:
        """The routed layers as they stand in w."""
        return self.routes.local(shared)

    def local_value(self, key: Key, shared: Params, local: Params, batch: Batch) -> Array:
        """The loss where every routed layer is local."""
        outputs = self.routes.alone(shared, local, batch.inputs, key)
        return self.client_loss.value_of(outputs, local, batch)

    def mixed_value(self, key: Key, routing: Params, shared: Params, local: Params, batch: Batch) -> tuple[Any, Shares]:
        """The loss of the mixture, and its shares."""
        outputs, shares = self.routes.soft(routing, shared, local, batch.inputs, key)
        return self.client_loss.value_of(outputs, shared, batch), shares

    def predict_mixed(self, routing: Params, shared: Params, local: Params, inputs: Array) -> tuple[Any, Shares]:
        """What the mixture answers, and its shares."""
        outputs, shares = self.routes.soft(routing, shared, local, inputs)
        return self.client_loss.answer(outputs), shares

    def predict_chosen(self, routing: Params, shared: Params, local: Params, inputs: Array) -> tuple[Any, Shares]:
        """What the model answers whose every layer is the version that psi prefers, and psi's shares."""
        outputs, shares = self.routes.hard(routing, shared, local, inputs)
        return self.client_loss.answer(outputs), shares
