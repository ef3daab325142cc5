# SPDX-License-Identifier: Apache-2.0
"""Local SGD and its close relatives: FedAvg, FedProx, FedAvg + fine-tuning, server optimizers.

Local step  w_m <- w_m - eta (grad f_m(w_m; batch) + mu (w_m - w)),  K times from w_m = w;
server      w <- w + beta mean_m (w_m - w)   (any optax optimizer may take the mean drift as its gradient).

`step_size` is eta, `server_step_size` beta, `penalty` mu. Paper 000 (algorithm 2) weights clients equally,
FedAvg (McMahan et al. 2017) by their rows, FedProx (Li et al. 2020) adds the proximal term.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from idiolect.algorithms.federated_averaging import Broadcast, FineTuned
from idiolect.algorithms.references import MCMAHAN, PLSGD
from idiolect.core import tree
from idiolect.core.algorithm import Fit, Models
from idiolect.core.checks import setting
from idiolect.core.data import Batch, ClientData
from idiolect.core.keys import Key, StartKeys, step_key
from idiolect.core.kinds import KeepsPrepared
from idiolect.core.method import BY_ROWS, Method
from idiolect.core.objective import Prepares
from idiolect.core.settings import settings
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params
from idiolect.theory.step_sizes import LOCAL_SGD


class ClientState(NamedTuple):
    """What the objective prepared; a client that has nothing to prepare keeps nothing."""

    prepared: Params


class Working(NamedTuple):
    """A client's copy of the shared model, and what it prepared."""

    shared: Params
    prepared: Params
    drawn: Any


@settings
class OneModel(FineTuned[Any, Working], KeepsPrepared):
    """Local SGD on one shared model; still abstract: it leaves open what clients predict with."""

    carries_statistics = True
    makes_another = ("penalty",)  # FedAvg with a penalty is FedProx

    penalty: float | None = setting(default=None, at_least=0, doc="FedProx's mu; unset: no proximal term")

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        return Fit(self.unless_one_model())

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[Any, Tally]:
        """What the objective prepares, if anything."""
        if not isinstance(self.objective, Prepares):
            return (), NOTHING
        prepared, tally = self.objective.prepare(keys.common, data)
        return ClientState(prepared), tally

    def receive(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """Start from the shared model."""
        return Working(sent.shared, _prepared(client), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Any, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One gradient step."""
        batch = self.batch(t, working.drawn, data)
        slope, tally = self.objective.gradient_shared(step_key(key, t), working.shared, working.prepared, batch)
        if self.penalty is not None:
            slope = tree.pull(slope, self.penalty, working.shared, sent.shared)
        return working._replace(shared=tree.descend(working.shared, self.step_size, slope)), tally

    @abc.abstractmethod
    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """What client m predicts with."""

    def tuned_model(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Params, Tally]:
        """What the objective makes of w, after fine-tuning on the client's own training rows if asked for."""
        own = _prepared(client)

        def gradient(at: Key, shared: Params, batch: Batch) -> tuple[Params, Tally]:
            return self.objective.gradient_shared(at, shared, own, batch)

        tuned, spent = self.fine_tuned(key, sent.shared, data, gradient)
        model, more = self.objective.personalize(key, tuned, own, data.batch())
        return model, spent.plus(more)


@settings
class LocalSGD(OneModel):
    """Local SGD with inner and outer steps."""

    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """w, fine-tuned if asked for."""
        model, tally = self.tuned_model(key, sent, client, data)
        return Models(model), tally


def _prepared(client: Any) -> Params:
    return getattr(client, "prepared", ())


_PROX = BY_ROWS | {"penalty": 0.1}  # mu of the FedRep repository
_TUNED = BY_ROWS | {"fine_tuning_steps": 10}
_ADAM = BY_ROWS | {"server_optimizer": "fedadam", "server_step_size": 0.01}  # it moves a coordinate by about this much
_YOGI = BY_ROWS | {"server_optimizer": "fedyogi", "server_step_size": 0.01}
_LI = "Li et al. 2020, Federated optimization in heterogeneous networks"
_REDDI = "Reddi et al. 2021, Adaptive federated optimization"
_WANG = "Wang et al. 2019, Federated evaluation of on-device personalization"
METHODS = {
    "local_sgd": Method(
        LocalSGD, "global_model", {}, PLSGD, "one model, local steps, clients weigh equally", theory=LOCAL_SGD
    ),
    "fedavg": Method(
        LocalSGD, "global_model", BY_ROWS, MCMAHAN, "one model, local steps, clients weigh by rows", theory=LOCAL_SGD
    ),
    "fedprox": Method(
        LocalSGD, "global_model", _PROX, _LI, "FedAvg held near the shared model by a penalty", theory=LOCAL_SGD
    ),
    "fedavg_fine_tuning": Method(
        LocalSGD, "global_model", _TUNED, _WANG, "FedAvg, then own steps on each client", theory=LOCAL_SGD
    ),
    "fedadam": Method(LocalSGD, "global_model", _ADAM, _REDDI, "FedAvg with Adam on the server", theory=LOCAL_SGD),
    "fedyogi": Method(LocalSGD, "global_model", _YOGI, _REDDI, "FedAvg with Yogi on the server", theory=LOCAL_SGD),
}
