# SPDX-License-Identifier: Apache-2.0
"""Local SGD and its close relatives: FedAvg, FedProx, FedAvg + fine-tuning, server optimizers.

Local step  w_m <- w_m - eta (grad f_m(w_m; batch) + mu (w_m - w)),  K times from w_m = w;
server      w <- w + beta mean_m (w_m - w)   (any optax optimizer may take the mean drift as its gradient).

`step_size` is eta, `server_step_size` beta, `proximal` mu. Paper 000 (algorithm 2) weights clients equally,
FedAvg (McMahan et al. 2017) by their rows, FedProx (Li et al. 2020) adds the proximal term.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from idiolect.algorithms.fine_tuning import fine_tune
from idiolect.algorithms.server_optimizer import OPTIMIZERS, server_optimizer
from idiolect.algorithms.weighting import WEIGHTING, client_weight
from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import setting
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, step_key
from idiolect.core.settings import settings
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params


class ServerState(NamedTuple):
    """The shared model and the server optimizer's memory."""

    shared: Params
    optimizer: Any


class ClientState(NamedTuple):
    """What the objective prepared; a client that has nothing to prepare keeps nothing."""

    prepared: Params


class Broadcast(NamedTuple):
    """The shared model goes down."""

    shared: Params


class Working(NamedTuple):
    """A client's copy of the shared model, and what it prepared."""

    shared: Params
    prepared: Params
    drawn: Any


class Upload(NamedTuple):
    """Start minus end of the local work goes up."""

    drift: Params
    weight: Any


@settings
class LocalSGD(Algorithm):
    """Local SGD with inner and outer steps."""

    takes_prepared = True

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 0.1, or 1/L for an L-smooth loss.", doc="inner step eta"
    )
    server_step_size: float = setting(
        default=1.0, above=0, way_out="1 averages the clients' models.", doc="outer step beta"
    )
    server_optimizer: str = setting(
        default="sgd", choices=OPTIMIZERS, doc="any optax optimizer, by name; it sees the mean drift as a gradient"
    )
    weighting: str = setting(default="equal", choices=WEIGHTING, doc="weights of the clients in the mean")
    proximal: float | None = setting(default=None, at_least=0, doc="FedProx's mu; unset: no proximal term")
    fine_tuning_steps: int = setting(default=0, at_least=0, doc="personal model: local steps from the shared model")
    fine_tuning_step_size: float | None = setting(default=None, above=0, doc="their step; unset: step_size")

    def skip(self) -> str | None:
        """Needs a shared block and nothing else."""
        if not self.objective.has_shared or self.objective.has_personal:
            return "it trains one shared model; use the global_model objective"
        return None

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        shared = self.objective.init_shared(key)
        return ServerState(shared, self._optimizer().init(shared))

    def init_client(self, key: Key, data: ClientData) -> tuple[Any, Tally]:
        """What the objective prepares, if anything."""
        if not self.objective.prepares:
            return (), NOTHING
        prepared, tally = self.objective.prepare(key, data)
        return ClientState(prepared), tally

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """The shared model."""
        return Broadcast(server.shared)

    def receive(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """Start from the shared model."""
        return Working(sent.shared, _prepared(client), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Any, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step."""
        batch = self.batch(t, working.drawn, data)
        slope, tally = self.objective.gradient_shared(step_key(key, t), working.shared, working.prepared, batch)
        if self.proximal is not None:
            slope = tree.add(slope, tree.scale(self.proximal, tree.subtract(working.shared, sent.shared)))
        return working._replace(shared=tree.descend(working.shared, self.step_size, slope)), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: Any, data: ClientData
    ) -> tuple[Upload, Any, Tally]:
        """The drift."""
        drift = tree.subtract(sent.shared, working.shared)
        return Upload(drift, client_weight(self.weighting, data)), client, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Any) -> ServerState:
        """One step of the server optimizer along the mean drift."""
        updates, optimizer = self._optimizer().update(received.mean.drift, server.optimizer, server.shared)
        return ServerState(tree.add(server.shared, updates), optimizer)

    def shared_model(self, server: ServerState) -> Params:
        """w."""
        return server.shared

    def personal_model(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Params, Tally]:
        """What the objective makes of w, after fine-tuning on the client's own training rows if asked for."""
        step_size = self.step_size if self.fine_tuning_step_size is None else self.fine_tuning_step_size
        steps, own = self.fine_tuning_steps, _prepared(client)
        tuned, spent = fine_tune(self, key, sent.shared, own, data, steps=steps, step_size=step_size)
        model, more = self.objective.personalize(key, tuned, own, data.batch())
        return model, spent.plus(more)

    def _optimizer(self) -> Any:
        return server_optimizer(self.server_optimizer, self.server_step_size)


def _prepared(client: Any) -> Params:
    return getattr(client, "prepared", ())
