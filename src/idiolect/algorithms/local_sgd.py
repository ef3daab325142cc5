# SPDX-License-Identifier: Apache-2.0
"""Local SGD and its close relatives: FedAvg, FedProx, FedAvg + fine-tuning, server optimizers.

Local step  w_m <- w_m - eta (grad f_m(w_m; batch) + mu (w_m - w)),  K times from w_m = w;
server      w <- w + beta mean_m (w_m - w)   (any optax optimizer may take the mean drift as its gradient).

`step_size` is eta, `server_step_size` beta, `penalty` mu. PLSGD 2023 (algorithm 2) weights clients equally,
FedAvg (McMahan et al. 2017) by their rows, FedProx (Li et al. 2020) adds the proximal term.
"""

from __future__ import annotations

import functools
from typing import Any

from idiolect.algorithms.one_model import OneModel, prepared_of
from idiolect.algorithms.references import MCMAHAN, PLSGD
from idiolect.algorithms.tuples import Broadcast
from idiolect.core import BY_ROWS, Method, Models, settings
from idiolect.core.types import ClientData, Key, Tally
from idiolect.theory.step_sizes import LOCAL_SGD


@settings
class LocalSGD(OneModel):
    """Local SGD with inner and outer steps."""

    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """w, fine-tuned if asked for."""
        model, tally = self.tuned_model(key, sent.shared, prepared_of(client), data, self.client_optimizer)
        return Models(model), tally


_PROX = BY_ROWS | {"penalty": 0.1}  # mu of the FedRep repository
_TUNED = BY_ROWS | {"fine_tuning_steps": 10}
_ADAM = BY_ROWS | {"server_optimizer": "fedadam", "server_step_size": 0.01}  # it moves a coordinate by about this much
_YOGI = BY_ROWS | {"server_optimizer": "fedyogi", "server_step_size": 0.01}
_LI = "Li et al. 2020, Federated optimization in heterogeneous networks"
_REDDI = "Reddi et al. 2021, Adaptive federated optimization"
_WANG = "Wang et al. 2019, Federated evaluation of on-device personalization"
_method = functools.partial(Method, LocalSGD, "global_model", theory=LOCAL_SGD)
METHODS = {
    "local_sgd": _method({}, PLSGD, "one model, local steps, clients weigh equally", errata=("E000-1",)),
    "fedavg": _method(BY_ROWS, MCMAHAN, "one model, local steps, clients weigh by rows"),
    "fedprox": _method(_PROX, _LI, "FedAvg held near the shared model by a penalty"),
    "fedavg_fine_tuning": _method(_TUNED, _WANG, "FedAvg, then own steps on each client"),
    "fedadam": _method(_ADAM, _REDDI, "FedAvg with Adam on the server"),
    "fedyogi": _method(_YOGI, _REDDI, "FedAvg with Yogi on the server"),
}
