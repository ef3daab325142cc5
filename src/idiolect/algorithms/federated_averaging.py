# SPDX-License-Identifier: Apache-2.0
"""What methods that average a shared block have in common: clients walk away from w, the server follows their mean.

server      w <- w + beta mean_m (w_m - w),  the mean over the cohort, clients weighing equally or by rows.

`step_size` is the local steps' eta, `server_step_size` beta. With another `server_optimizer` than sgd the mean drift
w - mean_m w_m is its gradient and beta its learning rate.
"""

from __future__ import annotations

import abc
from typing import Any

import optax

from idiolect.algorithms.local_steps import LocalSteps
from idiolect.algorithms.optimizers import OPTIMIZERS, ServerState, server_optimizer
from idiolect.algorithms.tuples import Broadcast, Upload, Working
from idiolect.core import NOTHING, WEIGHTING, Changes, Fit, Models, client_weight, setting, settings, step_key, tree
from idiolect.core.algorithm import Client
from idiolect.core.algorithm import Working as Worked
from idiolect.core.objective import Adapting
from idiolect.core.statistics import replace_running, trained
from idiolect.core.types import Array, ClientData, Key, Mean, Params, Tally


@settings
class FederatedAveraging(LocalSteps[ServerState, Client, Broadcast, Worked, Any]):
    """A shared block, averaged: plain local steps unless told otherwise; still abstract."""

    changes = Changes({"drift": None})

    server_optimizer: str = setting(
        default="sgd", choices=OPTIMIZERS, doc="any optax optimizer, by name; it sees the mean drift as a gradient"
    )
    weighting: str = setting(default="equal", choices=WEIGHTING, doc="weights of the clients in the mean")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block, and an objective that leaves personal models to the method."""
        if isinstance(self.objective, Adapting):
            return Fit("it makes personal models itself, without a step at evaluation; use the global_model objective")
        return super().fit(chance)

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        shared = self.objective.init_shared(key)
        return ServerState(shared, self.optimizer.init(shared))

    def broadcast(self, key: Key, server: ServerState) -> Any:
        """The shared block."""
        return Broadcast(server.shared)

    def receive(self, key: Key, sent: Any, client: Any, data: ClientData) -> tuple[Any, Tally]:
        """Start from w; what the client keeps stands beside it."""
        return Working(sent.shared, client, self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Any, working: Any, data: ClientData) -> tuple[Any, Tally]:
        """One gradient step on w_m."""
        batch = self.batch(t, working.drawn, data)
        gradient, tally = self.objective.gradient_shared(step_key(key, t), working.shared, (), batch)
        return working._replace(shared=tree.descend(working.shared, self.step_size, gradient)), tally

    def send(self, key: Key, sent: Any, working: Any, client: Any, data: ClientData) -> tuple[Any, Any, Tally]:
        """The drift of w_m; what the client keeps stays."""
        return self.upload(sent, working.shared, data), working.own, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Any, received: Mean) -> ServerState:
        """One step of the server optimizer along the mean drift."""
        return self.follow(server, received.mean.drift)

    @abc.abstractmethod
    def models(self, key: Key, sent: Any, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """What client m predicts with."""

    def personalized(self, key: Key, model: Params, data: ClientData) -> tuple[Models, Tally]:
        """What the objective makes of a model that is the client's own."""
        personal, tally = self.objective.personalize(key, model, (), data.batch())
        return Models(personal), tally

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The server's."""
        return server_optimizer(self.server_optimizer, self.server_step_size)

    def follow(self, server: ServerState, drift: Params) -> ServerState:
        """The server after one step along `drift`; running statistics become the mean of the clients'."""
        updates, optimizer = self.optimizer.update(trained(drift), server.optimizer, server.shared)
        moved = tree.add(server.shared, updates)
        # running statistics are no parameters: an optimizer would scale them, and with momentum carry them past the
        # mean
        return ServerState(replace_running(moved, tree.subtract(server.shared, drift)), optimizer)

    def upload(self, sent: Any, shared: Params, data: ClientData) -> Upload:
        """The way from what was sent to `shared`, at this client's weight."""
        return Upload(tree.subtract(sent.shared, shared), client_weight(self.weighting, data))
