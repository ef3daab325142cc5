# SPDX-License-Identifier: Apache-2.0
"""How far a run is from the optimum of its own objective, on problems whose optimum can be solved."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.engines.session import Measure
from idiolect.metrics.optimum import distance_to_optimum, suboptimality
from idiolect.objectives import GlobalModel
from idiolect.theory.optimum import client_values, local_optima, optimal_value, shared_optimum


def optimum_measure(objective: Objective, rows: Rows) -> Measure | None:
    """Training loss, suboptimality and squared distance to the optimum, per record; None where it is not known.

    The optimum is that of the method's own objective: the best single model for a global one, every client's own
    otherwise; so zero is what the method can reach.
    """
    with jax.enable_x64(True):
        lowest = optimal_value(objective, rows)
        if lowest is None:
            return None
        optima: Any = local_optima(objective, rows)
        if isinstance(objective, GlobalModel):
            best: Any = shared_optimum(objective, rows)
            optima = {name: np.broadcast_to(leaf, (rows.clients, *np.shape(leaf))) for name, leaf in best.items()}

    def measure(shared: Any, personal: Any) -> dict[str, float]:
        values = client_values(objective, rows, personal, stacked=True)
        with jax.enable_x64(True):
            distance = float(distance_to_optimum(personal, optima))
        loss = float(np.mean(np.asarray(values)))
        return {
            "train_loss": loss,
            "suboptimality": float(suboptimality(loss, lowest)),
            "distance_to_optimum": distance,
        }

    return measure
