# SPDX-License-Identifier: Apache-2.0
"""SCD-PFL (Unified 2023, algorithm 6): block-coordinate descent on single components, the shared block by message.

    draw a component j; with probability p_w (one round):  w <- w - (eta/p_w) mean_m grad_w f_mj(w, beta_m)
    otherwise:                                  beta_m <- beta_m - (eta/(p_beta M)) grad_beta f_mj(w, beta_m)

`step_size` is eta, `shared_probability` p_w. w stands still between messages, so it simply goes down. Stops at a noise
floor that shrinks with eta. With absent clients it stays unbiased: w takes the mean over a uniform cohort, and a client
that is there divides its own step by P(present), `participation`, filled in by the engine.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from idiolect.algorithms import schedule
from idiolect.algorithms.references import UNIFIED
from idiolect.algorithms.schedule import Broadcast, Scheduled, Upload
from idiolect.algorithms.tuples import ClientState, ServerState
from idiolect.algorithms.tuples import OwnWorking as Working
from idiolect.core import NOTHING, Fit, Method, RowReads, beyond_theory, population, setting, settings, step_key, tree
from idiolect.core.types import Array, Changes, ClientData, Key, Mean, Scalar, StartKeys, Tally
from idiolect.theory.solver_rules import SCD_PFL


@settings
class SCDPFL(Scheduled[ClientState, Working, Upload]):
    """Plain stochastic descent on one block at a time."""

    changes = Changes({"gradient": None}, unbiased="its steps need gradients that are right in the mean")
    row_reads = RowReads(exact="it takes gradients at several points on the same rows")

    batch_size: int = setting(default=1, at_least=0, doc="components per iteration; 0: all, exact gradients")
    step_size: float = setting(default=None, above=0, theory=True, doc="step eta")
    shared_probability: float = setting(
        default=None, above=0, at_most=1, theory=True, doc="p_w, the chance that an iteration samples w"
    )
    participation: float = setting(
        default=1.0, above=0, at_most=1, doc="P(present), the chance of a client to be in a round; from the engine"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a block to send; which components it draws is its own affair."""
        if not self.objective.has_shared:
            return Fit("without a shared block there is nothing to send; local trains every client alone")
        if not self.objective.keeps_convexity:
            return Fit("it needs a convex objective, which this one is not even for convex losses; lsgd_pfl takes it")
        return beyond_theory(
            chance, "the paper treats full participation; the estimators stay unbiased over uniform cohorts"
        )

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        return ClientState(self.objective.init_personal(keys.own)), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """w and the schedule."""
        drawn = schedule.iterations_before_message(key, self._probability) if self.objective.has_personal else ()
        return Broadcast(server.shared, drawn)

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """The client's own beta_m."""
        return Working(client.personal, schedule.no_rows(self.batch_size)), NOTHING

    def steps(self, sent: Broadcast, rows: Any) -> Any:
        """The drawn iterations on beta."""
        return sent.iterations if self.objective.has_personal else 0

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One iteration that samples beta."""
        drawn, batch = schedule.rows_ahead(key, t, working.drawn, self.batch_size, data)
        gradient, tally = self.objective.gradient_personal(step_key(key, t), sent.shared, working.personal, batch)
        step = self.step_size / ((1 - self._probability) * self.participation * population(self))
        return Working(tree.descend(working.personal, step, gradient), drawn), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """One component's gradient of w; beta_m stays."""
        batch = schedule.one_batch(key, self.batch_size, data)
        gradient, tally = self.objective.gradient_shared(key, sent.shared, working.personal, batch)
        return Upload(gradient, jnp.ones(())), ClientState(working.personal), tally

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """One step on w."""
        return ServerState(tree.descend(server.shared, self.step_size / self._probability, received.mean.gradient))

    @property
    def _probability(self) -> Scalar:
        return self.shared_probability if self.objective.has_personal else 1.0


METHODS = {"scd_pfl": Method(SCDPFL, "mx2", {}, UNIFIED, "block descent on single rows; to a floor", theory=SCD_PFL)}
