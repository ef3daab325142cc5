# SPDX-License-Identifier: Apache-2.0
"""The rules of the solvers of Unified 2023 and its baselines: the theorem behind each field, and its promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from idiolect.theory import complexity
from idiolect.theory import solver_parameters as solvers
from idiolect.theory.rule import Parameters, Prediction, Promise, Question, Rule


def _drawing(derive: Callable[[solvers.Drawn], Parameters], theorem: str, promise: Promise | None = None) -> Rule:
    """Of a solver that draws components of F."""

    def derive_from(question: Question) -> Parameters:
        options = {"batch_size": 0, "optimal_for": "shared", "anchor": 0.5}
        found = {name: question.option(name, default) for name, default in options.items()}
        return derive(solvers.Drawn(question.of_f, question.rows, **found, given=question.given))

    return Rule(derive=derive_from, theorem=theorem, of_blocks=True, promise=promise)


def _pulled(question: Question) -> dict[str, Any]:
    """Of a solver that is pulled towards the mean: what its parameters follow from besides the constants of f'_m."""
    penalty, batch_size = (question.option(name, 0) for name in ("penalty", "batch_size"))
    return {"penalty": float(penalty), "batch_size": batch_size, "given": question.given}


def _acd_pfl_promise(question: Question, epsilon: float) -> Prediction | None:
    stated = question.assuming("strong_convexity", "shared_smoothness", "personal_smoothness")
    if not stated.strong_convexity > 0:
        return None
    probability = question.algorithm.shared_probability
    return complexity.acd_pfl(stated, question.rows, epsilon, shared_probability=probability)


def _asvrcd_pfl_promise(question: Question, epsilon: float) -> Prediction | None:
    """The theorem leaves p_w and rho free, and nothing else."""
    algorithm, stated = question.algorithm, question.assuming("strong_convexity")
    if not stated.strong_convexity > 0:
        return None
    free = {field: getattr(algorithm, field) for field in ("shared_probability", "refresh_probability")}
    derived = solvers.asvrcd_pfl(solvers.Drawn(stated, question.rows, algorithm.batch_size, given=free))
    own = {parameter.name: getattr(algorithm, parameter.name) for parameter in derived}
    if algorithm.anchor != 0.5 or not all(math.isclose(own[p.name], p.value, rel_tol=1e-6) for p in derived):
        return None
    del own["strong_convexity"], own["step_size"]
    return complexity.asvrcd_pfl(stated, question.rows, epsilon, batch_size=algorithm.batch_size, **own)


def _l2sgd_plus_promise(question: Question, epsilon: float) -> Prediction | None:
    own, penalty = question.own, question.algorithm.objective.penalty
    fields = {field: getattr(question.algorithm, field) for field in ("averaging_probability", "step_size")}
    chance = {"averaging_probability": fields["averaging_probability"]}
    *_, step = solvers.l2sgd_plus(own, question.rows, penalty, given=chance)
    if not own.strong_convexity > 0 or fields["step_size"] > step.value * (1 + 1e-9):
        return None
    return complexity.l2sgd_plus(own, question.rows, epsilon, penalty=penalty, **fields)


_SAFE = "no step theory in Unified 2023; eta = 1/(4 Lx) of its theorem 9 is safe"
ACD_PFL = Rule(
    derive=lambda q: solvers.acd_pfl(q.of_f, given=q.given),
    theorem="Unified 2023, theorem 7",
    of_blocks=True,
    promise=_acd_pfl_promise,
)
ASVRCD_PFL = _drawing(solvers.asvrcd_pfl, "Unified 2023, theorems 8 and 9", _asvrcd_pfl_promise)
SVRCD_PFL = _drawing(solvers.svrcd_pfl, _SAFE)
SCD_PFL = _drawing(solvers.scd_pfl, _SAFE)
ASCD_PFL = _drawing(solvers.ascd_pfl, "Unified 2023, section 5: ASVRCD's, and theta")
ASCD_THEN_ASVRCD = _drawing(solvers.ascd_then_asvrcd, "Unified 2023, theorems 8 and 9, section 5")
L2GD = Rule(
    derive=lambda q: solvers.l2gd(q.own, float(q.option("penalty", 0.0)), given=q.given),
    theorem="Hanzely and Richtarik 2020, at n = 1",
)
L2SGD_PLUS = Rule(
    derive=lambda q: solvers.l2sgd_plus(q.own, q.rows, **_pulled(q)),
    theorem="Hanzely and Richtarik 2020",
    promise=_l2sgd_plus_promise,
)
PFEDME = Rule(derive=lambda q: solvers.pfedme(q.own, **_pulled(q)), theorem="descent lemma")
