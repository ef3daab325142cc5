# SPDX-License-Identifier: Apache-2.0
"""Step sizes, one function per theorem, and the rules of the algorithms that have one.

alpha is `personal_step_scale`, beta `server_step_size`, eta `step_size`, K (or tau) `local_steps`, R
`rounds`, M `clients`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from idiolect.core.algorithm import Algorithm
from idiolect.objectives import Additive
from idiolect.theory import complexity
from idiolect.theory.constants import Constants, block_constants, numbers_of, term_constants
from idiolect.theory.rule import Prediction, Question, Rule, StepAdvice


def gradient_descent_step(smoothness: float) -> float:
    """1/L: a step on an L-smooth convex loss never leads away from its optimum; above 2/L it may diverge."""
    return 1 / smoothness if smoothness > 0 else math.inf


def stochastic_step(batch_smoothness: float) -> float:
    """1/(2 L_b): SGD contracts up to the noise at the optimum (Gower et al. 2019, theorem 3.1)."""
    return gradient_descent_step(2 * batch_smoothness)


def theorem_1_step(smoothness: float, personal_step_scale: float) -> float:
    """PLSGD 2023, theorem 1: eta < 1/((1+alpha) L), with beta = 1.

    The theorem also prints beta <= sqrt(M), which can diverge (E000-4): `server_step_bound` says how far
    beta may go.
    """
    return gradient_descent_step((1 + personal_step_scale) * smoothness)


def server_step_bound(smoothness: float, personal_step_scale: float, step_size: float, local_steps: int) -> float:
    """E000-4 on PLSGD 2023, theorem 1: beta < 2(1+alpha)/(1-nu^K) - alpha with nu = 1-eta(1+alpha)L.

    Exact (rounds diverge beyond it) for noise-free quadratics with one Hessian whose largest eigenvalue is
    L; alpha = 0 gives local SGD's. beta = 1 always obeys it where eta obeys theorem 1.
    """
    shrink = 1 - (1 - step_size * (1 + personal_step_scale) * smoothness) ** local_steps
    return 2 * (1 + personal_step_scale) / shrink - personal_step_scale if shrink > 0 else math.inf


def tuned_step(strong_convexity: float, clients: int, local_steps: int, rounds: int) -> float:
    """PLSGD 2023, eq. 16: eta = 1/(8 mu M K R), with alpha = 1; use beta = 1 (E000-4 refutes beta = sqrt(M)).

    Valid where `tuned_condition_range` holds the condition number.
    """
    return 1 / (8 * strong_convexity * clients * local_steps * rounds)


def tuned_condition_range(clients: int, local_steps: int, rounds: int) -> tuple[float, float]:
    """PLSGD 2023, eq. 16: K/(2(1-exp(-1/(4MR)))) <= kappa < 4MKR (E000-6: its square is a footnote)."""
    return local_steps / (-2 * math.expm1(-1 / (4 * clients * rounds))), 4.0 * clients * local_steps * rounds


def theorem_2_step(smoothness: float, personal_step_scale: float) -> float:
    """PLSGD 2023, theorem 2 (options II and III): eta <= 1/(2L(1+alpha)), alpha > 0, beta = 1."""
    return gradient_descent_step(2 * (1 + personal_step_scale) * smoothness)


def theorem_2_tuned_step(smoothness: float, radius: float, noise: float, total_steps: int) -> float:
    """PLSGD 2023, theorem 2, option III, alpha = beta = 1: eta = min(1/(4L), sqrt(5) B/(sigma sqrt(T))).

    `radius` is B, `noise` sigma, `total_steps` T = KR. It minimises `rates.theorem_2_bound`.
    """
    quiet = gradient_descent_step(4 * smoothness)
    return min(quiet, math.sqrt(5) * radius / (noise * math.sqrt(total_steps))) if noise > 0 else quiet


def lsgd_pfl_step(shared_smoothness: float, personal_smoothness: float, local_steps: int) -> float:
    """Unified 2023, theorems 1 and 5: eta <= min{1/(4 L^beta), 1/(8 sqrt(3e) (tau-1) L^w)}.

    For a beta step of eta/M (E002-6); theorem 1 prints 8 sqrt(3) e, its proof 8 sqrt(3e). Lemma 5 works with
    L = max{L^w, L^beta}, so the first term here is 1/(4L): with tau = 1 the printed form leaves w unbounded.
    """
    first = gradient_descent_step(4 * max(shared_smoothness, personal_smoothness))
    second = gradient_descent_step(8 * math.sqrt(3 * math.e) * (local_steps - 1) * shared_smoothness)
    return min(first, second)


def _local_sgd(algorithm: Any, constants: Constants) -> StepAdvice:
    """1/L on exact gradients, 1/(2 L_b) on batches; a proximal term adds its weight to the curvature."""
    own = term_constants(algorithm.objective, constants)
    return _descent(algorithm.batch_size, own, float(getattr(algorithm, "penalty", None) or 0.0))


def _minibatch_sgd(algorithm: Any, constants: Constants) -> StepAdvice:
    """As local SGD with one step per round, on K batches at once; a whole epoch is an exact gradient."""
    return _descent(0 if algorithm.epochs else algorithm.batch_size * algorithm.local_steps, constants)


def _descent(batch_size: int, constants: Constants, extra: float = 0.0) -> StepAdvice:
    bound = gradient_descent_step(constants.smoothness + extra)
    if batch_size:
        recommended = stochastic_step(constants.batch_smoothness(batch_size) + extra)
        reason = f"1/(2 L_b), L_b the smoothness of a batch of {batch_size} (Gower et al. 2019)"
    else:
        recommended, reason = bound, "1/L, gradients are exact"
    formula = "1/(L + penalty)" if extra else "1/L"
    risk = "a local step may overshoot, and above 2/L diverge"
    return StepAdvice(recommended, bound, formula, "descent lemma", reason, risk)


def _personalized_local_sgd(algorithm: Any, constants: Constants) -> StepAdvice | None:
    """PLSGD 2023: half of theorem 1's bound, which is theorem 2's; a batch's smoothness replaces L."""
    if not isinstance(algorithm.objective, Additive):
        return None  # only there do both blocks move along one gradient
    personal_step_scale = float(algorithm.personal_step_scale)
    smoothness = constants.batch_smoothness(algorithm.batch_size)
    batch = " (L of a batch)" if algorithm.batch_size else ""
    return StepAdvice(
        theorem_2_step(smoothness, personal_step_scale),
        theorem_1_step(constants.smoothness, personal_step_scale),
        "1/((1+alpha)L)",
        "PLSGD 2023, theorem 1",
        f"1/(2(1+alpha)L){batch}, inside theorems 1 and 2 of PLSGD 2023",
        "w_m + theta_m moves by (1+alpha) eta and may overshoot",
    )


