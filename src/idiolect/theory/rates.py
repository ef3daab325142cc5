# SPDX-License-Identifier: Apache-2.0
"""How fast theory says an algorithm goes: bounds, exact values, and one printed formula that is wrong.

alpha is `personal_step_scale`, beta `server_step_size`, eta `step_size`, K (or tau) `local_steps`, R
`rounds`, M `clients`, B `radius`, sigma `noise` (the standard deviation of one stochastic gradient), zeta
`spread`.
"""

from __future__ import annotations

import math

import numpy as np


def theorem_1_bound(
    *,
    personal_step_scale: float,
    server_step_size: float,
    step_size: float,
    local_steps: int,
    rounds: int,
    clients: int,
    strong_convexity: float,
    radius: float,
    noise: float = 0.0,
) -> float:
    """PLSGD 2023, eq. 14 (option I, zero start): bound on mean_m E|v_m - v*_m|^2 after R rounds.

    exp(-(2 alpha R/(1+alpha)) (1 - exp(-eta(1+alpha) mu K))) B^2 + (4 eta sigma^2/mu)(alpha + beta^2/(M
    alpha)). Holds for beta = 1 and alpha >= 1; not for every beta <= sqrt(M) (E000-4); for alpha < 1 and
    different Hessians it can be exceeded, 2.11 times in a random search and up to 4 times by design (E000-5).
    """
    if personal_step_scale == 0:
        return math.inf  # local SGD: nothing draws a client to its own optimum
    shrink = -math.expm1(-step_size * (1 + personal_step_scale) * strong_convexity * local_steps)
    start = math.exp(-2 * personal_step_scale * rounds / (1 + personal_step_scale) * shrink) * radius**2
    floor = 4 * step_size * noise**2 / strong_convexity
    return start + floor * (personal_step_scale + server_step_size**2 / (clients * personal_step_scale))


def theorem_1_tuned_bound(
    *,
    condition_number: float,
    strong_convexity: float,
    local_steps: int,
    rounds: int,
    clients: int,
    radius: float,
    noise: float,
) -> float:
    """PLSGD 2023, eq. 16: exp(-KR/(2 kappa)) B^2 + sigma^2/(mu^2 M K R), at `step_sizes.tuned_step`."""
    total_steps = local_steps * rounds
    start = math.exp(-total_steps / (2 * condition_number)) * radius**2
    return start + noise**2 / (strong_convexity**2 * clients * total_steps)


def theorem_2_bound(
    *,
    personal_step_scale: float,
    step_size: float,
    total_steps: int,
    clients: int,
    radius: float,
    noise: float = 0.0,
    smoothness: float = 0.0,
    mean_consensus: float = 0.0,
) -> float:
    """PLSGD 2023, theorem 2: bound on mean_m F_m(v_m) - F*_m, for eta <= 1/(2L(1+alpha)) and beta = 1.

    5 B^2 (1+alpha)/(eta alpha T) + 2 eta (sigma^2/M) max(1, alpha M): option III. Option II adds 2L times the
    time average of the consensus error.
    """
    if personal_step_scale == 0:
        return math.inf
    start = 5 * radius**2 * (1 + personal_step_scale) / (step_size * personal_step_scale * total_steps)
    floor = 2 * step_size * noise**2 / clients * max(1.0, personal_step_scale * clients)
    return start + floor + 2 * smoothness * mean_consensus


def local_training_bound(
    *, step_size: float, steps: int, strong_convexity: float, radius: float, noise: float = 0.0
) -> float:
    """SGD alone, eta <= 1/L, zero start: E|v - v*|^2 <= (1-eta mu)^T B^2 + eta sigma^2/mu."""
    return (1 - step_size * strong_convexity) ** steps * radius**2 + step_size * noise**2 / strong_convexity


