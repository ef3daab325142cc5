# SPDX-License-Identifier: Apache-2.0
"""Logistic problems: the two generators of paper 002, drawn as its authors did, and one of 0/1 features.

Labels are 0 / 1 class numbers with P(y = 1) = sigmoid(x . v), the sign of the authors' code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from idiolect.core.data import Rows
from idiolect.data.draws import generator
from idiolect.data.problem import Problem, federate, stack
from idiolect.data.task import Task

SIGN_CLASSES = ("negative", "positive")


def logistic_mixture(
    heterogeneity: float = 0.1,
    *,
    clients: int = 20,
    rows: int = 1000,
    dimension: int = 15,
    seed: int = 111,
    test_rows: int = 0,
    dtype: Any = np.float32,
) -> Problem:
    """Paper 002's data for the mixture objective MX2: beta_m = w + shift_m, features U[0.2, 0.5].

    w is U[0.49, 0.51], shift_m is U[mean_m - 0.01, mean_m + 0.01] with mean_m normal of deviation
    `heterogeneity`. The paper's penalty is 0.01 / heterogeneity. `truth` holds beta_m, `shared_truth` w.
    """
    shared = np.random.RandomState(seed).uniform(0.49, 0.51, dimension)
    draws = np.random.RandomState(seed)  # the authors seed again after drawing w
    truth = shared + _shifts(draws, clients, dimension, heterogeneity)
    train = _draw_rows(draws, truth, rows, 0.2, 0.5)
    test = _draw_rows(draws, truth, test_rows, 0.2, 0.5)
    note = f"{clients} logistic clients around one vector, heterogeneity {heterogeneity:g}."
    return _logistic_problem(train, test, truth, truth, shared, note, dtype)


def logistic_weight_sharing(
    heterogeneity: float = 5.0,
    *,
    clients: int = 20,
    rows: int = 1000,
    shared_dimension: int = 10,
    personal_dimension: int = 5,
    seed: int = 111,
    test_rows: int = 0,
    dtype: Any = np.float32,
) -> Problem:
    """Paper 002's data for weight sharing WS2: client m's vector is [w, beta_m], features U[0, 0.1].

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
    return _logistic_problem(train, test, whole, truth, shared, note, dtype)


def logistic_libsvm_like(
    clients: int = 8,
    rows: int = 100,
    dimension: int = 20,
    heterogeneity: float = 1.0,
    seed: int = 0,
    *,
    l2: float = 0.1,
    density: float = 0.2,
    test_rows: int = 0,
    dtype: Any = np.float32,
) -> Problem:
    """0/1 features like LIBSVM's a6a or w6a, l2-regularised as in paper 001, with clients that differ.

    Feature frequencies lie around `density` and vary over clients, and so do the true vectors, both with
    `heterogeneity` (0: clients are alike). mu_m = l2 and L_m = lambda_max(X'X) / (4 n) + l2.
    """
    draws = generator(seed, "logistic libsvm like")
    common = draws.normal(size=dimension)
    truth = common + heterogeneity * draws.normal(size=(clients, dimension))
    base = np.log(density / (1 - density))
    frequencies = 1 / (1 + np.exp(-(base + heterogeneity * draws.normal(size=(clients, dimension)))))

    def sample(amount: int) -> list[tuple[np.ndarray, np.ndarray]]:
        drawn = []
        for vector, frequency in zip(truth, frequencies):
            inputs = (draws.uniform(size=(amount, dimension)) < frequency).astype(np.float64)
            drawn.append((inputs, (draws.uniform(size=amount) < _sigmoid(inputs @ vector)).astype(np.int32)))
        return drawn

    train = sample(rows)
    test = sample(test_rows)
    note = f"{clients} logistic clients with 0/1 features, heterogeneity {heterogeneity:g}."
    return _logistic_problem(train, test, truth, truth, common, note, dtype, l2)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def _shifts(draws: np.random.RandomState, clients: int, dimension: int, heterogeneity: float) -> np.ndarray:
    """All clients' means first, then their vectors one after another."""
    means = draws.normal(0.0, heterogeneity, clients)
    return np.stack([draws.uniform(mean - 0.01, mean + 0.01, dimension) for mean in means])


def _draw_rows(
    draws: np.random.RandomState, vectors: np.ndarray, rows: int, low: float, high: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per client: all features, then all labels."""
    drawn = []
    for vector in vectors:
        inputs = draws.uniform(low, high, (rows, vectors.shape[1]))
        drawn.append((inputs, draws.binomial(1, _sigmoid(inputs @ vector)).astype(np.int32)))
    return drawn


def _rows(drawn: list[tuple[np.ndarray, np.ndarray]], dtype: Any) -> Rows:
    return stack([inputs for inputs, _ in drawn], [labels for _, labels in drawn], dtype)


def _logistic_problem(
    train: list[tuple[np.ndarray, np.ndarray]],
    test: list[tuple[np.ndarray, np.ndarray]],
    vectors: np.ndarray,
    truth: np.ndarray,
    shared_truth: np.ndarray,
    note: str,
    dtype: Any,
    l2: float = 0.0,
) -> Problem:
    """The problem and its curvature: a logistic row's Hessian is s (1 - s) x x' with s (1 - s) <= 1/4."""
    smoothness = [np.linalg.eigvalsh(inputs.T @ inputs)[-1] / (4 * len(inputs)) + l2 for inputs, _ in train]
    component = [np.square(inputs).sum(axis=1).max() / 4 + l2 for inputs, _ in train]
    weighted = []
    for (inputs, _), vector in zip(train, vectors):
        chance = _sigmoid(inputs @ vector)
        weighted.append((inputs * (chance * (1 - chance))[:, None]).T @ inputs / len(inputs))
    tested = _rows(test, dtype) if len(test[0][1]) else None
    return Problem(
        federate(_rows(train, dtype), Task.classification(SIGN_CLASSES), note, tested),
        model="linear",
        criterion="logistic",
        dimension=vectors.shape[1],
        smoothness=np.array(smoothness),
        strong_convexity=np.full(len(train), l2),
        l2=l2,
        component_smoothness=np.array(component),
        truth=truth,
        shared_truth=shared_truth,
        curvature_at_truth=float(np.linalg.eigvalsh(np.mean(weighted, axis=0))[0]) + l2,
    )
