# SPDX-License-Identifier: Apache-2.0
"""Which regime are we in: paper 000's quantities, measured on the clients' own rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.models import Linear
from idiolect.objectives import ClientLoss
from idiolect.theory import client_constants, client_heterogeneity, gradient_noise, shared_optimum


def regime(federation: Federation, rows: Rows, l2: float) -> dict[str, Any]:
    """zeta*, sigma, kappa, B and what they rest on; l2 makes every client's optimum unique."""
    features = int(np.prod(federation.input_shape))
    if federation.task.kind == "regression":
        width = 0 if federation.train.targets.ndim == 1 else federation.task.outputs
        loss = ClientLoss(model=Linear(features, width), criterion="squared", l2=l2)
    elif len(federation.task.classes) == 2:
        loss = ClientLoss(model=Linear(features, 0), criterion="logistic", l2=l2)
    else:
        loss = ClientLoss(model=Linear(features, len(federation.task.classes)), criterion="cross_entropy", l2=l2)
    constants, measured = client_constants(loss, rows), client_heterogeneity(loss, rows)
    shared = shared_optimum(loss, rows)
    if constants is None or measured is None or shared is None:
        return {}
    noise = gradient_noise(loss, rows, shared, stacked=False)
    assert noise is not None
    counts = rows.counts
    return {
        "zeta": measured.zeta,
        "sigma": float(np.sqrt(noise.mean())),
        "kappa": measured.condition_number,
        "radius": measured.radius,
        "smoothness": constants.smoothness,
        "strong_convexity": constants.strong_convexity,
        "optimum_spread": measured.optimum_spread,
        "value_gap": measured.value_gap,
        "gradient_dissimilarity": measured.gradient_dissimilarity,
        "l2": l2,
        "rows": {"least": int(counts.min()), "median": float(np.median(counts)), "most": int(counts.max())},
        "label_skew": federation.label_skew(),
    }