def lsgd_pfl_bound(
    *,
    step_size: float,
    steps: int,
    local_steps: int,
    strong_convexity: float,
    shared_smoothness: float,
    start_distance: float,
    heterogeneity: float = 0.0,
    noise: float = 0.0,
    batch_size: int = 1,
    clients: int = 1,
) -> float:
    """Unified 2023, eq. 26 (27 when mu = 0): E F(average) - F* <= (1-eta mu)^k Phi0 + eta Psi0 after k `steps`.

    Phi0 = 2(|w0-w*|^2 + sum_m |beta0-beta*_m|^2)/eta = 2 `start_distance`/eta: the factor 2 is printed on w
    only. Psi0 = 2 sigma^2/(BM) + 8 L^w eta e (tau-1) tau (3 zeta*^2 + sigma^2/B), zeta*^2 `heterogeneity`.
    The average has the weights (1-eta mu)^(-k-1). On the traditional objective this is local SGD.
    """
    variance = noise**2 / batch_size
    start = 2 * start_distance / step_size
    drift = 8 * shared_smoothness * step_size * math.e * (local_steps - 1) * local_steps
    floor = step_size * (2 * variance / clients + drift * (3 * heterogeneity + variance))
    if strong_convexity == 0:
        return start / steps + floor
    return (1 - step_size * strong_convexity) ** steps * start + floor


def deviation_multiplier(
    *, personal_step_scale: float, step_size: float, local_steps: int, curvature: float = 1.0
) -> float:
    """phi = (1+alpha nu^K)/(1+alpha), nu = 1-eta(1+alpha)h: what a round does to v_m - v*_m minus its mean.

    Noise-free quadratics with a common Hessian, along an eigenvector of eigenvalue h, `curvature`.
    """
    power = (1 - step_size * (1 + personal_step_scale) * curvature) ** local_steps
    return (1 + personal_step_scale * power) / (1 + personal_step_scale)


def mean_multiplier(
    *, personal_step_scale: float, server_step_size: float, step_size: float, local_steps: int, curvature: float = 1.0
) -> float:
    """psi = 1 - (alpha+beta)(1-nu^K)/(1+alpha): what a round does to mean_m (v_m - v*_m), as above."""
    power = (1 - step_size * (1 + personal_step_scale) * curvature) ** local_steps
    return 1 - (personal_step_scale + server_step_size) * (1 - power) / (1 + personal_step_scale)


def is_stable(
    *, personal_step_scale: float, server_step_size: float, step_size: float, local_steps: int, curvature: float = 1.0
) -> bool:
    """E000-4: rounds converge iff (alpha+beta)(1-nu^K) < 2(1+alpha), for eta(1+alpha)h in (0, 1].

    beta = sqrt(M), which PLSGD 2023 prints as safe, breaks it for alpha = 1, K large and M >= 9.
    """
    power = (1 - step_size * (1 + personal_step_scale) * curvature) ** local_steps
    return (personal_step_scale + server_step_size) * (1 - power) < 2 * (1 + personal_step_scale)


def common_hessian_error(
    *,
    personal_step_scale: float,
    server_step_size: float,
    step_size: float,
    local_steps: int,
    rounds: int,
    clients: int,
    start_deviation: float,
    start_mean: float,
    noise: float = 0.0,
    curvature: float = 1.0,
) -> float:
    """mean_m E|v_m - v*_m|^2 after R rounds, exact for Hessians h I and independent additive noise.

    `start_deviation` is mean_m |e_m - e|^2 and `start_mean` |e|^2 of e_m = v_m - v*_m with mean e before
    the first round. The modes shrink by phi^2 and psi^2 a round and gain alpha^2 s^2 (1-1/M) and
    (alpha+beta)^2 s^2/M, where s^2 = eta^2 sigma^2 (1-nu^(2K))/(1-nu^2) is the variance of a round's
    accumulated noise.
    """
    nu = 1 - step_size * (1 + personal_step_scale) * curvature
    # noise of an early step is shrunk by nu in each later one of the round: a geometric sum of squares
    gathered = (step_size * noise) ** 2 * _geometric(nu**2, local_steps)
    phi = (1 + personal_step_scale * nu**local_steps) / (1 + personal_step_scale)
    psi = 1 - (personal_step_scale + server_step_size) * (1 - nu**local_steps) / (1 + personal_step_scale)
    # theta_m keeps its own noise, of which the mean over clients is the part 1/M; w gets that mean alone
    deviation_gain = personal_step_scale**2 * gathered * (1 - 1 / clients)
    mean_gain = (personal_step_scale + server_step_size) ** 2 * gathered / clients
    deviation = phi ** (2 * rounds) * start_deviation + deviation_gain * _geometric(phi**2, rounds)
    return deviation + psi ** (2 * rounds) * start_mean + mean_gain * _geometric(psi**2, rounds)


