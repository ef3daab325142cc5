# SPDX-License-Identifier: Apache-2.0
"""LSGD-PFL (Unified 2023, algorithm 1 corrected by E002-6): local SGD on F = (1/M) sum_m f_m(w, beta_m).

Local step  w_m <- w_m - eta grad_w f_m,  beta_m <- beta_m - (eta/M) grad_beta f_m,  both at (w_m, beta_m; batch);
server      w <- mean_m w_m every tau steps. beta_m never travels.

`step_size` is eta, `local_steps` tau, `shared` w, `personal` beta_m; either block may be absent. As printed, without
1/M on beta, it contracts only for M < 8 at its own step eta = 1 / (4 L^beta). With exact gradients and tau > 1 it stops
near the optimum. `output` "weighted_average" is theorem 1's: (wbar^k, beta^k) for k = 0..K weighted by
(1 - eta mu)^{-k-1}, mu = `strong_convexity`, eta mu < 1; the round's average of w_m goes up as a second model.
Absent clients keep beta_m, which counts in their average as it stands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.algorithms.averaging import Broadcast, ServerState, Upload, share
from idiolect.algorithms.references import UNIFIED
from idiolect.core import NOTHING, Batched, Fit, Method, population, setting, settings, step_key, tree
from idiolect.core.algorithm import Algorithm, beyond_theory
from idiolect.core.data import WEIGHTING, client_weight
from idiolect.core.kinds import Changes, RowReads
from idiolect.core.types import Array, ClientData, Key, Mean, Params, Scalar, StartKeys, Tally
from idiolect.theory.step_sizes import LSGD_PFL


class ClientState(NamedTuple):
    """beta_m; with the weighted average also that of the past beta_m^k, and the rounds it covers."""

    personal: Params
    averaged: Params
    rounds: Any


class Working(NamedTuple):
    """w_m, beta_m and the weighted average of both over the round."""

    shared: Params
    personal: Params
    averaged: Params
    drawn: Array


@settings
class LSGDPFL(Batched[ServerState, ClientState, Broadcast, Working, Upload]):
    """Local SGD on a shared and a personal block, with the step of each at its own scale."""

    changes = Changes({"drift": None, "averaged": "shared"})
    row_reads = RowReads()

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 1 / (4 L), L the larger of F's L^w and L^beta.", doc="step eta"
    )
    output: str = setting(
        default="last", choices=("last", "weighted_average"), doc="last iterates, or theorem 1's average"
    )
    strong_convexity: float = setting(default=0.0, at_least=0, way_out="0 weights all iterates equally.", doc="mu of F")
    weighting: str = setting(default="equal", choices=WEIGHTING, doc="weights of the clients in the mean")

    def fit(self, chance: float = 1.0) -> Fit:
        """Takes any objective; its average needs the same steps on every client."""
        if self._averages and self.epochs and self.batch_size:
            return Fit("its weighted average needs equal steps on all clients; set local_steps instead of epochs")
        return beyond_theory(
            chance, "the paper treats full participation; w is the mean of those present, the absent keep beta_m"
        )

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        shared = self.objective.init_shared(key)
        return ServerState(shared, *((shared, jnp.zeros((), jnp.int32)) if self._averages else ((), ())))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        personal = self.objective.init_personal(keys.own)
        average = (personal, jnp.zeros((), jnp.int32)) if self._averages else ((), ())
        return ClientState(personal, *average), NOTHING

    def carry(self, earlier: Algorithm, server: ServerState, clients: ClientState) -> tuple[ServerState, ClientState]:
        """w and beta_m stay; their averages begin anew, since those of the past belong to another F."""
        if not self._averages:
            return server, clients
        begun = ServerState(server.shared, server.shared, jnp.zeros_like(server.rounds))
        return begun, ClientState(clients.personal, clients.personal, jnp.zeros_like(clients.rounds))

    def broadcast(self, key: Key | None, server: ServerState) -> Broadcast:
        """w."""
        return Broadcast(server.shared, server.rounds)

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Start from w and the client's own beta_m."""
        iterate = (sent.shared, client.personal)
        return Working(*iterate, iterate if self._averages else (), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step on both blocks, from the same point."""
        batch = self.batch(t, working.drawn, data)
        gradients, tally = self.objective.gradients(step_key(key, t), working.shared, working.personal, batch)
        averaged = working.averaged
        if self._averages:  # the iterates before each step
            averaged = tree.toward(averaged, (working.shared, working.personal), share(1, t + 1, self._decay))
        shared = tree.descend(working.shared, self.step_size, gradients[0])
        # 1/M: the gradient of F by beta_m, not of f_m (E002-6)
        personal = tree.descend(working.personal, self.step_size / population(self), gradients[1])
        return Working(shared, personal, averaged, working.drawn), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """The drift of w; beta_m stays."""
        drift, weight = tree.subtract(sent.shared, working.shared), client_weight(self.weighting, data)
        if not self._averages:
            return Upload(drift, (), weight), ClientState(working.personal, (), ()), NOTHING
        rounds, (shared, personal) = sent.rounds + 1, working.averaged
        # the weights (1 - eta mu)^(-k) overflow; a mean that is moved by the newest iterates' part of the weight does
        # not
        averaged = tree.toward(self._caught_up(sent, client), personal, self._share(1, rounds))
        return Upload(drift, shared, weight), ClientState(working.personal, averaged, rounds), NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """w becomes the mean of the clients' copies."""
        shared = tree.subtract(server.shared, received.mean.drift)
        if not self._averages:
            return ServerState(shared, (), ())
        rounds = server.rounds + 1
        averaged = tree.toward(server.averaged, received.mean.averaged, self._share(1, rounds))
        return ServerState(shared, averaged, rounds)

    def shared_model(self, server: ServerState) -> Params | None:
        """What w alone stands for, where that is a whole model."""
        return self.objective.shared_model(self.deliver(None, server).shared)

    def deliver(self, key: Key | None, server: ServerState) -> Broadcast:
        """w, or its weighted average up to and including now."""
        if not self._averages:
            return self.broadcast(key, server)
        # theorem 1 counts the last iterate, after which no step was taken, as well
        return Broadcast(self._with_current(server.averaged, server.shared, server.rounds), server.rounds)

    def point(self, sent: Broadcast, client: ClientState) -> tuple[Params, Params]:
        """w and beta_m, or their weighted averages."""
        personal = client.personal
        if self._averages:
            personal = self._with_current(self._caught_up(sent, client), personal, sent.rounds)
        return sent.shared, personal

    @property
    def _averages(self) -> bool:
        return self.output == "weighted_average"

    @property
    def _decay(self) -> Scalar:
        return self.step_size * self.strong_convexity

    @property
    def _steps(self) -> int:
        """Of every client in a round: `fit` has refused epochs of batches, whose number follows the client's rows."""
        return self.epochs or self.local_steps

    def _share(self, new_rounds: Array | int, rounds: Array) -> Array:
        return share(new_rounds * self._steps, rounds * self._steps, self._decay)

    def _caught_up(self, sent: Broadcast, client: ClientState) -> Params:
        """The client's average as it stands at `sent`: in the rounds it missed, beta_m stood still."""
        return tree.toward(client.averaged, client.personal, self._share(sent.rounds - client.rounds, sent.rounds))

    def _with_current(self, averaged: Params, current: Params, rounds: Array) -> Params:
        return tree.toward(averaged, current, share(1, rounds * self._steps + 1, self._decay))


_SUMMARY = "local SGD on a shared and a personal block"
_ERRATA = ("E002-6", "E002-13", "E002-10")
METHODS = {"lsgd_pfl": Method(LSGDPFL, "additive", {}, UNIFIED, _SUMMARY, theory=LSGD_PFL, errata=_ERRATA)}
