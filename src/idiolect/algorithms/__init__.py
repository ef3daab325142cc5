# SPDX-License-Identifier: Apache-2.0
"""The registry of algorithms: one line per name; a stranger's is named by its path, "package.module:Class"."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from idiolect.algorithms.acd_pfl import ACDPFL
from idiolect.algorithms.all_for_all import AllForAll
from idiolect.algorithms.all_for_all_adaptive import AllForAllAdaptive
from idiolect.algorithms.all_for_all_naive import AllForAllNaive
from idiolect.algorithms.all_for_one import AllForOne
from idiolect.algorithms.apfl import APFL
from idiolect.algorithms.ascd_pfl import ASCDPFL
from idiolect.algorithms.ascd_then_asvrcd import ASCDThenASVRCD
from idiolect.algorithms.asvrcd_pfl import ASVRCDPFL, SVRCDPFL
from idiolect.algorithms.ditto import Ditto
from idiolect.algorithms.flow import Flow
from idiolect.algorithms.ifca import IFCA
from idiolect.algorithms.knn_per import KNNPer
from idiolect.algorithms.l2gd import L2GD, L2SGDPlus
from idiolect.algorithms.local import Local
from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.lsgd_pfl import LSGDPFL
from idiolect.algorithms.minibatch_sgd import MinibatchSGD
from idiolect.algorithms.partial_averaging import PERSONAL_FIRST, SHARED_ONLY, PartialAveraging
from idiolect.algorithms.partialfed import PartialFed
from idiolect.algorithms.per_fedavg import PerFedAvg
from idiolect.algorithms.personalized_local_sgd import PersonalizedLocalSGD
from idiolect.algorithms.pfedme import PFedMe
from idiolect.algorithms.scafflix import Scafflix
from idiolect.algorithms.scaffold import Scaffold
from idiolect.algorithms.scd_pfl import SCDPFL
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError, nearest
from idiolect.core.importing import imported
from idiolect.core.objective import Objective


class Method(NamedTuple):
    """A name's meaning: a class, the objective it minimises unless told otherwise, and preset settings."""

    algorithm: type[Algorithm]
    objective: str | None  # a name; None: the user must choose
    preset: Mapping[str, Any]
    reference: str
    summary: str
    objective_preset: Mapping[str, Any] = {}  # settings of that objective

    def __call__(self, objective: Objective, **settings: Any) -> Algorithm:
        """The algorithm on this objective with the name's presets; a setting that is given here wins.

        Settings of the objective may be given, too. Its presets take the place of defaults only: what was given to the
        objective when it was made stays.
        """
        usual = {field.name: field.default for field in dataclasses.fields(objective)}  # type: ignore[arg-type]
        own = {field.name for field in dataclasses.fields(self.algorithm)}
        preset = {
            name: value
            for name, value in self.objective_preset.items()
            if name in usual and getattr(objective, name) == usual[name]
        }
        preset |= {name: settings.pop(name) for name in set(settings) & set(usual) - own}
        chosen = dataclasses.replace(objective, **preset)  # type: ignore[type-var]
        return self.algorithm(chosen, **{**self.preset, **settings})


_PLSGD = "Personalization mitigates the perils of local SGD for heterogeneous distributed learning (paper 000)"
_UNIFIED = "Personalized federated learning: a unified framework and universal optimization techniques (paper 002)"
_FLIX = "Explicit personalization and local training: double communication acceleration (paper 001)"
_EVEN = "Sample optimality and all-for-all strategies in personalized federated and collaborative learning (paper 004)"
_GASANOV = "Gasanov et al. 2022, FLIX: a simple and communication-efficient alternative to local methods"
_MISHCHENKO = "Mishchenko et al. 2022, ProxSkip: yes! local gradient steps provably lead to acceleration"
_MCMAHAN = "McMahan et al. 2017, Communication-efficient learning of deep networks from decentralized data"
_LI = "Li et al. 2020, Federated optimization in heterogeneous networks"
_REDDI = "Reddi et al. 2021, Adaptive federated optimization"
_WOODWORTH = "Woodworth et al. 2020, Minibatch vs local SGD for heterogeneous distributed learning"
_KARIMIREDDY = "Karimireddy et al. 2020, SCAFFOLD: stochastic controlled averaging for federated learning"
_FLOW = "Flow: per-instance personalized federated learning (paper 003)"
_HANZELY = "Hanzely and Richtarik 2020, Federated learning of a mixture of global and local models"
_DINH = "T. Dinh, Tran and Nguyen 2020, Personalized federated learning with Moreau envelopes"
_WANG = "Wang et al. 2019, Federated evaluation of on-device personalization"
_DENG = "Deng, Kamani and Mahdavi 2020, Adaptive personalized federated learning"
_DITTO = "Li et al. 2021, Ditto: fair and robust federated learning through personalization"
_ARIVAZHAGAN = "Arivazhagan et al. 2019, Federated learning with personalization layers"
_COLLINS = "Collins et al. 2021, Exploiting shared representations for personalized federated learning"
_LIANG = "Liang et al. 2020, Think locally, act globally: federated learning with local and global representations"
_OH = "Oh, Kim and Yun 2022, FedBABU: toward enhanced representation for federated image classification"
_FEDBN = "Li et al. 2021, FedBN: federated learning on non-IID features via local batch normalization"
_MARFOQ = "Marfoq et al. 2022, Personalized federated learning through local memorization"
_GHOSH = "Ghosh et al. 2020, An efficient framework for clustered federated learning"
_MANSOUR = "Mansour et al. 2020, Three approaches for personalization with applications to federated learning"
_FALLAH = "Fallah et al. 2020, Personalized federated learning: a meta-learning approach"
_SUN = "Sun et al. 2021, PartialFed: cross-domain personalized federated learning via partial initialization"

