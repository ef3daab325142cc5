# SPDX-License-Identifier: Apache-2.0
"""Scafflix 2023: the constants A_m and C_m of assumption 3, the parameters of the Scafflix family, and theorem 4.

Assumption 3: E |g_m(x) - grad f'_m(y)|^2 <= 2 A_m D(x, y) + C_m at y = xt*_m, D the Bregman distance of f'_m. alpha_m
is the objective's `personalization` (1 without it), gamma_m `local_step`, p `communication_probability`, eps
`target_accuracy`, b `batch_size`. Clients with alpha_m = 0 never take part and are left out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect.core.checks import NeedsRidgeError, RequestError
from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.objectives import FLIX
from idiolect.theory import complexity
from idiolect.theory.constants import Constants, per_client, shares_of
from idiolect.theory.convex import convex_loss
from idiolect.theory.heterogeneity import gradient_noise
from idiolect.theory.joint import joint_problem
from idiolect.theory.optimum import client_points
from idiolect.theory.rule import Parameter, Parameters, Prediction, Question, Rule


def expected_smoothness(own: Constants, batch_size: int) -> np.ndarray:
    """A_m: L_m for exact gradients, with additive noise or without; 2 Lc_m/b + (1 - 2/b)_+ L_m for b rows.

    The paper prints A_m >= L_m^2 once, which diverges for L_m < 1/2; its proofs need A_m >= L_m (E001-4). For b rows
    drawn with replacement: E |g(x) - grad f(y)|^2 = Var g(x) + |grad f(x) - grad f(y)|^2, and the variance of one row
    is at most 2 (2 Lc D - |grad f(x) - grad f(y)|^2) + 2 sigma^2(y).
    """
    if batch_size == 0:
        return own.client_smoothness
    return 2 * own.client_component_smoothness / batch_size + max(1 - 2 / batch_size, 0.0) * own.client_smoothness


class Solution(NamedTuple):
    """The optimum of F, and what Scafflix's variables are there."""

    shared: Any  # w*
    models: Any  # xt*_m, stacked
    gradients: np.ndarray  # h*_m = grad f'_m(xt*_m), (M, columns, outputs)
    value: float


def solution(objective: Objective, rows: Rows) -> Solution | None:
    """The optimum of a FLIX or of a traditional objective; None where it is not known."""
    problem = joint_problem(objective, rows)
    best = None if problem is None else problem.optimum()
    if problem is None or best is None or objective.has_personal:
        return None
    if isinstance(objective, FLIX):
        alpha = shares_of(objective, rows.clients)
        models = jax.tree.map(
            lambda w, own: np.stack([a * w + (1 - a) * x for a, x in zip(alpha, own)]),
            best.shared,
            problem.prepared.optimum,
        )
    else:
        models = jax.tree.map(lambda w: np.stack([w] * rows.clients), best.shared)
    clients = problem.arrow.clients
    points = client_points(clients[0].loss, rows.clients, models, stacked=True)
    gradients = [client.loss.gradient(client.rows, point) for client, point in zip(clients, points)]
    return Solution(best.shared, models, np.array(gradients), best.value)


def noise_constants(objective: Objective, rows: Rows, batch_size: int, noise: float = 0.0) -> np.ndarray | None:
    """C_m = 2 sigma_m^2/b + noise^2, sigma_m^2 the variance of one row's gradient at xt*_m; None where not known."""
    added = np.full(rows.clients, float(noise) ** 2)
    if batch_size == 0:
        return added
    at = solution(objective, rows)
    variance = None if at is None else gradient_noise(objective, rows, at.models, stacked=True)
    return None if variance is None else 2 * variance / batch_size + added


def _derive(question: Question, individual: bool = True) -> Parameters:
    """gamma_m = 1/A_m (their least for all, unless `individual`), p = sqrt(min gamma_m mu_m).

    With exact gradients p = 1/sqrt(max L_m/mu_m). Corollary 6: gamma_m = min(1/A_m, eps mu/(2 C_m)), mu = min mu_m,
    reaches E Psi <= eps.
    """
    algorithm, own, given = question.algorithm, question.own, question.given
    there = shares_of(algorithm.objective, own.clients) > 0
    if "communication_probability" not in given:
        _refuse_flat(own, there, question.owner)
    # no client takes part: any step will do, and a minimum over nothing has no value
    if not there.any():
        there = np.ones_like(there)
    bounds = 1 / expected_smoothness(own, algorithm.batch_size)
    steps, formula = bounds, "1/A_m" if algorithm.batch_size else "1/L_m"
    if algorithm.target_accuracy is not None:
        noise, small = _noise(question), algorithm.target_accuracy * own.client_strong_convexity[there].min() / 2
        steps = np.minimum(bounds, np.divide(small, noise, out=np.full_like(bounds, np.inf), where=noise > 0))
        formula = f"min({formula}, eps mu/(2 C_m))"
    if not individual:
        steps, formula = np.full_like(steps, steps[there].min()), f"least {formula}"
    by_hand = "local_step" in given
    if by_hand:
        steps = np.broadcast_to(np.asarray(given["local_step"], float), steps.shape)
    most = np.where(there, bounds, np.inf)
    local_step = Parameter("local_step", _together(steps), formula, by_hand, most=_together(most))
    chance = math.sqrt(min(float((steps * own.client_strong_convexity)[there].min()), 1.0))
    told = "communication_probability" in given
    words = "1/sqrt(max L_m/mu_m)" if formula == "1/L_m" and not by_hand else "sqrt(min gamma_m mu_m)"
    probability = float(given["communication_probability"]) if told else chance
    return local_step, Parameter("communication_probability", probability, words, told)


