# SPDX-License-Identifier: Apache-2.0
"""pFedMe (Dinh et al. 2020; a baseline of Unified 2023): local SGD on Moreau envelopes.

It minimises mean_m min_theta f'_m(theta) + (lam/2) |theta - w|^2, which is MX2 with every beta_m solved for. A round
starts at w_m = w and makes R outer iterations, on one batch each; then the server moves:

    K times  theta_m <- theta_m - a (grad f'_batch(theta_m) + lam (theta_m - w_m))
    once     w_m <- w_m - eta lam (w_m - theta_m)
    server   w <- (1 - b) w + b mean_m w_m

`local_steps` is R, `inner_steps` K, `inner_step` a (theory: 1 / (Lc' + lam)), `step_size` eta, `server_step_size` b,
lam the objective's penalty; w, in model units, is `shared`, and theta_m, the personal model, is `personal`. Defaults
follow the text of Unified 2023 (its code draws 20 rows, E002-12 viii): theta_m starts at w and persists, clients weigh
equally. The authors' code starts theta_m at w every round (`restart`), weighs clients by rows, and decays theta_m by a
weight that it does not document: not here. With R > 1 it stops near the optimum, at a distance that falls with eta.
"""

from __future__ import annotations

import dataclasses

from jax.typing import ArrayLike

from idiolect.algorithms.tuples import Broadcast, ClientState, ServerState, Upload, Working
from idiolect.core import NOTHING, Algorithm, Changes, Fit, Method, RowReads, batches, setting, settings, step_key, tree
from idiolect.core.control import repeat
from idiolect.core.data import WEIGHTING, client_weight
from idiolect.core.objective import Mixture
from idiolect.core.types import Array, Batch, ClientData, Key, Mean, Params, StartKeys, Tally
from idiolect.theory.solver_rules import PFEDME


@settings
class PFedMe(Algorithm[ServerState, ClientState, Broadcast, Working, Upload]):
    """A shared model at the centre of personal ones, each found by a proximal problem of its own."""

    changes = Changes({"drift": None})
    row_reads = RowReads(exact="it takes several steps on the rows of one batch")

    objective: Mixture = dataclasses.field(kw_only=False)
    local_steps: int = setting(default=20, at_least=1, doc="outer iterations per round (R)")
    batch_size: int = setting(default=5, at_least=0, doc="rows per outer iteration; 0: all rows, exact gradients")
    step_size: float = setting(default=0.005, above=0, doc="outer step eta")
    inner_step: float = setting(default=None, above=0, theory=True, doc="inner step a")
    inner_steps: int = setting(default=5, at_least=1, doc="inner steps per outer iteration (K)")
    server_step_size: float = setting(default=1.0, above=0, way_out="1 averages the clients' models.", doc="step b")
    restart: bool = setting(default=False, doc="theta_m starts from w every round instead of where it stood")
    weighting: str = setting(default="equal", choices=WEIGHTING, doc="weights of the clients in the mean")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs the mixture objective."""
        mixture = isinstance(self.objective, Mixture)
        return Fit(None if mixture else "its proximal problems are those of the mx2 objective; use that")

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        return ServerState(self.objective.to_model(self.objective.init_shared(key)))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """The objective's start."""
        return ClientState(self.objective.init_personal(keys.common)), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """w."""
        return Broadcast(server.shared)

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Start from w, and from theta_m or w."""
        start = sent.shared if self.restart else client.personal
        return Working(sent.shared, ClientState(start), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One outer iteration: solve for theta_m, then move w_m toward it."""
        batch = batches.take_drawn(data, working.drawn, t) if self.batch_size else data.batch()
        personal, tally = self._solve(step_key(key, t), working.shared, working.own.personal, batch)
        apart = tree.subtract(working.shared, personal)
        # lam (w_m - theta_m) is the gradient of the Moreau envelope where theta_m solves the proximal problem
        shared = tree.descend(working.shared, self.step_size * self.objective.penalty, apart)
        return Working(shared, ClientState(personal), working.drawn), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """The drift of w; theta_m stays."""
        weight = client_weight(self.weighting, data)
        return Upload(tree.subtract(sent.shared, working.shared), weight), working.own, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """w moves toward, to or beyond the mean of the clients' copies."""
        return ServerState(tree.descend(server.shared, self.server_step_size, received.mean.drift))

    def shared_model(self, server: ServerState) -> Params | None:
        """w."""
        return server.shared

    def point(self, sent: Broadcast, client: ClientState) -> tuple[Params, Params]:
        """w as the objective stores it, and theta_m."""
        return self.objective.from_model(sent.shared), client.personal

    def steps(self, sent: Broadcast, rows: Array) -> int:
        """R."""
        return self.local_steps

    def draw_batches(self, key: Key, data: ClientData) -> Params:
        """The rows of each outer iteration; empty when all use all rows."""
        drawn = self.local_steps, self.batch_size
        return batches.draw_with_replacement(key, *drawn, data) if self.batch_size else ()

    def _solve(self, key: Key, shared: Params, start: Params, batch: Batch) -> tuple[Params, Tally]:
        """K gradient steps on f'_batch(theta) + (lam/2) |theta - w_m|^2."""
        stored = self.objective.from_model(shared)

        def inner(k: ArrayLike, personal: Params) -> tuple[Params, Tally]:
            gradient, cost = self.objective.gradient_personal(step_key(key, k), stored, personal, batch)
            return tree.descend(personal, self.inner_step, gradient), cost

        # the first step stands outside of the loop and tells what each of them costs
        moved, cost = inner(0, start)
        solved = repeat(self.inner_steps - 1, lambda k, personal: inner(k + 1, personal)[0], moved)
        return solved, cost.times(self.inner_steps).plus(Tally(proximal=1))


_DINH = "T. Dinh, Tran and Nguyen 2020, Personalized federated learning with Moreau envelopes"
_SUMMARY = "a shared model learnt from proximal steps toward personal ones"
METHODS = {"pfedme": Method(PFedMe, "mx2", {}, _DINH, _SUMMARY, theory=PFEDME, errata=("E002-12",))}
