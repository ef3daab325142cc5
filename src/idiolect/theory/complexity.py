# SPDX-License-Identifier: Apache-2.0
"""How much an algorithm needs to reach a relative accuracy, by its theorem, and how much any algorithm needs.

Accuracy eps means E F(w, beta) - F* <= eps (F(w_0, beta_0) - F*). Upper bounds are those of the theorems with their
constants, so a run may be much faster. Lower bounds hold up to a constant factor: a ratio between the two compares
orders of magnitude. L^w, L^beta, Lc^w, Lc^beta and mu belong to F, n is the mean number of rows, M `clients`.
"""

from __future__ import annotations

import math

from idiolect.core.algorithm import Algorithm
from idiolect.theory.constants import BlockConstants, Constants
from idiolect.theory.rule import Complexity, Prediction, Question, Rule


def iterations_until(contraction: float, start: float, epsilon: float) -> float:
    """The smallest k with (1 - contraction)^k start <= eps."""
    if start <= epsilon:
        return 0.0
    return 1.0 if contraction >= 1 else math.ceil(math.log(start / epsilon) / -math.log1p(-contraction))


def lower_bounds(constants: BlockConstants, rows: float, epsilon: float) -> Complexity:
    """Unified 2023, theorem 6, orders without constant factors: what every first-order method needs.

    sqrt(L^w/mu) log(1/eps) rounds and full w-gradients, n + sqrt(n Lc^w/mu) log(1/eps) components; likewise for
    beta. A block without curvature needs nothing.
    """
    digits, mu = math.log(1 / epsilon), constants.strong_convexity
    full = [math.sqrt(smooth / mu) * digits for smooth in (constants.shared_smoothness, constants.personal_smoothness)]
    single = constants.component_shared_smoothness, constants.component_personal_smoothness
    drawn = [rows + math.sqrt(rows * smooth / mu) * digits if smooth > 0 else 0.0 for smooth in single]
    return Complexity(full[0], *drawn, *full)


def gradient_descent(constants: BlockConstants, rows: float, epsilon: float) -> Prediction:
    """The reference: steps of 1/L on both blocks, L = L^w + L^beta, contract the gap by 1 - mu/L; each is a round."""
    smoothness = constants.shared_smoothness + constants.personal_smoothness
    steps = iterations_until(constants.strong_convexity / smoothness, 1.0, epsilon)
    has_shared, has_personal = constants.shared_smoothness > 0, constants.personal_smoothness > 0
    cost = full_gradients(steps * has_shared, steps * has_shared, steps * has_personal, rows)
    return Prediction(steps, cost, True, "gradient descent on F: (1 - mu/(L^w + L^beta))^k")


def acd_pfl(
    constants: BlockConstants, rows: float, epsilon: float, *, shared_probability: float | None = None
) -> Prediction:
    """Unified 2023, theorem 7: P^k = (F(y) - F*)/theta^2 + S^2/(2(1-theta)) |z - x*|^2 shrinks by 1 - theta.

    theta^2 = nu (1 - theta) and nu S^2 = mu, so theta^2 P^0 = F^0 - F* + (mu/2)|x^0 - x*|^2 <= 2 (F^0 - F*).
    """
    roots = math.sqrt(constants.shared_smoothness), math.sqrt(constants.personal_smoothness)
    chance = roots[0] / sum(roots) if shared_probability is None else shared_probability
    total = max(root / p if p > 0 else 0.0 for root, p in zip(roots, (chance, 1 - chance)))
    nu = constants.strong_convexity / total**2
    # the positive root of theta^2 = nu (1 - theta)
    theta = (math.sqrt(nu**2 + 4 * nu) - nu) / 2
    # 2: P^0 counts the gap and the distance, and by strong convexity the distance is worth no more than the gap
    steps = iterations_until(theta, 2.0, epsilon)
    cost = full_gradients(chance * steps, chance * steps, (1 - chance) * steps, rows)
    return Prediction(steps, cost, True, f"Unified 2023, theorem 7: 2 (1 - theta)^k, theta = {theta:.3g}")


