# SPDX-License-Identifier: Apache-2.0
"""Quadratic problems with known optimum, as rows, so that they run through the same losses as real data.

Linear rows: f_m(v) = (1/2) (v - t)' H (v - t) is the mean over n rows of (1/2) (a_i . v - b_i)^2 with
A = sqrt(n) H^(1/2) and b = A t. Location rows, for diagonal H = diag(h): inputs sqrt(h), targets
sqrt(h) (t + noise of the row); the gradient noise of a row is then -h * noise wherever v is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.draws import generator
from idiolect.data.problem import Problem, federate, stack
from idiolect.data.synthetic_logistic import logistic_libsvm_like, logistic_mixture, logistic_weight_sharing
from idiolect.data.task import Task

__all__ = [
    "Problem",
    "bernoulli_means",
    "logistic_libsvm_like",
    "logistic_mixture",
    "logistic_weight_sharing",
    "noisy_quadratics",
    "quadratics",
    "trajectory_instance",
    "two_clients",
]


def quadratics(
    clients: int,
    dimension: int,
    spectrum: Sequence[float] = (0.1, 1.0),
    heterogeneity: float = 1.0,
    seed: int = 0,
    common_hessian: bool = False,
    *,
    dtype: Any = np.float32,
) -> Problem:
    """f_m(v) = (1/2) (v - t_m)' H_m (v - t_m), t_m = t + heterogeneity * normal, H_m with this spectrum.

    `spectrum` is (mu, L), between which the other eigenvalues are drawn log-uniformly, or all eigenvalues.
    """
    draws = generator(seed, "quadratics")
    hessians, roots = [], []
    for client in range(clients):
        if client == 0 or not common_hessian:
            values = _eigenvalues(draws, spectrum, dimension)
            basis = np.linalg.qr(draws.normal(size=(dimension, dimension)))[0]
            hessian, root = ((basis * diagonal) @ basis.T for diagonal in (values, np.sqrt(values)))
        hessians.append(hessian)
        roots.append(np.sqrt(dimension) * root)
    optimum = _targets(draws, clients, dimension, heterogeneity)
    rows = stack(roots, [root @ t for root, t in zip(roots, optimum)], dtype)
    note = f"{clients} quadratics in {dimension} dimensions, {dimension} rows each."
    return _quadratic_problem(np.array(hessians), optimum, "linear", federate(rows, Task.regression(), note))


def noisy_quadratics(
    clients: int,
    dimension: int,
    rows: int,
    spectrum: Sequence[float] = (0.1, 1.0),
    heterogeneity: float = 1.0,
    noise: float = 1.0,
    seed: int = 0,
    common_hessian: bool = False,
    *,
    dtype: Any = np.float32,
) -> Problem:
    """Diagonal quadratics whose single-row gradients have variance exactly noise^2, for every v.

    f_m(v) = (1/2) sum_j h_j (v_j - t_j)^2 + a constant; each client's noise is centred exactly.
    """
    if rows < 2 and noise > 0:
        raise RequestError(f"Centred noise needs at least 2 rows per client, got {rows}; use noise=0 or more rows.")
    draws = generator(seed, "noisy quadratics")
    first = _eigenvalues(draws, spectrum, dimension)
    diagonals = [
        first if common_hessian or client == 0 else draws.permutation(_eigenvalues(draws, spectrum, dimension))
        for client in range(clients)
    ]
    optimum = _targets(draws, clients, dimension, heterogeneity)
    errors = [_centred_noise(draws, rows, diagonal, noise) for diagonal in diagonals]
    note = f"{clients} diagonal quadratics in {dimension} dimensions, {rows} rows each."
    return _location_problem(np.array(diagonals), optimum, errors, note, dtype, noise**2)


def two_clients(zeta: float, center: float = 0.0, *, dtype: Any = np.float32) -> Problem:
    """Paper 000's scalar instance: f_1 = (1/2) (v - center + zeta)^2, f_2 = (1/2) (v - center - zeta)^2."""
    optimum = np.array([[center - zeta], [center + zeta]])
    return _location_problem(np.ones((2, 1)), optimum, [np.zeros((1, 1))] * 2, "Two scalar quadratics.", dtype)


def trajectory_instance(*, dtype: Any = np.float32) -> Problem:
    """Figure 1(b) of paper 000: F_1 = (v1-7)^2 + 2(v2-18)^2 - 1 and F_2 = 2(v1-18)^2 + (v2-13)^2 - 1."""
    diagonals = np.array([[2.0, 4.0], [4.0, 2.0]])  # c (v - t)^2 has second derivative 2 c
    optimum = np.array([[7.0, 18.0], [18.0, 13.0]])
    note = "Two quadratics in the plane, without their constant -1."
    constants = np.array([-1.0, -1.0])
    return _location_problem(diagonals, optimum, [np.zeros((1, 2))] * 2, note, dtype, constants=constants)


