# SPDX-License-Identifier: Apache-2.0
"""Personalized local SGD (PLSGD 2023, algorithm 1): a shared model and a correction per client, one gradient.

Local step  theta_m <- theta_m - alpha eta grad_theta f_m,  w_m <- w_m - eta grad_w f_m,  K times from w_m = w;
server      w <- w + beta mean_m (w_m - w). theta_m never travels.

`step_size` is eta, `server_step_size` beta, `personal_step_scale` the paper's alpha, `shared` w, `personal` theta_m.
alpha = 0 is local SGD bit for bit. Stable on a common Hessian h iff (alpha + beta)(1 - nu^K) < 2 (1 + alpha) with
nu = 1 - eta (1 + alpha) h (E000-4). `output`: "last" (the paper's I) w + theta_m; "mean_of_means" (II) the mean over
past t of wbar_t + theta_m,t, for which the round's mean of w_m goes up as a second model; "own_mean" (III) the mean
of w_m,t + theta_m,t over the client's own steps. Absent clients keep theta_m, which counts in II as it stands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.algorithms.averaging import Broadcast, ServerState, Upload, share
from idiolect.algorithms.references import PLSGD
from idiolect.core import NOTHING, WEIGHTING, Batched, Method, Models, client_weight, setting, settings, step_key, tree
from idiolect.core.types import Array, Changes, ClientData, Fit, Key, Mean, Params, RowReads, StartKeys, Tally
from idiolect.theory.step_sizes import PERSONALIZED_LOCAL_SGD

OUTPUTS = ("last", "mean_of_means", "own_mean")


class ClientState(NamedTuple):
    """theta_m; for a mean output also the mean so far, and the rounds (II) or own steps (III) it covers."""

    personal: Params
    averaged: Params
    covered: Any


class Working(NamedTuple):
    """w_m, theta_m; the round's mean of both (II), or the client's mean model and its steps (III)."""

    shared: Params
    personal: Params
    averaged: Params
    covered: Any
    drawn: Array


@settings
class PersonalizedLocalSGD(Batched[ServerState, ClientState, Broadcast, Working, Upload]):
    """Local SGD in which every client also keeps a correction of its own."""

    changes = Changes({"drift": None, "averaged": "shared"})
    row_reads = RowReads()

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 1 / (4 L) for an L-smooth loss.", doc="inner step eta"
    )
    server_step_size: float = setting(
        default=1.0, at_least=0, way_out="1 averages the clients' models.", doc="outer step beta"
    )
    personal_step_scale: float = setting(
        default=1.0,
        at_least=0,
        way_out="0 is local SGD, 1 moves both blocks alike.",
        doc="the paper's alpha",
        strengths=(0.1, 0.3, 1.0, 3.0),
    )
    output: str = setting(default="last", choices=OUTPUTS, doc="the paper's options I, II and III")
    weighting: str = setting(default="equal", choices=WEIGHTING, doc="weights of the clients in the mean")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs both blocks."""
        both = self.objective.has_shared and self.objective.has_personal
        return Fit(None if both else "it trains a shared and a personal block; use the additive objective")

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        shared = self.objective.init_shared(key)
        return ServerState(shared, *((shared, jnp.zeros((), jnp.int32)) if self._means else ((), ())))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        personal = self.objective.init_personal(keys.own)
        if self.output == "last":
            return ClientState(personal, (), ()), NOTHING
        averaged = personal if self._means else self.objective.deployed(self.objective.init_shared(keys.own), personal)
        return ClientState(personal, averaged, jnp.zeros((), jnp.int32)), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """w."""
        return Broadcast(server.shared, server.rounds)

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Start from w and the client's own theta_m."""
        iterate = (sent.shared, client.personal)
        # II averages this round anew and sends its part of w; III goes on with the client's own mean of all its steps
        averaged, covered = (iterate, 0) if self._means else (client.averaged, client.covered)
        return Working(*iterate, averaged, covered, self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient, one step on each block."""
        shared, personal, averaged, covered, drawn = working
        batch = self.batch(t, drawn, data)
        (shared_gradient, personal_gradient), tally = self.objective.gradients(
            step_key(key, t), shared, personal, batch
        )
        if self.output != "last":  # the iterates before each step
            iterate = (shared, personal) if self._means else self.objective.deployed(shared, personal)
            # a running mean: nothing grows with the number of steps, and no sum loses digits
            averaged = tree.toward(averaged, iterate, share(1, covered + t + 1, 0.0))
        shared = tree.descend(shared, self.step_size, shared_gradient)
        # both blocks step from the same point, so that alpha = 0 is local SGD bit for bit
        personal = tree.descend(personal, self.personal_step_scale * self.step_size, personal_gradient)
        return Working(shared, personal, averaged, covered, drawn), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """The drift of w; theta_m stays."""
        averaged, covered, round_mean = working.averaged, working.covered, ()
        if self._means:
            covered, (round_mean, personal) = sent.rounds + 1, averaged
            averaged = tree.toward(self._caught_up(sent, client), personal, share(1, covered, 0.0))
        elif self.output == "own_mean":
            covered = covered + self.steps(sent, data.count)
        drift = tree.subtract(sent.shared, working.shared)
        upload = Upload(drift, round_mean, client_weight(self.weighting, data))
        return upload, ClientState(working.personal, averaged, covered), NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """w moves along the mean drift."""
        shared = tree.descend(server.shared, self.server_step_size, received.mean.drift)
        if not self._means:
            return ServerState(shared, (), ())
        rounds = server.rounds + 1
        return ServerState(shared, tree.toward(server.averaged, received.mean.averaged, share(1, rounds, 0.0)), rounds)

    def shared_model(self, server: ServerState) -> Params | None:
        """What w, or its mean, alone stands for, where that is a whole model."""
        return self.objective.shared_model(self.deliver(None, server).shared)

    def deliver(self, key: Key | None, server: ServerState) -> Broadcast:
        """w, or its mean."""
        return Broadcast(server.averaged if self._means else server.shared, server.rounds)

    def models(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Models, Tally]:
        """The chosen output; before its first round a client's own mean is where it would start."""
        models, tally = super().models(key, sent, client, data)
        if self.output == "own_mean":
            models = Models(tree.choose(client.covered > 0, client.averaged, models.personal))
        return models, tally

    def point(self, sent: Broadcast, client: ClientState) -> tuple[Params, Params]:
        """w and theta_m, or their means; a mean of models is not a point of its own."""
        return sent.shared, self._caught_up(sent, client) if self._means else client.personal

    @property
    def _means(self) -> bool:
        return self.output == "mean_of_means"

    def _caught_up(self, sent: Broadcast, client: ClientState) -> Params:
        """The mean of theta_m as it stands at `sent`: in the rounds missed, theta_m stood still."""
        # the server's mean of w counts those rounds, too: both means must cover the same ones before they are added
        missed = share(sent.rounds - client.covered, sent.rounds, 0.0)
        return tree.toward(client.averaged, client.personal, missed)


_SUMMARY = "a shared model plus a correction per client"
_ERRATA = ("E000-1", "E000-2", "E000-3", "E000-4", "E000-5", "E000-6")
METHODS = {
    "personalized_local_sgd": Method(
        PersonalizedLocalSGD, "additive", {}, PLSGD, _SUMMARY, theory=PERSONALIZED_LOCAL_SGD, errata=_ERRATA
    )
}
