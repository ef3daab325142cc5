# SPDX-License-Identifier: Apache-2.0
"""How different the clients are, and how noisy one row is: the quantities of PLSGD 2023, assumptions 1-3."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.core.tree import Params
from idiolect.objectives import ClientLoss
from idiolect.theory.constants import client_constants
from idiolect.theory.convex import convex_loss
from idiolect.theory.joint import weighted_rows
from idiolect.theory.optimum import client_points, local_optima, shared_optimum


@dataclasses.dataclass(frozen=True)
class Heterogeneity:
    """The measures of PLSGD 2023 at the optima, v* of the mean and v*_m of each client."""

    radius: float  # B = max_m |v*_m| (assumption 2)
    optimum_spread: float  # mean_m |v*_m - v*|^2: the cost of not personalizing in distance (eq. 13)
    value_gap: float  # F(v*) - mean_m F_m(v*_m): that cost in value (eq. 12), at most L/2 times the spread
    zeta: float  # zeta*, with zeta*^2 = L^2 mean_m |v*_m - v*|^2 (eq. 10, its missing square restored: E000-3)
    gradient_dissimilarity: float  # mean_m |grad F_m(v*)|^2 <= zeta*^2; Unified 2023's zeta*^2 for one shared model
    condition_number: float  # kappa = L / mu


def client_heterogeneity(objective: Objective | ClientLoss, rows: Rows) -> Heterogeneity | None:
    """The measures for these clients; None where their optima are not known."""
    loss, constants = convex_loss(objective), client_constants(objective, rows)
    own, shared = local_optima(objective, rows), shared_optimum(objective, rows)
    if loss is None or constants is None or own is None or shared is None:
        return None
    points, together = np.array(client_points(loss, rows.clients, own, stacked=True)), loss.from_params(shared)
    every = weighted_rows(loss, rows)
    gaps = [loss.value(part, together) - loss.value(part, point) for part, point in zip(every, points)]
    gradients = np.array([loss.gradient(part, together) for part in every])
    spread = float(((points - together) ** 2).sum(axis=(1, 2)).mean())
    return Heterogeneity(
        radius=float(np.sqrt((points**2).sum(axis=(1, 2)).max())),
        optimum_spread=spread,
        value_gap=float(np.mean(gaps)),
        zeta=constants.smoothness * float(np.sqrt(spread)),
        gradient_dissimilarity=float((gradients**2).sum(axis=(1, 2)).mean()),
        condition_number=constants.condition_number,
    )


def gradient_noise(
    objective: Objective | ClientLoss, rows: Rows, params: Params, *, stacked: bool
) -> np.ndarray | None:
    """sigma_m^2 = E |grad f(v; z) - grad F_m(v)|^2 per client, for one row drawn uniformly.

    A batch of b rows has 1/b of it. `params` holds one point per client when `stacked`, else one for all.
    For most losses sigma^2 depends on the point: the uniform bound of definition 1 exists only where it
    does not (`Location` with constant inputs, say).
    """
    loss = convex_loss(objective)
    if loss is None:
        return None
    noise = []
    for client, point in enumerate(client_points(loss, rows.clients, params, stacked=stacked)):
        inputs, targets = rows.of(client)
        design, goals = loss.design(inputs), loss.goals(targets)
        gradients = loss.row_gradients(loss.outputs(design, point), goals)
        weights = rows.weights_of(client)
        # a row is drawn uniformly, and its gradient then weighed: weights are part of the noise
        if weights is not None:
            gradients = weights[:, None] * gradients
        if len(design) == 0:
            noise.append(0.0)
        elif loss.diagonal:
            noise.append(float((design * gradients).var(axis=0).sum()))
        else:
            # a row's gradient is the outer product z r, whose squared norm is |z|^2 |r|^2
            second_moment = ((design**2).sum(axis=1) * (gradients**2).sum(axis=1)).mean()
            mean = design.T @ gradients / len(design)
            noise.append(max(float(second_moment - (mean**2).sum()), 0.0))
    return np.array(noise)
