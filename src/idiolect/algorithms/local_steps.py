# SPDX-License-Identifier: Apache-2.0
"""Clients walk away from a shared block by steps of their own: the settings and the fit of every such method."""

from __future__ import annotations

from typing import Any

from idiolect.core import Batched, Fit, setting, settings
from idiolect.core.algorithm import Client, Sent, Server, Upload, Working
from idiolect.core.types import Params


@settings
class LocalSteps(Batched[Server, Client, Sent, Working, Upload]):
    """Local steps from a shared block, and a step of the server along their mean drift; still abstract."""

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 0.1, or 1/L for an L-smooth loss.", doc="inner step eta"
    )
    server_step_size: float = setting(
        default=1.0, above=0, way_out="1 averages the clients' models.", doc="outer step beta"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a shared block and nothing else."""
        one_model = self.objective.has_shared and not self.objective.has_personal
        return Fit(None if one_model else "it trains one shared model; use the global_model objective")

    def shared_model(self, server: Any) -> Params | None:
        """What w alone stands for, where that is a whole model."""
        return self.objective.shared_model(server.shared)
