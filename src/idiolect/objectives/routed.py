# SPDX-License-Identifier: Apache-2.0
"""A plain loss seen through routes: f'_m of outputs that mix a shared and a local version of every routed layer."""

from __future__ import annotations

import dataclasses
from typing import Any

from idiolect.core.data import Batch
from idiolect.core.keys import Key
from idiolect.core.tree import Params
from idiolect.models.routing import RoutedModel
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

    def margins(self, routing: Params, inputs: Any) -> Any:
        """log q_0 - log q_1, one per exit on the last axis."""
        return self.routes.net.margins(routing, inputs)

    def local_value(self, key: Key, shared: Params, local: Params, batch: Batch) -> Any:
        """The loss where every routed layer is local."""
        outputs = self.routes.alone(shared, local, batch.inputs, key)
        return self.client_loss.value_of(outputs, local, batch)

    def mixed_value(self, key: Key, shares: tuple[Any, Any], shared: Params, local: Params, batch: Batch) -> Any:
        """The loss of the mixture."""
        outputs = self.routes.mixed(shares, shared, local, batch.inputs, key)
        return self.client_loss.value_of(outputs, shared, batch)

    def predict_mixed(self, shares: tuple[Any, Any], shared: Params, local: Params, inputs: Any) -> Any:
        """What the mixture answers."""
        return self.client_loss.answer(self.routes.mixed(shares, shared, local, inputs))

    def predict_chosen(self, picked: Any, shared: Params, local: Params, inputs: Any) -> Any:
        """What the model answers whose every layer is shared where `picked` holds, else local."""
        return self.client_loss.answer(self.routes.chosen(picked, shared, local, inputs))