def _lsgd_pfl(algorithm: Any, constants: Constants) -> StepAdvice | None:
    """Unified 2023, theorem 5, for the objective's own blocks."""
    blocks = block_constants(algorithm.objective, constants)
    if blocks is None:
        return None
    # with epochs the number of steps follows the client: only the bound without drift is known beforehand
    local_steps = 1 if algorithm.epochs else algorithm.local_steps
    bound = lsgd_pfl_step(blocks.shared_smoothness, blocks.personal_smoothness, local_steps)
    # the theorem assumes noise of bounded variance; a batch of few rows is curved more than their mean
    ratio = constants.smoothness / constants.batch_smoothness(algorithm.batch_size)
    return StepAdvice(
        bound * ratio,
        bound,
        "min{1/(4L), 1/(8 sqrt(3e)(tau-1)L^w)}",
        "Unified 2023, theorem 5",
        "the bound itself, with L of a batch" if algorithm.batch_size else "the bound itself",
        "local copies of w may drift apart and diverge",
    )


def _lsgd_pfl_promise(question: Question, epsilon: float) -> Prediction | None:
    algorithm, blocks = question.algorithm, question.of_f
    bound = lsgd_pfl_step(blocks.shared_smoothness, blocks.personal_smoothness, algorithm.local_steps)
    if algorithm.epochs or algorithm.step_size > bound or not blocks.strong_convexity > 0:
        return None
    fields = {name: getattr(algorithm, name) for name in ("step_size", "local_steps", "batch_size")}
    return complexity.lsgd_pfl(blocks, question.rows, epsilon, **fields)


LOCAL_SGD = Rule(step=_local_sgd)
MINIBATCH_SGD = Rule(step=_minibatch_sgd)
PERSONALIZED_LOCAL_SGD = Rule(step=_personalized_local_sgd)
LSGD_PFL = Rule(step=_lsgd_pfl, promise=_lsgd_pfl_promise)


def advise(rule: Rule | None, algorithm: Algorithm, constants: Constants | None) -> StepAdvice | None:
    """What theory says of the algorithm's step; None without a rule for it or without known curvature."""
    if rule is None or rule.step is None or constants is None or constants.smoothness == 0:
        return None
    if getattr(algorithm, "client_optimizer", "sgd") != "sgd":  # the bounds are of plain steps
        return None
    return rule.step(algorithm, constants)


def step_warnings(rule: Rule | None, algorithm: Algorithm, constants: Constants | None) -> list[str]:
    """One sentence where a step is beyond its bound: the local step, or the server's (E000-4)."""
    advice = advise(rule, algorithm, constants)
    if advice is None or constants is None:
        return []
    step_size = float(numbers_of(algorithm.step_size).max())  # type: ignore[attr-defined]
    warning = advice.warning(step_size)
    if warning is not None:
        return [warning]
    server_step = float(np.max(getattr(algorithm, "server_step_size", 0.0)))  # 0: it has none
    # the bound is of plain server steps after a known number of local ones
    if getattr(algorithm, "server_optimizer", "sgd") != "sgd" or getattr(algorithm, "epochs", 0):
        return []
    personal_step_scale = float(getattr(algorithm, "personal_step_scale", 0.0))
    smoothness = term_constants(algorithm.objective, constants).smoothness
    largest = server_step_bound(smoothness, personal_step_scale, step_size, getattr(algorithm, "local_steps", 1))
    if server_step < largest:
        return []
    return [
        f"server_step_size {server_step:.3g} is beyond 2(1+alpha)/(1-nu^K) - alpha = {largest:.3g}, "
        "nu = 1-eta(1+alpha)L (PLSGD 2023, theorem 1, corrected): rounds may diverge. Use 1, which averages."
    ]
