# SPDX-License-Identifier: Apache-2.0
"""Quadratic problems with known optimum, as rows, so that they run through the same losses as real data.

Linear rows: f_m(v) = (1/2) (v - t)' H (v - t) is the mean over n rows of (1/2) (a_i . v - b_i)^2 with
A = sqrt(n) H^(1/2) and b = A t. Location rows, for diagonal H = diag(h): inputs sqrt(h), targets
sqrt(h) (t + noise of the row); the gradient noise of a row is then -h * noise wherever v is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from idiolect.core.checks import RequestError
from idiolect.data.draws import generator
from idiolect.data.federation import Federation
from idiolect.data.problem import Problem as Problem
from idiolect.data.problem import federate, stack
from idiolect.data.synthetic_logistic import logistic_libsvm_like as logistic_libsvm_like
from idiolect.data.task import Task


def quadratics(
    clients: int,
    dimension: int,
    spectrum: Sequence[float] = (0.1, 1.0),
    heterogeneity: float = 1.0,
    seed: int = 0,
    common_hessian: bool = False,
    *,
    dtype: DTypeLike = np.float32,
) -> Problem:
    """f_m(v) = (1/2) (v - t_m)' H_m (v - t_m), t_m = t + heterogeneity * normal, H_m with this spectrum.

    `spectrum` is (mu, L), between which the other eigenvalues are drawn log-uniformly, or all eigenvalues.
    """
    draws = generator(seed, "quadratics")
    hessians, roots = [], []
    for client in range(clients):
        if client == 0 or not common_hessian:
            values = _eigenvalues(draws, spectrum, dimension)
            # a random rotation: clients share no eigenvectors unless they share the Hessian
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
    dtype: DTypeLike = np.float32,
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
    return location_problem(np.array(diagonals), optimum, np.array(errors), note, dtype, noise**2)


def two_clients(zeta: float, center: float = 0.0, *, dtype: DTypeLike = np.float32) -> Problem:
    """The scalar instance of PLSGD 2023: f_1 = (1/2) (v - center + zeta)^2, f_2 = (1/2) (v - center - zeta)^2."""
    optimum = np.array([[center - zeta], [center + zeta]])
    return location_problem(np.ones((2, 1)), optimum, np.zeros((2, 1, 1)), "Two scalar quadratics.", dtype)


def location_problem(
    diagonals: np.ndarray,
    optimum: np.ndarray,
    errors: np.ndarray,
    note: str,
    dtype: DTypeLike,
    noise_variance: float = 0.0,
    constant: float = 0.0,
) -> Problem:
    """f_m(v) = (1/2) sum_j h_j (v_j - t_j)^2 + constant, from rows with (clients, rows, dimension) errors."""
    roots = np.sqrt(diagonals)[:, None]
    rows = stack(np.broadcast_to(roots, errors.shape), roots * (optimum[:, None] + errors), dtype)
    # the rows' loss holds the noise itself: (1/2) mean h . error^2 above the stated f_m
    excess = (diagonals[:, None] * errors**2).sum(axis=2).mean(axis=1) / 2
    hessians = np.array([np.diag(diagonal) for diagonal in diagonals])
    federation = federate(rows, Task.regression(optimum.shape[1]), note)
    return _quadratic_problem(hessians, optimum, "location", federation, noise_variance, constant - excess)


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
    # centred and scaled to the exact variance, so that tests need no tolerance for chance
    errors -= errors.mean(axis=0)
    return errors * noise / np.sqrt(((diagonal * errors) ** 2).sum(axis=1).mean())


def _quadratic_problem(
    hessians: np.ndarray,
    optimum: np.ndarray,
    model: str,
    federation: Federation,
    noise_variance: float = 0.0,
    constants: np.ndarray | None = None,
) -> Problem:
    values = np.linalg.eigvalsh(hessians)
    squares = [np.square(federation.train.of(client)[0].astype(np.float64)) for client in range(federation.clients)]
    if model == "linear":  # one gradient per row; a location row has one for every coordinate
        squares = [own.sum(axis=1) for own in squares]
    return Problem(
        federation,
        model=model,
        criterion="squared",
        dimension=optimum.shape[1],
        smoothness=values[:, -1],
        strong_convexity=values[:, 0],
        optimum=optimum,
        shared_optimum=np.linalg.solve(hessians.sum(axis=0), np.einsum("mij,mj->i", hessians, optimum)),
        hessians=hessians,
        constants=np.zeros(len(optimum)) if constants is None else constants,
        noise_variance=noise_variance,
        component_smoothness=np.array([own.max() for own in squares]),
    )
