# SPDX-License-Identifier: Apache-2.0
"""Mean estimation, the problems of All-for-all 2022: f_m(v) = (1/2) |v - mean_m|^2, from rows around the mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from idiolect import RequestError
from idiolect.data import Problem, Task
from idiolect.data.draws import generator
from idiolect.data.problem import federate, stack


def bernoulli_means(
    agents: int = 100, samples: int = 1000, seed: int = 0, *, test_rows: int = 0, dtype: DTypeLike = np.float32
) -> Problem:
    """Draws of Bernoulli(p_m), p_m uniform on [0, 1], loss (1/2) (v - draw)^2; `truth` holds p_m."""
    draws = generator(seed, "bernoulli means")
    means = draws.uniform(size=agents)

    def tosses(amount: int) -> np.ndarray:
        return np.array([draws.uniform(size=(amount, 1)) < mean for mean in means], np.float64)

    drawn, tested = tosses(samples), tosses(test_rows)
    note = f"{agents} agents estimate the mean of {samples} tosses each."
    return _means_problem(drawn, means[:, None], note, dtype, test=tested if test_rows else None)


def means_at(
    places: ArrayLike, samples: int = 1, noise: float = 0.0, seed: int = 0, *, dtype: DTypeLike = np.float32
) -> Problem:
    """Client m's rows are place_m plus a normal vector with mean squared length noise^2; `truth` holds the places."""
    truth = np.asarray(places, np.float64)
    if truth.ndim != 2 or not truth.size:
        raise RequestError(f"places must be a matrix with one row per client, got shape {truth.shape}.")
    clients, dimension = truth.shape
    errors = generator(seed, "means at places").normal(size=(clients, samples, dimension))
    note = f"{clients} clients estimate a mean in {dimension} dimensions from {samples} rows each."
    rows = truth[:, None] + errors * noise / np.sqrt(dimension)
    return _means_problem(rows, truth, note, dtype, noise_variance=noise**2)


def _means_problem(
    rows: np.ndarray,
    truth: np.ndarray,
    note: str,
    dtype: DTypeLike,
    test: np.ndarray | None = None,
    noise_variance: float = 0.0,
) -> Problem:
    """The problem of (clients, rows, dimension); a client's optimum is the mean of its rows."""
    clients, _, dimension = rows.shape
    tested = None if test is None else stack(np.ones_like(test), test, dtype)
    optimum, ones = rows.mean(axis=1), np.ones(clients)
    return Problem(
        federate(stack(np.ones_like(rows), rows, dtype), Task.regression(dimension), note, tested),
        model="location",
        criterion="squared",
        dimension=dimension,
        smoothness=ones,
        strong_convexity=ones,
        optimum=optimum,
        shared_optimum=optimum.mean(axis=0),
        hessians=np.tile(np.eye(dimension), (clients, 1, 1)),
        noise_variance=noise_variance,
        component_smoothness=ones,
        truth=truth,
    )