def asvrcd_pfl(
    constants: BlockConstants,
    rows: float,
    epsilon: float,
    *,
    batch_size: int = 1,
    shared_probability: float,
    refresh_probability: float,
    momentum: float,
    mirror_step: float,
) -> Prediction:
    """Unified 2023, theorem 9: Psi shrinks by 1 - (1/4) min{rho, sqrt(mu/(2 max{L_F, Lx/rho}))}, L_F <= Lx.

    Psi = |z-x*|^2 + (2 gamma nu/theta1)(F(y)-F*) + ((2 theta2+theta1) gamma nu/(theta1 rho))(F(v)-F*), theta2 = 1/2,
    and |x^0-x*|^2 <= (2/mu)(F^0-F*): at the start (F(y)-F*) may be theta1/(gamma nu mu) + 1 + (1+theta1)/(2 rho) times
    its share. An iteration has p_w + rho rounds, 2b p_w + n rho component gradients by w and 2b p_beta + n rho by
    beta; the first full gradient is one more round.
    """
    mu, p_w, rho = constants.strong_convexity, shared_probability, refresh_probability
    seen = constants.of_batches(rows, batch_size)
    # L_F is not known by itself; Lx bounds it, and rho <= 1 makes Lx/rho the larger of the two
    contraction = 0.25 * min(rho, math.sqrt(mu * rho / (2 * seen.expected_smoothness(p_w))))
    keep = 1 - mirror_step * mu
    # how many gaps Psi^0 holds at most: from its distance, its y and its v, all of which start at x^0
    start = momentum / (mirror_step * keep * mu) + 1 + (1 + momentum) / (2 * rho)
    steps = iterations_until(contraction, start, epsilon)
    # + 1: the snapshot has a gradient before the first iteration. 2: a component is evaluated at x and at v
    refreshes, draws, chances = rho * steps + 1, 2 * (batch_size or rows) * steps, (p_w, 1 - p_w)
    single = [chance * draws + rows * refreshes for chance in chances]
    full = [refreshes + (0 if batch_size else 2 * chance * steps) for chance in chances]
    cost = Complexity(p_w * steps + refreshes, *single, *full)
    text = f"Unified 2023, theorem 9, a worst-case bound: {start:.3g} (1 - c)^k, c = {contraction:.3g}"
    return Prediction(steps, cost, batch_size == 0, text)


def lsgd_pfl(
    constants: BlockConstants, rows: float, epsilon: float, *, step_size: float, local_steps: int, batch_size: int = 0
) -> Prediction:
    """Unified 2023, theorem 5: (1 - eta mu)^k Phi^0, and a floor eta Psi^0 on top that no number of steps removes.

    Phi^0 = 2 |x^0 - x*|^2/eta <= 4/(eta mu) (F^0 - F*). One pass yields the gradients of both blocks.
    """
    speed = step_size * constants.strong_convexity
    steps = iterations_until(speed, 4 / speed, epsilon)
    counts = [steps * (smooth > 0) for smooth in (constants.shared_smoothness, constants.personal_smoothness)]
    # an objective without a shared block sends nothing, however many steps it takes
    rounds = math.ceil(steps / local_steps) * (constants.shared_smoothness > 0)
    floor = "" if local_steps == 1 and batch_size == 0 else "; a floor eta Psi^0 of drift and noise comes on top"
    text = f"Unified 2023, theorem 5: {4 / speed:.3g} (1 - eta mu)^k, eta mu = {speed:.3g}{floor}"
    per_step = batch_size or rows
    full = [0.0 if batch_size else count for count in counts]
    cost = Complexity(rounds, counts[0] * per_step, counts[1] * per_step, *full)
    return Prediction(steps, cost, batch_size == 0, text)


def l2sgd_plus(
    own: Constants, rows: float, epsilon: float, *, penalty: float, averaging_probability: float, step_size: float
) -> Prediction:
    """Hanzely and Richtarik 2020: E|x^k - x*|^2 falls as (1 - a mu'/M)^k; what empty tables add is left out.

    F is (L' + lam)/M smooth and mu'/M strongly convex in x alone, so the gap starts (L' + lam)/mu' times as high.
    """
    contraction = step_size * own.strong_convexity / own.clients
    start = (own.smoothness + penalty) / own.strong_convexity
    steps = iterations_until(contraction, start, epsilon)
    rounds, draws = averaging_probability * steps, (1 - averaging_probability) * steps
    text = f"Hanzely and Richtarik 2020: {start:.3g} (1 - a mu'/M)^k, a mu'/M = {contraction:.3g}"
    return Prediction(steps, Complexity(rounds, 0.0, draws, 0.0, 0.0), False, text)


def scafflix(contraction: float, rows: float, epsilon: float, *, probability: float, start: float) -> Prediction:
    """Scafflix 2023, theorem 4: Psi shrinks by 1 - zeta in an iteration, and p iterations in one end a round.

    Psi/(2 gmin) bounds F - F*; `start` is Psi^0/(2 gmin (F^0 - F*)). With p = 1/sqrt(kappa) and zeta = 1/kappa there
    are sqrt(kappa) log(start/eps) rounds, where gradient descent has kappa log(1/eps). The clients' own solves
    before the start are not in here.
    """
    steps = iterations_until(contraction, start, epsilon)
    text = f"Scafflix 2023, theorem 4: {start:.3g} (1 - zeta)^k, zeta = {contraction:.3g}, p = {probability:.3g}"
    return Prediction(steps, full_gradients(probability * steps, steps, 0.0, rows), True, text)


def full_gradients(rounds: float, shared: float, personal: float, rows: float) -> Complexity:
    """The cost of as many full gradients of each block."""
    return Complexity(rounds, rows * shared, rows * personal, shared, personal)


def predict(
    rule: Rule | None, algorithm: Algorithm, own: Constants, blocks: BlockConstants, rows: float, epsilon: float
) -> Prediction | None:
    """What theory promises of the algorithm with the parameters it has; None where it promises nothing.

    Nothing is promised of a method that stops at a noise floor (SCD, ASCD, L2GD, pFedMe), of one without a rate
    (SVRCD), without strong convexity, or with parameters beyond the theorem.
    """
    if rule is None or rule.promise is None:
        return None
    return rule.promise(Question(algorithm, own, blocks, rows), epsilon)
