# SPDX-License-Identifier: Apache-2.0
"""Objectives: how shared and personal parameters become one client's loss; one line each."""

from idiolect.core.objective import Mixture, Objective
from idiolect.objectives.additive import Additive
from idiolect.objectives.apfl2 import APFL2
from idiolect.objectives.client_loss import ClientLoss
from idiolect.objectives.flix import FLIX
from idiolect.objectives.global_model import GlobalModel
from idiolect.objectives.local_only import LocalOnly
from idiolect.objectives.maml import MAML
from idiolect.objectives.mt2 import MT2
from idiolect.objectives.mx2 import MX2
from idiolect.objectives.rescaled import RescaledObjective
from idiolect.objectives.residual import Residual
from idiolect.objectives.ws2 import WS2

OBJECTIVES: dict[str, type[Objective]] = {
    "global_model": GlobalModel,  # traditional federated learning
    "local_only": LocalOnly,  # fully personal
    "additive": Additive,
    "mt2": MT2,  # relaxed Ditto
    "mx2": MX2,  # L2GD's and pFedMe's
    "apfl2": APFL2,
    "ws2": WS2,  # weight sharing: FedPer's, FedRep's, LG-FedAvg's
    "residual": Residual,
    "maml": MAML,
    "flix": FLIX,
}

__all__ = [
    "APFL2",
    "FLIX",
    "MAML",
    "MT2",
    "MX2",
    "OBJECTIVES",
    "WS2",
    "Additive",
    "ClientLoss",
    "GlobalModel",
    "LocalOnly",
    "Mixture",
    "Objective",
    "RescaledObjective",
    "Residual",
]
