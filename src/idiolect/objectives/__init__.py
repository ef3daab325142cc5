# SPDX-License-Identifier: Apache-2.0
"""Objectives: how shared and personal parameters become one client's loss; one line each."""

from idiolect.core.objective import Mixture as Mixture
from idiolect.core.objective import Objective as Objective
from idiolect.objectives.additive import Additive as Additive
from idiolect.objectives.apfl2 import APFL2 as APFL2
from idiolect.objectives.client_loss import ClientLoss as ClientLoss
from idiolect.objectives.flix import FLIX as FLIX
from idiolect.objectives.global_model import GlobalModel as GlobalModel
from idiolect.objectives.local_only import LocalOnly as LocalOnly
from idiolect.objectives.maml import MAML as MAML
from idiolect.objectives.mt2 import MT2 as MT2
from idiolect.objectives.mx2 import MX2 as MX2
from idiolect.objectives.rescaled import RescaledObjective as RescaledObjective
from idiolect.objectives.residual import Residual as Residual
from idiolect.objectives.ws2 import WS2 as WS2

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