_ROWS = {"weighting": "samples"}
_PROX = _ROWS | {"penalty": 0.1}  # mu of the FedRep repository
_TUNED = _ROWS | {"fine_tuning_steps": 10}
_ADAM = _ROWS | {
    "server_optimizer": "fedadam",
    "server_step_size": 0.01,
}  # it moves a coordinate by about this much
_YOGI = _ROWS | {"server_optimizer": "fedyogi", "server_step_size": 0.01}
_REP = {"trains": PERSONAL_FIRST}
_BABU = _TUNED | {"trains": SHARED_ONLY}
_INSTANCE = {"second_route": "shared"}


def _keeps(personal_part: str) -> Mapping[str, Any]:
    """WS2 as these methods mean it: the model's own parameters, without paper 002's rescaling."""
    return {"personal_part": personal_part, "rescale": False}


ALGORITHMS: dict[str, Method] = {
    "local_sgd": Method(LocalSGD, "global_model", {}, _PLSGD, "one model, local steps, clients weigh equally"),
    "fedavg": Method(LocalSGD, "global_model", _ROWS, _MCMAHAN, "one model, local steps, clients weigh by rows"),
    "fedprox": Method(LocalSGD, "global_model", _PROX, _LI, "FedAvg held near the shared model by a penalty"),
    "fedavg_fine_tuning": Method(LocalSGD, "global_model", _TUNED, _WANG, "FedAvg, then own steps on each client"),
    "fedadam": Method(LocalSGD, "global_model", _ADAM, _REDDI, "FedAvg with Adam on the server"),
    "fedyogi": Method(LocalSGD, "global_model", _YOGI, _REDDI, "FedAvg with Yogi on the server"),
    "minibatch_sgd": Method(MinibatchSGD, "global_model", {}, _WOODWORTH, "one model, one large batch per round"),
    "local": Method(Local, "local_only", {}, _MCMAHAN, "every client alone, nothing sent"),
    "scaffold": Method(Scaffold, "global_model", {}, _KARIMIREDDY, "local SGD without drift, by control variates"),
    "lsgd_pfl": Method(LSGDPFL, "additive", {}, _UNIFIED, "local SGD on a shared and a personal block"),
    "acd_pfl": Method(ACDPFL, "mx2", {}, _UNIFIED, "accelerated descent by blocks, exact gradients, few exchanges"),
    "asvrcd_pfl": Method(ASVRCDPFL, "mx2", {}, _UNIFIED, "accelerated, variance-reduced descent by blocks; exact"),
    "svrcd_pfl": Method(SVRCDPFL, "mx2", {}, _UNIFIED, "variance-reduced descent by blocks, no momentum; exact"),
    "ascd_pfl": Method(ASCDPFL, "mx2", {}, _UNIFIED, "accelerated descent by blocks on single rows; to a floor"),
    "scd_pfl": Method(SCDPFL, "mx2", {}, _UNIFIED, "descent by blocks on single rows; to a floor"),
    "ascd_then_asvrcd": Method(
        ASCDThenASVRCD, "mx2", {}, _UNIFIED, "ASCD-PFL at first, ASVRCD-PFL once measured progress slows"
    ),
    "l2gd": Method(L2GD, "mx2", {}, _HANZELY, "own steps, now and then a step toward the mean of all models"),
    "l2sgd_plus": Method(L2SGDPlus, "mx2", {}, _HANZELY, "L2GD from single rows with variance reduction; exact"),
    "pfedme": Method(PFedMe, "mx2", {}, _DINH, "a shared model learnt from proximal steps toward personal ones"),
    "scafflix": Method(Scafflix, "flix", {}, _FLIX, "own optima mixed in, local steps without drift; exact"),
    "i_scaffnew": Method(Scafflix, "global_model", {}, _FLIX, "one model, local steps without drift, own steps; exact"),
    "scaffnew": Method(Scafflix, "global_model", {}, _MISHCHENKO, "one model, local steps without drift; exact"),
    "flix_gd": Method(
        Scafflix, "flix", {"communication_probability": 1.0}, _GASANOV, "own optima mixed in, gradient descent; exact"
    ),
    "flix_sgd": Method(LocalSGD, "flix", {}, _GASANOV, "own optima mixed in, local SGD"),
    "flow": Method(Flow, "global_model", {}, _FLOW, "every input chooses, layer by layer, the shared or the own model"),
    "pi_flow": Method(Flow, "global_model", _INSTANCE, _FLOW, "Flow by instance alone: both routes are shared"),
    "pc_flow": Method(LocalSGD, "global_model", _TUNED, _FLOW, "Flow by client alone: FedAvg, then own steps"),
    "personalized_local_sgd": Method(
        PersonalizedLocalSGD, "additive", {}, _PLSGD, "a shared model plus a correction per client"
    ),
    "all_for_all": Method(
        AllForAll, "local_only", {}, _EVEN, "a model per client, gradients shared with those who are alike"
    ),
    "all_for_all_adaptive": Method(
        AllForAllAdaptive, "local_only", {}, _EVEN, "all-for-all whose neighbourhoods shrink as samples come in"
    ),
    "all_for_all_naive": Method(
        AllForAllNaive, "local_only", {}, _EVEN, "a model per client, each with gradients taken at it; many messages"
    ),
    "all_for_one": Method(
        AllForOne, "global_model", {}, _EVEN, "one client's model from the gradients of those who are alike"
    ),
    "apfl": Method(APFL, "global_model", {}, _DENG, "FedAvg, mixed on each client with a model of its own"),
    "ditto": Method(Ditto, "global_model", {}, _DITTO, "FedAvg, and a model per client that is held near it"),
    "fedper": Method(
        PartialAveraging, "ws2", _ROWS, _ARIVAZHAGAN, "last layer personal, all trained together", _keeps("head")
    ),
    "fedrep": Method(
        PartialAveraging, "ws2", _REP, _COLLINS, "last layer personal and trained first, then the rest", _keeps("head")
    ),
    "lg_fedavg": Method(
        PartialAveraging, "ws2", _ROWS, _LIANG, "last layer shared, the others personal", _keeps("body")
    ),
    "fedbabu": Method(
        PartialAveraging, "ws2", _BABU, _OH, "last layer never trained but fine-tuned at the end", _keeps("head")
    ),
    "fedbn": Method(PartialAveraging, "ws2", {}, _FEDBN, "normalisation layers personal", _keeps("*norm*")),
    "knn_per": Method(KNNPer, "global_model", _ROWS, _MARFOQ, "FedAvg, and a vote of the client's own nearest rows"),
    "ifca": Method(IFCA, "global_model", {}, _GHOSH, "one model per cluster, chosen by each client's loss"),
    "hypcluster": Method(IFCA, "global_model", _ROWS, _MANSOUR, "IFCA with clients weighing by rows"),
    "per_fedavg": Method(PerFedAvg, "maml", {}, _FALLAH, "a shared start that is good after one own step"),
    "partialfed": Method(
        PartialFed, "global_model", _ROWS, _SUN, "each client learns which layers to take from the shared model"
    ),
}


