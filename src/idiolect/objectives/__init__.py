# SPDX-License-Identifier: Apache-2.0
"""Objectives: how shared and personal parameters become one client's loss; one line each."""

from idiolect.core.objective import Objective
from idiolect.objectives.additive import Additive
from idiolect.objectives.client_loss import ClientLoss
from idiolect.objectives.global_model import GlobalModel
from idiolect.objectives.local_only import LocalOnly

OBJECTIVES: dict[str, type[Objective]] = {
    "global_model": GlobalModel,
    "local_only": LocalOnly,
    "additive": Additive,
}

__all__ = ["OBJECTIVES", "Additive", "ClientLoss", "GlobalModel", "LocalOnly", "Objective"]
