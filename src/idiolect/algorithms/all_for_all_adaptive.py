# SPDX-License-Identifier: Apache-2.0
"""Time-adaptive all-for-all (2022, algorithm 2): finer accuracies, and smaller neighbourhoods, as samples come in.

    x_i <- x_i - eta_q sum_{j in S} W^q_ij g_j(x_j),   W^q = Lambda_q Lambda_q^T,   lambda^q_ij = 1{b_ij <= eps_q/2}/N_i

in phase q = 0, 1, ..., rounds end_{q-1} to end_q. `discrepancies` are the b_ij, `phases` hold eps_q (`accuracy`), eta_q
(`step_size`) and end_q (`end`): doubling has eps_q = eps_0 2^-q and the steps of theory; a phase per round with eta =
1/k is allowed too (both in `idiolect.theory.all_for_all`). `step_size` multiplies every eta_q. The last phase goes on.

The analysis needs x in the range of Lambda_q when a phase begins. `between_phases` "continue" goes on from where x is,
as printed; "restart" begins every phase at the common start, and delivers what the last finished phase ended with.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np

from idiolect.algorithms.model_per_agent import Broadcast, ModelPerAgent
from idiolect.algorithms.references import EVEN
from idiolect.core import Fit, Method, mixing, setting, settings, tree
from idiolect.core.mixing import Discrepancies, Neighbours, Phases, misses_agents
from idiolect.core.types import Array, Key, Params, PerClient


class ServerState(NamedTuple):
    """Every client's model, stacked; rounds so far; for restarts the start and what the last phase ended with."""

    models: Params
    round: Array
    start: Params
    finished: Params


@settings
class AllForAllAdaptive(ModelPerAgent):
    """All-for-all whose neighbourhoods shrink and whose steps fall, phase by phase."""

    server_only = ("neighbours", "discrepancies", "phases")

    step_size: float = setting(default=1.0, above=0, doc="times the step eta_q of the phase; eta itself without phases")
    discrepancies: Discrepancies | None = setting(default=None, doc="b_ij; from [collaboration]")
    phases: Phases | None = setting(default=None, doc="eps_q, eta_q and the rounds where phases end; from theory")
    between_phases: str = setting(
        default="continue", choices=("continue", "restart"), doc="what a new phase begins with: x as it is, or x0"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Discrepancies need a row per client, and phases that say how far is close."""
        if missed := misses_agents("discrepancies", self.discrepancies, self.clients):
            return Fit(missed)
        if self.discrepancies is not None and self.phases is None:
            return Fit(
                "it needs phases that say which discrepancies are small; take them from idiolect.theory.all_for_all"
            )
        if self.phases is not None and not (np.diff(np.asarray(self.phases.end)) > 0).all():
            return Fit("it needs phases whose ends ascend")
        return super().fit(chance)

    def init_server(self, key: Key) -> ServerState:
        """A common start, round 0."""
        start = self.objective.init_personal(key)
        models = self.everywhere(start)
        kept = (start, models) if self._restarts else ((), ())
        return ServerState(models, jnp.zeros((), jnp.int32), *kept)

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """x_i to client i, or x0 where a phase begins anew."""
        if not self._restarts:
            return Broadcast(PerClient(server.models))
        begins = jnp.any(server.round == self._ends)
        return Broadcast(PerClient(tree.choose(begins, self.everywhere(server.start), server.models)))

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Any) -> ServerState:
        """x <- x - eta_q W^q g."""
        eta, neighbours = self._phase(server.round)
        models = tree.descend(sent.model.values, eta, self.mixed(neighbours, received))
        number, finished = server.round + 1, server.finished
        if self._restarts:
            # until the first phase ends there is nothing better than the iterate
            ends = jnp.any(number == self._ends) | (number < self._ends[0])
            finished = tree.choose(ends, models, finished)
        return ServerState(models, number, server.start, finished)

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """x_i, or with restarts that of the last finished phase."""
        return Broadcast(PerClient(server.finished if self._restarts else server.models))

    @property
    def _restarts(self) -> bool:
        return self.between_phases == "restart" and self.phases is not None

    @property
    def _ends(self) -> Array:
        return cast(Phases, self.phases).end

    def _phase(self, number: Any) -> tuple[Any, Neighbours | None]:
        """eta_q and Lambda_q of a round."""
        if self.phases is None:
            return self.step_size, self.neighbours
        place = jnp.sum(number >= self.phases.end[:-1], dtype=jnp.int32)
        eta = self.step_size * self.phases.step_size[place]
        if self.discrepancies is None:
            return eta, self.neighbours
        return eta, mixing.within(self.discrepancies, self.phases.accuracy[place])

    def reach(self, rounds: np.ndarray) -> np.ndarray:
        """As many as are near enough in the round's phase."""
        if self.phases is None or self.discrepancies is None:
            return super().reach(rounds)
        places = np.searchsorted(np.asarray(self.phases.end)[:-1], rounds, side="right")
        known = self._known_reach
        for place in set(places.tolist()) - set(known):
            known[place] = mixing.reach(mixing.within(self.discrepancies, self.phases.accuracy[place]))
        return np.stack([known[place] for place in places.tolist()])

    @functools.cached_property
    def _known_reach(self) -> dict[int, np.ndarray]:
        return {}


_SUMMARY = "all-for-all whose neighbourhoods shrink as samples come in"
_ERRATA = ("E004-3", "E004-4", "E004-8")
METHODS = {"all_for_all_adaptive": Method(AllForAllAdaptive, "local_only", {}, EVEN, _SUMMARY, errata=_ERRATA)}