def find(name: str) -> Method:
    """The named method, from the registry or from a path "package.module:Class"."""
    if ":" in name:
        return _load(name)
    if name not in ALGORITHMS:
        close = nearest(name, ALGORITHMS)
        raise RequestError(f"There is no algorithm {name!r}.{close} Your own: 'package.module:Class'.")
    return ALGORITHMS[name]


def _load(path: str) -> Method:
    found = imported(path, "An algorithm's path must be 'package.module:Class'")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise RequestError(f"{path!r} must name a subclass of idiolect.core.Algorithm, got {found!r}.")
    return Method(found, None, {}, path, (inspect.getdoc(found) or path).splitlines()[0])


__all__ = [
    "ACDPFL",
    "ALGORITHMS",
    "APFL",
    "ASCDPFL",
    "ASVRCDPFL",
    "IFCA",
    "L2GD",
    "LSGDPFL",
    "SCDPFL",
    "SVRCDPFL",
    "ASCDThenASVRCD",
    "AllForAll",
    "AllForAllAdaptive",
    "AllForAllNaive",
    "AllForOne",
    "Ditto",
    "Flow",
    "KNNPer",
    "L2SGDPlus",
    "Local",
    "LocalSGD",
    "Method",
    "MinibatchSGD",
    "PFedMe",
    "PartialAveraging",
    "PartialFed",
    "PerFedAvg",
    "PersonalizedLocalSGD",
    "Scafflix",
    "Scaffold",
    "find",
]