def consensus_at(
    time: int, *, personal_step_scale: float, step_size: float, local_steps: int, spread: float = 1.0
) -> float:
    """xi_t = (zeta/(1+alpha))^2 (1-nu^k)^2 phi^(2r), k = t mod K, r = floor(t/K): exact (E000-2), zero start.

    For the two clients of PLSGD 2023 with targets v* -+ zeta and curvature 1, beta = 1; alpha = 0 is local SGD.
    """
    rounds, steps = divmod(time, local_steps)
    nu = 1 - step_size * (1 + personal_step_scale)
    phi = deviation_multiplier(personal_step_scale=personal_step_scale, step_size=step_size, local_steps=local_steps)
    return (spread / (1 + personal_step_scale)) ** 2 * (1 - nu**steps) ** 2 * phi ** (2 * rounds)


def local_sgd_consensus(*, step_size: float, local_steps: int, spread: float = 1.0) -> float:
    """PLSGD 2023, eq. 20, exact: time average of local SGD's consensus error on the two-client quadratic.

    zeta^2 (1 + (1-(1-eta)^(2K))/((2-eta) eta K) - 2(1-(1-eta)^K)/(eta K)), whatever the number of rounds.
    """
    rest = 1 - step_size
    squares = (1 - rest ** (2 * local_steps)) / ((2 - step_size) * step_size * local_steps)
    return spread**2 * (1 + squares - 2 * (1 - rest**local_steps) / (step_size * local_steps))


def personalized_consensus(
    *, personal_step_scale: float, step_size: float, local_steps: int, rounds: int, spread: float = 1.0
) -> float:
    """Eq. 21 made exact (E000-2): (zeta/(1+alpha))^2 mean_k (1-nu^k)^2 (1-phi^(2R))/((1-phi^2) R)."""
    nu = 1 - step_size * (1 + personal_step_scale)
    phi = deviation_multiplier(personal_step_scale=personal_step_scale, step_size=step_size, local_steps=local_steps)
    # copies meet when a round begins (k = 0) and part by 1 - nu^k until it ends
    within = float(np.mean((1 - nu ** np.arange(local_steps)) ** 2))
    return (spread / (1 + personal_step_scale)) ** 2 * within * _geometric(phi**2, rounds) / rounds


def personalized_consensus_bound(
    *, personal_step_scale: float, step_size: float, local_steps: int, rounds: int, spread: float = 1.0
) -> float:
    """PLSGD 2023, eq. 21 corrected (E000-2): zeta^2/(1+alpha) (1-(1-nu^K)/((1-nu)K)) (1-phi^R)/((1-phi)R)."""
    phi = deviation_multiplier(personal_step_scale=personal_step_scale, step_size=step_size, local_steps=local_steps)
    nu = 1 - step_size * (1 + personal_step_scale)
    within = 1 - _geometric(nu, local_steps) / local_steps
    return spread**2 / (1 + personal_step_scale) * within * _geometric(phi, rounds) / rounds


def printed_wrong_personalized_consensus_bound(
    *, personal_step_scale: float, step_size: float, local_steps: int, rounds: int, spread: float = 1.0
) -> float:
    """Eq. 21 as printed: nu stands where phi must, so it is no bound; only to show that (E000-2)."""
    nu = 1 - step_size * (1 + personal_step_scale)
    within = 1 - _geometric(nu, local_steps) / local_steps
    return spread**2 / (1 + personal_step_scale) * within * _geometric(nu, rounds) / rounds


def _geometric(ratio: float, terms: int) -> float:
    """1 + q + ... + q^(n-1)."""
    return float(terms) if ratio == 1 else (1 - ratio**terms) / (1 - ratio)
