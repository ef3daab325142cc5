# SPDX-License-Identifier: Apache-2.0
"""All-for-all 2022: steps, bounds, sample sizes and phases of all-for-all and all-for-one (errata E004-1 to E004-6).

N clients; `shares` is Ssum = sum_i 1/N_i, N_i the clients that i listens to; eps `accuracy`, L `smoothness`, mu
`strong_convexity`, sigma^2 `noise` and B^2 `second_moment` (of one gradient), D `radius`, rho(W) `spectral_radius`.
Setting 1: convex losses, one client per round; setting 2: strongly convex and smooth ones, all clients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

from idiolect.core import mixing
from idiolect.core.data import Rows
from idiolect.core.mixing import Discrepancies, Neighbours, Phases
from idiolect.core.objective import Objective
from idiolect.theory.constants import Constants
from idiolect.theory.heterogeneity import gradient_noise
from idiolect.theory.optimum import local_optima
from idiolect.theory.rule import Rule, StepAdvice

_ENOUGH = 1e-6  # relative error of rho(W)
_LEVELS = 500  # accuracies tried where b takes more values


def stable_step(smoothness: float, spectral_radius: float) -> float:
    """1/(2 L rho(W)); the paper prints 1/(2L), which diverges where rho(W) is large (E004-4)."""
    return 1 / (2 * smoothness * spectral_radius)


def spectral_radius(neighbours: Neighbours) -> float:
    """rho(W), W = Lambda Lambda^T, on the host; never W itself, whose pairs need not fit in memory."""
    agents, weights = neighbours.agents, np.asarray(neighbours.weights, float)
    if agents == 1:  # too small for Lanczos's method
        return float(weights.sum() ** 2)
    matrix: Any = weights
    if not neighbours.is_dense:
        listeners = np.broadcast_to(np.arange(agents), weights.shape)
        places = listeners.ravel(), np.asarray(neighbours.indices).ravel()
        matrix = csr_array((weights.ravel(), places), shape=(agents, agents))
    product = LinearOperator((agents, agents), matvec=lambda v: matrix @ (matrix.T @ v), dtype=float)
    # W has no negative entry, so each of its blocks has a largest eigenvector without one: ones reach them all
    (largest,) = eigsh(product, 1, which="LA", v0=np.ones(agents), tol=_ENOUGH, return_eigenvectors=False)
    return float(largest)


def asynchronous_step(accuracy: float, second_moment: float, agents: int, shares: float) -> float:
    """Theorem 4.1: eta = N eps/(2 B^2 Ssum), the minimiser of the bound at K = 4 D^2 B^2 Ssum/eps^2 (E004-3)."""
    return agents * accuracy / (2 * second_moment * shares)


def synchronous_step(
    accuracy: float,
    *,
    smoothness: float,
    strong_convexity: float,
    noise: float,
    agents: int,
    shares: float,
    spectral_radius: float,
) -> float:
    """Theorem 4.2: eta = min{1/(2 L rho(W)), mu N eps/(4 L sigma^2 Ssum)}."""
    most = stable_step(smoothness, spectral_radius)
    # exact gradients leave no floor to stay above: only stability limits the step
    if noise == 0:
        return most
    return min(most, strong_convexity * agents * accuracy / (4 * smoothness * noise * shares))


def bias(weights: np.ndarray, discrepancy: np.ndarray) -> float:
    """Lemma 3: (1/N) sum_ij lambda_ij b_ij, what F cannot fall below by the theorem."""
    return float((np.where(weights > 0, weights * discrepancy, 0.0)).sum() / len(weights))


def saving(counts: Any) -> float:
    """The speed-up over training alone: the harmonic mean of the N_i (the paper calls its inverse so, E004-6)."""
    number = np.asarray(counts, float)
    return float(len(number) / (1 / number).sum())


def asynchronous_samples(accuracy: float, radius: float, second_moment: float, shares: float) -> float:
    """Theorem 4.1: T = (4 D^2 B^2/eps^2) Ssum samples in all; training alone has Ssum = N."""
    return 4 * radius**2 * second_moment / accuracy**2 * shares


def contraction(strong_convexity: float, step_size: float, weights: np.ndarray) -> float:
    """Noise-free, per round: F falls by 1 - eta mu lambda_min^+(W) at least; the paper prints 1 - eta mu (E004-5)."""
    eigenvalues = np.linalg.eigvalsh(weights @ weights.T)
    # directions in which W is 0 never move: the least of its other eigenvalues sets the pace
    least = eigenvalues[eigenvalues > 1e-10 * eigenvalues.max()].min()
    return 1 - step_size * strong_convexity * float(least)


def largest_noise(objective: Objective, rows: Rows, batch_size: int) -> float | None:
    """sigma^2: the largest variance of a batch's gradient at a client's own optimum; None where that is not known."""
    if batch_size == 0:
        return 0.0
    own = local_optima(objective, rows)
    noise = None if own is None else gradient_noise(objective, rows, own, stacked=True)
    return None if noise is None else float(noise.max()) / batch_size


def neighbourhood_counts(discrepancies: Discrepancies, accuracy: float) -> np.ndarray:
    """N_i(eps), itself included."""
    close = np.asarray(discrepancies.values) <= accuracy / 2
    return close.sum(axis=1 if isinstance(discrepancies.indices, tuple) else 0)


def neighbours_within(discrepancies: Discrepancies, accuracy: float) -> Neighbours:
    """Lambda of an accuracy, on the host in float64."""
    share = 1 / neighbourhood_counts(discrepancies, accuracy)
    close = np.asarray(discrepancies.values) <= accuracy / 2
    if isinstance(discrepancies.indices, tuple):
        return Neighbours((), close * share[:, None])
    listeners = np.asarray(discrepancies.listeners)
    theirs = (np.asarray(discrepancies.listener_values) <= accuracy / 2) * share[listeners]
    return Neighbours(np.asarray(discrepancies.indices), close * share[None], listeners, theirs)


def doubling(
    discrepancies: Discrepancies,
    rounds: int,
    *,
    first_accuracy: float,
    smoothness: float,
    strong_convexity: float,
    noise: float,
) -> Phases:
    """Setting 2: eps_q = eps_0 2^-q, eta_q = `synchronous_step` of eps_q, K_q = ceil(ln 4/(mu eta_q)).

    As many phases as `rounds` rounds need. The error falls to a quarter over a phase, while its target is halved.
    """
    entries, end, accuracy = [], 0, first_accuracy
    while end < rounds:
        number = neighbourhood_counts(discrepancies, accuracy)
        eta = synchronous_step(
            accuracy,
            smoothness=smoothness,
            strong_convexity=strong_convexity,
            noise=noise,
            agents=discrepancies.agents,
            shares=float((1 / number).sum()),
            spectral_radius=spectral_radius(neighbours_within(discrepancies, accuracy)),
        )
        end += math.ceil(math.log(4) / (strong_convexity * eta))
        entries.append((accuracy, eta, end))
        accuracy /= 2
        if noise == 0 and (number == 1).all():
            break  # nothing is left to refine
    return _phases(entries)


def doubling_convex(
    discrepancies: Discrepancies, rounds: int, *, first_accuracy: float, radius: float, second_moment: float
) -> Phases:
    """Setting 1, proposition 3 corrected: K_q = (4 D^2 B^2/eps_q^2) Ssum_q, eta_q = N eps_q/(2 B^2 Ssum_q) (E004-3)."""
    entries, end, accuracy = [], 0, first_accuracy
    while end < rounds:
        shares = float((1 / neighbourhood_counts(discrepancies, accuracy)).sum())
        eta = asynchronous_step(accuracy, second_moment, discrepancies.agents, shares)
        end += math.ceil(asynchronous_samples(accuracy, radius, second_moment, shares))
        entries.append((accuracy, eta, end))
        accuracy /= 2
    return _phases(entries)


def one_over_k(
    discrepancies: Discrepancies, rounds: int, *, smoothness: float, strong_convexity: float, noise: float
) -> Phases:
    """A phase per round k = 1, 2, ...: eta = min{1/(mu k), 1/(2 L rho(W))}, eps that whose step in theory is 1/(mu k).

    mu N eps/(4 L sigma^2 Ssum(eps)) rises with eps: the least value that b takes (times 2) with at least 1/(mu k).
    """
    values = np.asarray(discrepancies.values, float)
    levels = 2 * np.unique(values[np.isfinite(values)])
    if len(levels) > _LEVELS:  # their quantiles tell as much
        levels = np.quantile(levels, np.linspace(0, 1, _LEVELS))
    shares = np.array([(1 / neighbourhood_counts(discrepancies, level)).sum() for level in levels])
    steps = strong_convexity * discrepancies.agents * levels / (4 * smoothness * noise * shares)
    every = range(1, rounds + 1)
    places = [min(int(np.searchsorted(steps, 1 / (strong_convexity * k))), len(levels) - 1) for k in every]
    caps = {
        place: stable_step(smoothness, spectral_radius(neighbours_within(discrepancies, levels[place])))
        for place in set(places)
    }
    return _phases(
        [(levels[place], min(1 / (strong_convexity * k), caps[place]), k) for k, place in zip(every, places)]
    )


def fixed(accuracy: float, step_sizes: np.ndarray) -> Phases:
    """One accuracy for ever and a step for every round: infinite is one model for all, 0 every client alone."""
    rounds = len(step_sizes)
    return Phases(np.full(rounds, accuracy), np.asarray(step_sizes, float), np.arange(1, rounds + 1, dtype=np.int32))


def _phases(entries: list[tuple[float, float, int]]) -> Phases:
    accuracy, steps, ends = zip(*entries)
    return Phases(np.array(accuracy), np.array(steps), np.array(ends, np.int32))


def _synchronous(algorithm: Any, constants: Constants) -> StepAdvice:
    """Theorems 3 and 4, corrected: 1/(2 L rho(W)), less where a target accuracy and the noise ask for it."""
    neighbours = algorithm.neighbours
    radius = 1.0 if neighbours is None else spectral_radius(neighbours)  # a mixture is doubly stochastic
    return _filtered(algorithm, constants, (1 / _counts(algorithm)).mean(), radius)


def _naive(algorithm: Any, constants: Constants) -> StepAdvice:
    """Theorem 2.2, for the client with the fewest neighbours."""
    return _filtered(algorithm, constants, (1 / _counts(algorithm)).max())


def _target(algorithm: Any, constants: Constants) -> StepAdvice:
    """Theorem 2.2, for the target."""
    return _filtered(algorithm, constants, 1 / _counts(algorithm)[algorithm.target])


def _counts(algorithm: Any) -> np.ndarray:
    """N_i; for alpha I + (1-alpha) 11^T/N it is 1/sum_j lambda_ij^2, which N_i is for equal weights."""
    if algorithm.neighbours is not None:
        return mixing.counts(algorithm.neighbours)
    share, agents = float(algorithm.own_share), max(algorithm.clients, 1)
    return np.full(agents, 1 / (share**2 + (1 - share**2) / agents))


_THEOREM_2 = ("1/(2L)", "All-for-all 2022, theorem 2", "mu eps N_i/(4 L sigma^2)")
_THEOREM_3 = ("1/(2 L rho(W))", "All-for-all 2022, theorem 3, corrected", "mu N eps/(4 L sigma^2 sum 1/N_i)")


def _filtered(algorithm: Any, constants: Constants, share: float, radius: float | None = None) -> StepAdvice:
    """`share` is the mean (or the largest) 1/N_i: the part of sigma^2 that averaging leaves; without W no rho(W)."""
    formula, theorem, noisy = _THEOREM_2 if radius is None else _THEOREM_3
    reason = formula if radius is None else f"{formula}, rho(W) = {radius:.3g}"
    smooth = constants.smoothness, constants.batch_smoothness(algorithm.batch_size)
    bound, recommended = (stable_step(one, 1.0 if radius is None else radius) for one in smooth)
    accuracy, noise = algorithm.target_accuracy, None
    if accuracy is not None and constants.rows is not None and constants.strong_convexity > 0:
        noise = largest_noise(algorithm.objective, constants.rows, algorithm.batch_size)
    if noise:
        small = constants.strong_convexity * float(accuracy) / (4 * constants.smoothness * noise * float(share))
        if small < recommended:
            recommended, reason = small, f"{noisy} for the target accuracy"
    risk = "gradients of many add up in W, and models may diverge"
    return StepAdvice(recommended, bound, formula, theorem, reason, risk)


ALL_FOR_ALL = Rule(step=_synchronous)
ALL_FOR_ALL_NAIVE = Rule(step=_naive)
ALL_FOR_ONE = Rule(step=_target)
