# SPDX-License-Identifier: Apache-2.0
"""The collaboration map: each client's neighbours, their weights, and what they are predicted to save."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from idiolect.core.mixing import check_weights

_STEPS = 200  # of the drawing's springs
SMALLEST_SHARE = 0.01  # neighbours with less are counted in the weights, but not named


class CollaborationMap(NamedTuple):
    """Row-stochastic Lambda read as a graph."""

    shares: np.ndarray  # (clients, clients) lambda_ij
    effective: np.ndarray  # (clients,) N_i: how many of its own samples client i's weighted rows are worth
    order: np.ndarray  # (clients,) clients so that those who share stand side by side
    places: np.ndarray  # (clients, 2) where a drawing puts them, in [-1, 1]

    @property
    def sample_saving(self) -> float:
        """(1/N) sum 1/N_i: samples needed, collaborating over alone (All-for-all 2022, corrected wording: E004-6)."""
        return float(np.mean(1 / self.effective))

    @property
    def speed_up(self) -> float:
        """Harmonic mean of the N_i."""
        return 1 / self.sample_saving


def collaboration_map(shares: np.ndarray, counts: np.ndarray) -> CollaborationMap:
    """N_i = (1/n_i) / sum_j lambda_ij^2 / n_j: for equal sizes and equal weights the number of neighbours."""
    matrix = check_weights(shares)
    rows = np.maximum(np.asarray(counts, np.float64), 1)
    effective = (1 / rows) / np.maximum((matrix**2 / rows).sum(axis=1), 1e-300)
    return CollaborationMap(matrix, effective, _order(matrix), _places(matrix))


def _order(shares: np.ndarray) -> np.ndarray:
    if len(shares) < 3:
        return np.arange(len(shares))
    both = (shares + shares.T) / 2
    distance = 1 - both / max(float(both.max()), 1e-300)
    np.fill_diagonal(distance, 0.0)
    return np.asarray(leaves_list(linkage(squareform(distance, checks=False), "average")))


def _places(shares: np.ndarray) -> np.ndarray:
    """Springs between those who share, repulsion between all (Fruchterman and Reingold 1991), from a circle."""
    agents = len(shares)
    angles = 2 * np.pi * np.argsort(_order(shares)) / max(agents, 1)
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if agents < 3 or agents > 1000:
        return places
    pull = (shares + shares.T) / 2
    np.fill_diagonal(pull, 0.0)
    pull = pull / max(float(pull.max()), 1e-300)
    ideal = 1 / np.sqrt(agents)
    for step in range(_STEPS):
        gap = places[:, None] - places[None]
        length = np.maximum(np.sqrt((gap**2).sum(axis=2)), 1e-3)
        force = (ideal**2 / length**2 - pull * length / ideal)[..., None] * gap
        move = force.sum(axis=1) - 0.5 * places  # a weak pull inwards keeps clients without neighbours on the page
        reach = np.maximum(np.sqrt((move**2).sum(axis=1, keepdims=True)), 1e-12)
        places = places + move / reach * np.minimum(reach, 0.2 * (1 - step / _STEPS))
    places = places - places.mean(axis=0)
    return places / max(float(np.abs(places).max()), 1e-12)