def bernoulli_means(
    agents: int = 100, samples: int = 1000, seed: int = 0, *, test_rows: int = 0, dtype: Any = np.float32
) -> Problem:
    """Mean estimation of paper 004: draws of Bernoulli(p_m), p_m uniform on [0, 1], loss (1/2) (v - draw)^2.

    `truth` holds p_m, `optimum` the mean of the training draws.
    """
    draws = generator(seed, "bernoulli means")
    means = draws.uniform(size=agents)

    def tosses(amount: int) -> list[np.ndarray]:
        return [(draws.uniform(size=(amount, 1)) < mean).astype(np.float64) for mean in means]

    drawn = tosses(samples)
    train = stack([np.ones_like(values) for values in drawn], drawn, dtype)
    tested = tosses(test_rows)
    test = stack([np.ones_like(values) for values in tested], tested, dtype) if test_rows else None
    note = f"{agents} agents estimate the mean of {samples} tosses each."
    optimum = np.array([values.mean(axis=0) for values in drawn])
    return Problem(
        federate(train, Task.regression(1), note, test),
        model="location",
        criterion="squared",
        dimension=1,
        smoothness=np.ones(agents),
        strong_convexity=np.ones(agents),
        optimum=optimum,
        shared_optimum=optimum.mean(axis=0),
        hessians=np.ones((agents, 1, 1)),
        component_smoothness=np.ones(agents),
        truth=means[:, None],
    )


def _eigenvalues(draws: np.random.Generator, spectrum: Sequence[float], dimension: int) -> np.ndarray:
    """All eigenvalues in rising order: as given, or (mu, L) with the ones between drawn log-uniformly."""
    given = np.sort(np.asarray(spectrum, np.float64))
    if given.ndim != 1 or given.size == 0 or given[0] <= 0 or not np.isfinite(given).all():
        raise RequestError(f"spectrum must be positive eigenvalues, or (mu, L) with 0 < mu <= L, got {spectrum}.")
    if given.size == dimension:
        return given
    if given.size != 2:
        raise RequestError(f"spectrum must be (mu, L) or {dimension} eigenvalues, got {given.size} numbers.")
    if dimension == 1:
        return given[1:]
    between = np.exp(draws.uniform(np.log(given[0]), np.log(given[1]), dimension - 2))
    return np.sort(np.concatenate([given, between]))


def _targets(draws: np.random.Generator, clients: int, dimension: int, heterogeneity: float) -> np.ndarray:
    common = draws.normal(size=dimension)
    return common + heterogeneity * draws.normal(size=(clients, dimension))


def _centred_noise(draws: np.random.Generator, rows: int, diagonal: np.ndarray, noise: float) -> np.ndarray:
    """(rows, dimension) with mean zero in each column and mean |h * row|^2 = noise^2."""
    if noise == 0:
        return np.zeros((rows, len(diagonal)))
    errors = draws.normal(size=(rows, len(diagonal)))
    errors -= errors.mean(axis=0)
    return errors * noise / np.sqrt(((diagonal * errors) ** 2).sum(axis=1).mean())


def _location_problem(
    diagonals: np.ndarray,
    optimum: np.ndarray,
    errors: Sequence[np.ndarray],
    note: str,
    dtype: Any,
    noise_variance: float = 0.0,
    constants: np.ndarray | None = None,
) -> Problem:
    roots = np.sqrt(diagonals)
    inputs = [np.broadcast_to(root, error.shape) for root, error in zip(roots, errors)]
    targets = [root * (t + error) for root, t, error in zip(roots, optimum, errors)]
    # the rows' loss holds the noise itself: (1/2) mean h . error^2 above the stated f_m
    excess = [(diagonal * error**2).sum(axis=1).mean() / 2 for diagonal, error in zip(diagonals, errors)]
    federation = federate(stack(inputs, targets, dtype), Task.regression(optimum.shape[1]), note)
    hessians = np.array([np.diag(diagonal) for diagonal in diagonals])
    stated = -np.array(excess) if constants is None else constants - np.array(excess)
    return _quadratic_problem(hessians, optimum, "location", federation, noise_variance, stated)


def _quadratic_problem(
    hessians: np.ndarray,
    optimum: np.ndarray,
    model: str,
    federation: Any,
    noise_variance: float = 0.0,
    constants: np.ndarray | None = None,
) -> Problem:
    values = np.linalg.eigvalsh(hessians)
    pulls = np.einsum("mij,mj->i", hessians, optimum)
    rows = [federation.train.of(client)[0].astype(np.float64) for client in range(federation.clients)]
    if model == "linear":
        component = [np.square(inputs).sum(axis=1).max() for inputs in rows]
    else:
        component = [np.square(inputs).max() for inputs in rows]
    return Problem(
        federation,
        model=model,
        criterion="squared",
        dimension=optimum.shape[1],
        smoothness=values[:, -1],
        strong_convexity=values[:, 0],
        optimum=optimum,
        shared_optimum=np.linalg.solve(hessians.sum(axis=0), pulls),
        hessians=hessians,
        constants=np.zeros(len(optimum)) if constants is None else constants,
        noise_variance=noise_variance,
        component_smoothness=np.array(component),
    )
