# SPDX-License-Identifier: Apache-2.0
"""The losses f'_m of the reproductions' clients: of synthetic problems, and of networks on given data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from idiolect import ClientLoss, Federation
from idiolect.data import Problem
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.spec import ModelSpec
from idiolect.experiments.strict import fill


def problem_loss(problem: Problem) -> ClientLoss:
    """f'_m of a synthetic problem."""
    return build_client_loss(ModelSpec(), problem.federation, problem)


def network_loss(name: str, settings: Mapping[str, Any], federation: Federation) -> ClientLoss:
    """f'_m of a registered model on a federation, with settings as in [model] of a spec."""
    return build_client_loss(fill(ModelSpec, {"name": name, **settings}, f"{name} model"), federation, None)
