# SPDX-License-Identifier: Apache-2.0
"""The two logistic problems of Unified 2023, drawn as its authors did: NumPy's legacy generator, seed 111.

Labels are 0 / 1 class numbers with P(y = 1) = sigmoid(x . v), the sign of the authors' code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from idiolect.data import Problem
from idiolect.data.synthetic_logistic import Drawn, logistic_problem, sigmoid


def logistic_mixture(
    heterogeneity: float = 0.1,
    *,
    clients: int = 20,
    rows: int = 1000,
    dimension: int = 15,
    seed: int = 111,
    test_rows: int = 0,
    dtype: DTypeLike = np.float32,
) -> Problem:
    """Data for the mixture objective MX2: beta_m = w + shift_m, features U[0.2, 0.5].

    w is U[0.49, 0.51], shift_m is U[mean_m - 0.01, mean_m + 0.01] with mean_m normal of deviation
    `heterogeneity`. The paper's penalty is 0.01 / heterogeneity. `truth` holds beta_m, `shared_truth` w.
    """
    shared = np.random.RandomState(seed).uniform(0.49, 0.51, dimension)
    draws = np.random.RandomState(seed)  # the authors seed again after drawing w
    truth = shared + _shifts(draws, clients, dimension, heterogeneity)
    train = _draw_rows(draws, truth, rows, 0.2, 0.5)
    test = _draw_rows(draws, truth, test_rows, 0.2, 0.5)
    note = f"{clients} logistic clients around one vector, heterogeneity {heterogeneity:g}."
    return logistic_problem(train, test, truth, truth, shared, note, dtype)


def logistic_weight_sharing(
    heterogeneity: float = 5.0,
    *,
    clients: int = 20,
    rows: int = 1000,
    shared_dimension: int = 10,
    personal_dimension: int = 5,
    seed: int = 111,
    test_rows: int = 0,
    dtype: DTypeLike = np.float32,
) -> Problem:
    """Data for weight sharing WS2: client m's vector is [w, beta_m], features U[0, 0.1].

    w is standard normal, beta_m is U[mean_m - 0.01, mean_m + 0.01] with mean_m normal of deviation
    `heterogeneity`. `truth` holds beta_m (the last inputs), `shared_truth` w (the first).
    """
    shared = np.random.RandomState(seed).normal(0.0, 1.0, shared_dimension)
    draws = np.random.RandomState(seed)  # the authors seed again after drawing w
    truth = _shifts(draws, clients, personal_dimension, heterogeneity)
    whole = np.concatenate([np.tile(shared, (clients, 1)), truth], axis=1)
    train = _draw_rows(draws, whole, rows, 0.0, 0.1)
    test = _draw_rows(draws, whole, test_rows, 0.0, 0.1)
    note = f"{clients} logistic clients that share {shared_dimension} weights, heterogeneity {heterogeneity:g}."
    return logistic_problem(train, test, whole, truth, shared, note, dtype)


def _shifts(draws: np.random.RandomState, clients: int, dimension: int, heterogeneity: float) -> np.ndarray:
    """All clients' means first, then their vectors one after another."""
    means = draws.normal(0.0, heterogeneity, clients)
    return np.stack([draws.uniform(mean - 0.01, mean + 0.01, dimension) for mean in means])


def _draw_rows(draws: np.random.RandomState, vectors: np.ndarray, rows: int, low: float, high: float) -> Drawn:
    """Per client: all features, then all labels."""
    drawn = []
    for vector in vectors:
        inputs = draws.uniform(low, high, (rows, vectors.shape[1]))
        drawn.append((inputs, draws.binomial(1, sigmoid(inputs @ vector)).astype(np.int32)))
    return drawn
