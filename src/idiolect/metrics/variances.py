# SPDX-License-Identifier: Apache-2.0
"""Variances of few observations each, steadied by those of the other clients (Smyth, 2004)."""

from __future__ import annotations

import numpy as np
from scipy import special

FEWEST = 3  # clients with a variance; fewer say nothing about each other
CERTAIN = 1e6  # degrees of freedom that stand for infinitely many


def moderate(variance: np.ndarray, freedom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(d0 s0^2 + d s^2) / (d0 + d) and d0 + d of each client, s^2 its variance and d its degrees of freedom.

    s0^2 and d0 are fitted to all clients; d0 is small where variances truly differ. A client whose variance is
    not-a-number takes s0^2; one of 0, whose observations all agree, keeps it. With under `FEWEST` nothing changes.
    """
    with np.errstate(invalid="ignore"):
        used = np.isfinite(variance) & (variance > 0) & (freedom > 0)
    if used.sum() < FEWEST:
        return variance, freedom
    prior, strength = _fit(variance[used], freedom[used])
    own = np.where(used, freedom, 0.0)
    weight = np.divide(own, strength + own)
    steadied = prior + weight * (np.where(used, variance, prior) - prior)
    borrows = used | np.isnan(variance)
    return np.where(borrows, steadied, variance), np.where(borrows, strength + own, freedom)


def _fit(variance: np.ndarray, freedom: np.ndarray) -> tuple[float, float]:
    """s0^2 and d0 by the moments of log s^2."""
    # Smyth's (2004) moments: the logarithm of a chi-squared variance has a known mean and spread, whatever its scale
    logs = np.log(variance) - special.digamma(freedom / 2) + np.log(freedom / 2)
    centre, excess = float(logs.mean()), float(logs.var(ddof=1) - special.polygamma(1, freedom / 2).mean())
    if excess <= 2 / CERTAIN:  # they differ by chance alone
        return float(np.average(variance, weights=freedom)), CERTAIN
    half = 0.5 + 1 / excess
    for _ in range(60):  # Newton's method for trigamma(half) = excess
        trigamma = float(special.polygamma(1, half))
        half += trigamma * (1 - trigamma / excess) / float(special.polygamma(2, half))
    return float(np.exp(centre + special.digamma(half) - np.log(half))), 2 * half
