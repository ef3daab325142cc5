# SPDX-License-Identifier: Apache-2.0
"""All-for-all (2022, algorithm 1): every client (agent) has its own model and uses gradients of those like it.

    x_i <- x_i - eta sum_{j in S} W_ij g_j(x_j)   for all i,      W = Lambda Lambda^T

Lambda is row-stochastic, lambda_ij the weight of client j for i; S is all clients (the synchronous oracle) or a cohort
(the asynchronous one is a cohort of 1: one client draws a gradient, every model moves, and there is no factor N).
Each client takes one gradient, at its own point. `models` are the x_i, `step_size` eta, `neighbours` Lambda; without
them Lambda = alpha I + (1 - alpha) 11^T/N with alpha `own_share`: 1 is training alone, 0 minibatch SGD on one model.

x = Lambda y, where y does SGD on f^Lambda(y) = (1/N) sum_i f_i((Lambda y)_i). W has no row sums of 1 and its spectral
radius may exceed 1 (E004-4): eta = 1/(2 L rho(W)). The server relays and mixes; with `route` "peers" each gradient is
billed to every other client that uses it.
"""

from __future__ import annotations

from typing import Any

from idiolect.algorithms.model_per_agent import ModelPerAgent, ServerState
from idiolect.algorithms.references import EVEN
from idiolect.core import Method, settings, tree
from idiolect.core.types import Key
from idiolect.theory.all_for_all import ALL_FOR_ALL


@settings
class AllForAll(ModelPerAgent):
    """SGD on every client's own loss, with gradients shared among those who are alike."""

    def server_step(self, key: Key, server: Any, sent: Any, received: Any) -> Any:
        """x <- x - eta W g."""
        return ServerState(tree.descend(server.models, self.step_size, self.mixed(self.neighbours, received)))


_SUMMARY = "a model per client, gradients shared with those who are alike"
_ERRATA = ("E004-1", "E004-4", "E004-5", "E004-6", "E004-7")
METHODS = {"all_for_all": Method(AllForAll, "local_only", {}, EVEN, _SUMMARY, theory=ALL_FOR_ALL, errata=_ERRATA)}
