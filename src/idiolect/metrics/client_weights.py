# SPDX-License-Identifier: Apache-2.0
"""How much each client counts where candidates are compared over clients of very different numbers of rows."""

from __future__ import annotations

import numpy as np


def client_weights(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """1 / (t + s / rows) per client, from (methods, folds, clients) scores.

    A method's lead over the mean of all methods has the variance t between clients, and s / rows from a client's rows,
    which folds show. Equal weights where there is one fold or one client with scores of all methods.
    """
    known = np.isfinite(scores).all(axis=(0, 1)) & (rows > 0)
    methods, folds, clients = len(scores), scores.shape[1], int(known.sum())
    if methods < 2 or folds < 2 or clients < 2:
        return np.ones(len(rows))
    leads = (scores - scores.mean(axis=0))[:, :, known]
    noise = leads.var(axis=1, ddof=1) * overlap(folds)  # of a client's mean over folds, (methods, clients)
    per_row = float((noise * rows[known]).mean())
    between = max(0.0, float(leads.mean(axis=1).var(axis=1, ddof=1).mean() - (per_row / rows[known]).mean()))
    if per_row == 0:
        return np.ones(len(rows))
    return 1 / (between + per_row / np.maximum(rows, 1))


def overlap(folds: int) -> float:
    """Variance of a mean over folds, as part of that of one: their training rows overlap (Nadeau and Bengio 2003)."""
    return 1 / folds + 1 / (folds - 1)
