# SPDX-License-Identifier: Apache-2.0
"""Local training: every client alone, the baseline that tells whether learning together helps.

Local step  v_m <- v_m - eta grad f_m(v_m; batch),  K times per round, from where the last round ended.

`step_size` is eta, `personal` v_m. A round only paces the records: no byte goes down or up, and each client
draws its own start. A baseline of PLSGD 2023 and Flow 2023.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.algorithms.references import MCMAHAN
from idiolect.algorithms.tuples import ClientState
from idiolect.algorithms.tuples import OwnWorking as Working
from idiolect.core import NOTHING, Batched, Fit, Method, setting, settings, step_key, tree
from idiolect.core.reduction import nothing
from idiolect.core.types import Array, ClientData, Key, Mean, PerClient, StartKeys, Tally
from idiolect.theory.step_sizes import LOCAL_SGD


class ServerState(NamedTuple):
    """There is no server."""


class Broadcast(NamedTuple):
    """Nothing goes down."""


class Upload(NamedTuple):
    """Nothing goes up: every reduction reads a weight."""

    weight: Array


@settings
class Local(Batched[ServerState, ClientState, Broadcast, Working, Upload]):
    """SGD on each client's own rows, without communication."""

    carries_statistics = True
    reduction = nothing  # no byte in either direction

    step_size: float | PerClient = setting(
        default=0.1, above=0, way_out="Try 0.1, or 1/L for an L-smooth loss.", doc="step eta"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a personal block and nothing else."""
        alone = self.objective.has_personal and not self.objective.has_shared
        why = "it trains every client alone and has no shared block; use the local_only objective"
        return Fit(None if alone else why)

    def init_server(self, key: Key) -> ServerState:
        """Nothing."""
        return ServerState()

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        return ClientState(self.objective.init_personal(keys.own)), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """Nothing."""
        return Broadcast()

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Continue from the client's own model."""
        return Working(client.personal, self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step."""
        batch = self.batch(t, working.drawn, data)
        gradient, tally = self.objective.gradient_personal(step_key(key, t), (), working.personal, batch)
        step_size: Any = self.step_size  # a client sees its own, never the PerClient around it
        return working._replace(personal=tree.descend(working.personal, step_size, gradient)), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """Keep the model."""
        return Upload(jnp.ones(())), ClientState(working.personal), NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """Nothing."""
        return server


METHODS = {"local": Method(Local, "local_only", {}, MCMAHAN, "every client alone, nothing sent", theory=LOCAL_SGD)}
