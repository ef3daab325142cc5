# SPDX-License-Identifier: Apache-2.0
"""The registry of algorithms: one line per name; a stranger's is named by its path, "package.module:Class"."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from idiolect.algorithms.acd_pfl import ACDPFL
from idiolect.algorithms.ascd_pfl import ASCDPFL
from idiolect.algorithms.ascd_then_asvrcd import ASCDThenASVRCD
from idiolect.algorithms.asvrcd_pfl import ASVRCDPFL, SVRCDPFL
from idiolect.algorithms.flow import Flow
from idiolect.algorithms.l2gd import L2GD, L2SGDPlus
from idiolect.algorithms.local import Local
from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.lsgd_pfl import LSGDPFL
from idiolect.algorithms.minibatch_sgd import MinibatchSGD
from idiolect.algorithms.personalized_local_sgd import PersonalizedLocalSGD
from idiolect.algorithms.pfedme import PFedMe
from idiolect.algorithms.scafflix import Scafflix
from idiolect.algorithms.scaffold import Scaffold
from idiolect.algorithms.scd_pfl import SCDPFL
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError, nearest


class Method(NamedTuple):
    """A name's meaning: a class, the objective it minimises unless told otherwise, and preset settings."""

    algorithm: type[Algorithm]
    objective: str | None  # a name; None: the user must choose
    preset: Mapping[str, Any]
    reference: str
    summary: str


_PLSGD = "Personalization mitigates the perils of local SGD for heterogeneous distributed learning (paper 000)"
_UNIFIED = "Personalized federated learning: a unified framework and universal optimization techniques (paper 002)"
_FLIX = "Explicit personalization and local training: double communication acceleration (paper 001)"
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

_ROWS = {"weighting": "samples"}
_PROX = _ROWS | {"proximal": 0.1}  # mu of the FedRep repository
_TUNED = _ROWS | {"fine_tuning_steps": 10}
_ADAM = _ROWS | {
    "server_optimizer": "fedadam",
    "server_step_size": 0.01,
}  # it moves a coordinate by about this much
_YOGI = _ROWS | {"server_optimizer": "fedyogi", "server_step_size": 0.01}
_INSTANCE = {"second_route": "shared"}

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
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, ValueError, AttributeError) as error:
        raise RequestError(
            f"An algorithm's path must be 'package.module:Class' and importable, got {path!r} ({error})."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise RequestError(f"{path!r} must name a subclass of idiolect.core.Algorithm, got {found!r}.")
    return Method(found, None, {}, path, (inspect.getdoc(found) or path).splitlines()[0])


__all__ = [
    "ACDPFL",
    "ALGORITHMS",
    "ASCDPFL",
    "ASVRCDPFL",
    "L2GD",
    "LSGDPFL",
    "SCDPFL",
    "SVRCDPFL",
    "ASCDThenASVRCD",
    "Flow",
    "L2SGDPlus",
    "Local",
    "LocalSGD",
    "Method",
    "MinibatchSGD",
    "PFedMe",
    "PersonalizedLocalSGD",
    "Scafflix",
    "Scaffold",
    "find",
]
