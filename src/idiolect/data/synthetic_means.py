# SPDX-License-Identifier: Apache-2.0
"""Mean estimation around given places: f_m(v) = (1/2) |v - place_m|^2, from noisy rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.draws import generator
from idiolect.data.problem import Problem, federate, stack
from idiolect.data.task import Task


def means_at(places: Any, samples: int = 1, noise: float = 0.0, seed: int = 0, *, dtype: Any = np.float32) -> Problem:
    """Client m's rows are place_m plus a normal vector with mean squared length noise^2; `truth` holds the places.

    `places` is (clients, dimension). `optimum` is the mean of a client's rows, exactly its place without noise.
    """
    truth = np.asarray(places, np.float64)
    if truth.ndim != 2 or not truth.size:
        raise RequestError(f"places must be a matrix with one row per client, got shape {truth.shape}.")
    clients, dimension = truth.shape
    draws = generator(seed, "means at places")
    errors = draws.normal(size=(clients, samples, dimension)) * noise / np.sqrt(dimension)
    targets = truth[:, None] + errors
    rows = stack(np.ones_like(targets), targets, dtype)
    optimum = targets.mean(axis=1)
    note = f"{clients} clients estimate a mean in {dimension} dimensions from {samples} rows each."
    return Problem(
        federate(rows, Task.regression(dimension), note),
        model="location",
        criterion="squared",
        dimension=dimension,
        smoothness=np.ones(clients),
        strong_convexity=np.ones(clients),
        optimum=optimum,
        shared_optimum=optimum.mean(axis=0),
        hessians=np.tile(np.eye(dimension), (clients, 1, 1)),
        noise_variance=noise**2,
        component_smoothness=np.ones(clients),
        truth=truth,
    )