def _together(values: np.ndarray) -> Any:
    """One number where all clients have the same."""
    return float(values[0]) if (values == values[0]).all() else values


def _refuse_flat(own: Constants, there: np.ndarray, owner: str) -> None:
    """p follows from strong convexity: without it theory has none to offer."""
    if there.any() and not own.client_strong_convexity[there].min() > 0:
        raise NeedsRidgeError(
            f"{owner}.communication_probability is left to theory, which needs every f'_m to be strongly convex, and "
            f"mu' = 0 here ({own.source}); set model.l2, or communication_probability by hand."
        )


def _noise(question: Question) -> np.ndarray:
    """The C_m, which a target accuracy needs."""
    algorithm, rows, found = question.algorithm, question.own.rows, None
    if rows is not None:
        found = noise_constants(algorithm.objective, rows, algorithm.batch_size, float(algorithm.noise or 0.0))
    if found is None:
        raise RequestError(
            f"{question.owner}.target_accuracy needs the noise C_m at the optimum, which is not known here; "
            "set local_step and communication_probability by hand."
        )
    return found


def refuse_singular(objective: Objective, own: Constants | None, names: Any) -> None:
    """Every client with alpha_m < 1 needs a unique optimum; says whose rows do not determine one, where that is known.

    Known are linear models: without l2 the rows must span all columns, and softmax always has directions along which
    nothing changes. Whether a logistic loss without l2 has an optimum at all, its solve tells.
    """
    loss = convex_loss(objective)
    if not isinstance(objective, FLIX) or objective.solver != "tolerance" or own is None or loss is None or loss.l2 > 0:
        return
    flat = own.client_rank < loss.columns
    if loss.criterion == "cross_entropy":
        flat = np.ones_like(flat)
    found = np.flatnonzero(flat & (shares_of(objective, own.clients) < 1))
    if found.size:
        raise RequestError(
            f"Client {names[int(found[0])]!r} has no unique optimum of its own to be mixed in: its rows leave some "
            "direction of the model free; give l2 a value above 0, or personalization 1, or set solver = 'epochs' or "
            "'early_stopping'."
        )


def contraction(steps: Any, own: Constants, shares: np.ndarray, probability: float) -> float:
    """Theorem 4: zeta = min(min gamma_m mu_m, p^2)."""
    there = shares > 0
    gamma = np.broadcast_to(np.asarray(steps, float), there.shape)
    return min(float((gamma * own.client_strong_convexity)[there].min()), probability**2)


def gap_over_psi(objective: Objective, own: Constants, steps: np.ndarray, probability: float) -> float | None:
    """Psi^0/(2 gmin (F^0 - F*)) from zero parameters and h = 0; None where the optimum is not known.

    F - F* <= Psi/(2 gmin), since f'_m is L_m-smooth and gamma_m <= 1/L_m.
    """
    at = None if own.rows is None else solution(objective, own.rows)
    problem = None if own.rows is None else joint_problem(objective, own.rows)
    if at is None or problem is None:
        return None
    shares = shares_of(objective, own.clients)
    zero = jax.tree.map(np.zeros_like, at.shared)
    moved = shares**2 * sum(float(np.sum(np.asarray(leaf) ** 2)) for leaf in jax.tree.leaves(at.shared))
    gradients = (at.gradients**2).sum(axis=(1, 2))
    start = float(np.mean(moved / steps) + np.mean(np.where(shares > 0, steps * gradients, 0.0)) / probability**2)
    return start / (2 * (problem.value(zero, ()) - at.value))


def _promise(question: Question, epsilon: float) -> Prediction | None:
    """Nothing for draws and noise, which end at a floor, nor for steps beyond 1/L_m."""
    algorithm, own = question.algorithm, question.own
    shares, chance = shares_of(algorithm.objective, own.clients), float(algorithm.communication_probability)
    steps, there = per_client(algorithm.local_step, own.clients), shares > 0
    fits = (steps * own.client_smoothness)[there].max(initial=0.0) <= 1 + 1e-9
    convex = own.strong_convexity > 0
    if algorithm.batch_size or algorithm.noise or not (convex and there.any() and fits):
        return None
    if chance == 1:  # then h_m plays no part
        speed = question.of_f.strong_convexity / float(np.mean(shares**2 / steps))
        count = complexity.iterations_until(speed, 1.0, epsilon)
        text = f"gradient descent on F: (1 - eta mu)^k, eta mu = {speed:.3g}"
        return Prediction(count, complexity.full_gradients(count, count, 0.0, question.rows), True, text)
    zeta = contraction(steps, own, shares, chance)
    start = gap_over_psi(algorithm.objective, own, steps, chance)
    if start is None:  # what h_m = 0 adds depends on how different the clients are
        start = 1 / float((steps * own.client_strong_convexity)[there].min())
    return complexity.scafflix(zeta, question.rows, epsilon, probability=chance, start=start)


_THEOREM_4 = "Scafflix 2023, theorem 4 and corollary 6"
SCAFFLIX = Rule(derive=_derive, theorem=_THEOREM_4, promise=_promise)
SCAFFNEW = Rule(derive=lambda question: _derive(question, individual=False), theorem=_THEOREM_4, promise=_promise)
FLIX_GD = Rule(
    derive=_derive, theorem="Scafflix 2023: gradient descent on FLIX with step 1/(mean alpha^2 L')", promise=_promise
)
