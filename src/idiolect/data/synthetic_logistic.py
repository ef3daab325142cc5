# SPDX-License-Identifier: Apache-2.0
"""Logistic problems: labels are 0 / 1 class numbers with P(y = 1) = sigmoid(x . v)."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from idiolect.core.data import Rows
from idiolect.data.draws import generator
from idiolect.data.problem import Problem, federate, stack
from idiolect.data.task import Task

SIGN_CLASSES = ("negative", "positive")
Drawn: TypeAlias = list[tuple[np.ndarray, np.ndarray]]  # inputs and labels, client by client


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
    dtype: DTypeLike = np.float32,
) -> Problem:
    """0/1 features like LIBSVM's a6a or w6a, l2-regularised as in Scafflix 2023, with clients that differ.

    Feature frequencies lie around `density` and vary over clients, and so do the true vectors, both with
    `heterogeneity` (0: clients are alike). mu_m = l2 and L_m = lambda_max(X'X) / (4 n) + l2.
    """
    draws = generator(seed, "logistic libsvm like")
    common = draws.normal(size=dimension)
    truth = common + heterogeneity * draws.normal(size=(clients, dimension))
    frequencies = sigmoid(np.log(density / (1 - density)) + heterogeneity * draws.normal(size=(clients, dimension)))

    def sample(amount: int) -> Drawn:
        drawn = []
        for vector, frequency in zip(truth, frequencies):
            inputs = (draws.uniform(size=(amount, dimension)) < frequency).astype(np.float64)
            drawn.append((inputs, (draws.uniform(size=amount) < sigmoid(inputs @ vector)).astype(np.int32)))
        return drawn

    train, test = sample(rows), sample(test_rows)
    note = f"{clients} logistic clients with 0/1 features, heterogeneity {heterogeneity:g}."
    return logistic_problem(train, test, truth, truth, common, note, dtype, l2)


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-values)), written out: published data were drawn with the last bits of this form."""
    return 1 / (1 + np.exp(-values))


def _rows(drawn: Drawn, dtype: DTypeLike) -> Rows:
    return stack([inputs for inputs, _ in drawn], [labels for _, labels in drawn], dtype)


def logistic_problem(
    train: Drawn,
    test: Drawn,
    vectors: np.ndarray,
    truth: np.ndarray,
    shared_truth: np.ndarray,
    note: str,
    dtype: DTypeLike,
    l2: float = 0.0,
) -> Problem:
    """The problem and its curvature: a logistic row's Hessian is s (1 - s) x x' with s (1 - s) <= 1/4."""
    weighted = []
    for (inputs, _), vector in zip(train, vectors):
        chance = sigmoid(inputs @ vector)
        # the Hessian of the mean logistic loss at the vector that drew the labels
        weighted.append((inputs * (chance * (1 - chance))[:, None]).T @ inputs / len(inputs))
    tested = _rows(test, dtype) if len(test[0][1]) else None
    return Problem(
        federate(_rows(train, dtype), Task.classification(SIGN_CLASSES), note, tested),
        model="linear",
        criterion="logistic",
        dimension=vectors.shape[1],
        smoothness=np.array([np.linalg.eigvalsh(x.T @ x)[-1] / (4 * len(x)) + l2 for x, _ in train]),
        strong_convexity=np.full(len(train), l2),
        l2=l2,
        component_smoothness=np.array([np.square(x).sum(axis=1).max() / 4 + l2 for x, _ in train]),
        truth=truth,
        shared_truth=shared_truth,
        curvature_at_truth=float(np.linalg.eigvalsh(np.mean(weighted, axis=0))[0]) + l2,
    )
