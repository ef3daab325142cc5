# SPDX-License-Identifier: Apache-2.0
"""The spectral radius of who listens to whom, which bounds the step sizes of those that learn together."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

from idiolect.core import mixing
from idiolect.core.mixing import Neighbours

FEW_AGENTS = 20  # whose matrix is quickly taken apart whole


def spectral_radius(neighbours: Neighbours, tolerance: float = 1e-4) -> float:
    """rho(W), W = Lambda Lambda^T, on the host, within `tolerance` relatively.

    W has no negative entry, so each of its blocks has a largest eigenvector without one: a search that starts at the
    vector of ones reaches them all.
    """
    agents = neighbours.agents
    if agents < FEW_AGENTS:
        return float(np.linalg.norm(mixing.dense(neighbours), 2) ** 2)
    own = np.asarray(neighbours.weights, np.float64)
    if not neighbours.is_dense:
        listeners = np.broadcast_to(np.arange(agents), own.shape)
        pairs = (listeners.reshape(-1), np.asarray(neighbours.indices).reshape(-1))
        own = csr_array((own.reshape(-1), pairs), shape=(agents, agents))
    both = LinearOperator((agents, agents), matvec=lambda vector: own @ (own.T @ vector), dtype=np.float64)
    start = np.full(agents, agents**-0.5)
    return float(eigsh(both, k=1, which="LA", v0=start, tol=tolerance, return_eigenvectors=False)[0])
