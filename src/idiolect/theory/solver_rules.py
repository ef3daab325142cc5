# SPDX-License-Identifier: Apache-2.0
"""The rules of the solvers of Unified 2023 and its baselines: parameters from the constants of F, and promises.

L^w, L^beta, Lc^w, Lc^beta and mu belong to F (`BlockConstants`), L', Lc' and mu' to the plain losses (`Constants`); n
is the mean number of rows, b `batch_size`, M `clients`, lam the objective's `penalty`. A field set by hand is kept, and
what follows from it is derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from idiolect.theory import complexity
from idiolect.theory.constants import BlockConstants, Components, Constants, ratio
from idiolect.theory.rule import Parameter, Parameters, Prediction, Promise, Question, Rule

Given = Mapping[str, float]  # fields set by hand
NOTHING: Given = {}


class _Derivation:
    """Parameters in the order in which they follow from each other."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self.found: Parameters = ()

    def take(self, name: str, value: float, formula: str, *, least: float = -math.inf, most: float = math.inf) -> float:
        """The value set by hand, or else theory's."""
        by_hand = name in self._given
        chosen = float(self._given[name]) if by_hand else value
        self.found += (Parameter(name, chosen, formula, by_hand, least, most),)
        return chosen


class Drawn(NamedTuple):
    """A solver of Unified 2023 that draws components: the constants of F, n, and what its parameters follow from."""

    constants: BlockConstants
    rows: float
    batch_size: int = 1
    optimal_for: str = "shared"
    anchor: float = 0.5
    given: Given = NOTHING


def acd_pfl(constants: BlockConstants, *, given: Given = NOTHING) -> Parameters:
    """Unified 2023, theorem 7: mu, L^w, L^beta; p_w = sqrt(L^w)/(sqrt(L^w)+sqrt(L^beta)) follows inside the solver."""
    derived = _Derivation(given)
    _convexity(derived, constants)
    for field, symbol in (("shared_smoothness", "L^w"), ("personal_smoothness", "L^beta")):
        smoothness = getattr(constants, field)
        derived.take(field, smoothness, f"{symbol} of F", least=smoothness)
    _, shared, personal = (math.sqrt(max(parameter.value, 0.0)) for parameter in derived.found)
    derived.take("shared_probability", ratio(shared, shared + personal), "sqrt(L^w)/(sqrt(L^w)+sqrt(L^beta))")
    return derived.found


def scd_pfl(solver: Drawn) -> Parameters:
    """Unified 2023 has no step theory for SCD: p_w = Lc^w/(Lc^w+Lc^beta) and eta = 1/(4 Lx), which is safe."""
    return _drawing(solver, refreshes=False, accelerates=False)


def svrcd_pfl(solver: Drawn) -> Parameters:
    """Unified 2023 has no step theory for SVRCD: p_w, rho and eta = 1/(4 Lx) of ASVRCD, which are safe."""
    return _drawing(solver, accelerates=False)


def asvrcd_pfl(solver: Drawn) -> Parameters:
    """Unified 2023, theorems 8 and 9: p_w, rho, eta = 1/(4 Lx), theta1, gamma, mu.

    rho = p_w/n makes rounds and w-gradients optimal (`optimal_for` "shared"), rho = p_beta/n beta-gradients
    ("personal").
    """
    return _drawing(solver)


def ascd_pfl(solver: Drawn) -> Parameters:
    """Unified 2023, section 5.1: p_w, eta, gamma and mu of ASVRCD, theta = min{0.8, 1/eta}; no rate is claimed.

    gamma depends on ASVRCD's theta1 and rho, which ASCD has no fields for.
    """
    return _drawing(solver._replace(anchor=0.5), refreshes=False, early="momentum")


def ascd_then_asvrcd(solver: Drawn) -> Parameters:
    """Both solvers' own: ASVRCD's parameters, and ASCD's theta = min{0.8, 1/eta} as `early_momentum`."""
    return _drawing(solver, early="early_momentum")


def _drawing(solver: Drawn, refreshes: bool = True, accelerates: bool = True, early: str = "") -> Parameters:
    """What such solvers have in common; rho only of one that refreshes, `early` the field of ASCD's theta."""
    derived, seen = _Derivation(solver.given), solver.constants.of_batches(solver.rows, solver.batch_size)
    best = ratio(seen.shared, seen.shared + seen.personal)
    probability = derived.take("shared_probability", best, "Lc^w/(Lc^w+Lc^beta)")
    step = 1 / (4 * seen.expected_smoothness(probability))
    step_size = derived.take("step_size", step, "1/(4 Lx), Lx = 2 max(Lc^w/p_w, Lc^beta/p_beta)", most=step)
    refresh, words = _refresh(seen, probability, solver.optimal_for)
    if refreshes:
        refresh = derived.take("refresh_probability", refresh, words)
    if accelerates:
        mu = _convexity(derived, solver.constants)
        # without refreshes as if there were some: the paper takes over ASVRCD's formula, in which rho stands
        momentum = min(0.5, math.sqrt(max(step_size * mu, 0.0) * max(0.5, solver.anchor / refresh)))
        if refreshes:
            momentum = derived.take("momentum", momentum, "min{1/2, sqrt(eta mu max{1/2, theta2/rho})}")
        slowest = max(2 * mu, 4 * momentum / step_size)
        derived.take("mirror_step", 1 / slowest if slowest > 0 else math.inf, "1/max{2 mu, 4 theta1/eta}")
    if early:
        derived.take(early, min(0.8, 1 / step_size), "min{0.8, 1/eta}")
    return derived.found


def l2sgd_plus(
    own: Constants, rows: float, penalty: float, *, batch_size: int = 1, given: Given = NOTHING
) -> Parameters:
    """Hanzely and Richtarik 2020: p* = (4 lam + mu')/(4 lam + 4 Lc' + (n+1) mu'), a = M min{both coins' bounds}.

    The bounds are (1-p)/(4 Lc' + mu' n) for gradient steps and p/(4 lam + mu') for steps toward the mean.
    """
    # a batch counts as one component of the table: fewer, larger ones
    count = max(rows / batch_size, 1.0) if batch_size else 1.0
    mu, smooth = own.strong_convexity, own.batch_smoothness(batch_size)
    gradient, mean = 4 * smooth + mu * count, 4 * penalty + mu
    derived = _Derivation(given)
    symbol, n = ("Lc'", "n") if batch_size else ("L'", "1")
    chance = derived.take(
        "averaging_probability", ratio(mean, mean + gradient), f"(4 lam + mu')/(4 lam + 4 {symbol} + ({n}+1) mu')"
    )
    # each coin has its own limit, and one step serves both; without a penalty the second has none
    step = own.clients * min(ratio(1 - chance, gradient), chance / mean if mean > 0 else math.inf)
    formula = f"M min{{(1-p)/(4 {symbol} + {n} mu'), p/(4 lam + mu')}}"
    derived.take("step_size", step, formula, most=step)
    return derived.found


def l2gd(own: Constants, penalty: float, *, given: Given = NOTHING) -> Parameters:
    """L2SGD+'s with exact gradients: n = 1 and L' for Lc'. L2GD itself stops at a distance that falls with a."""
    return l2sgd_plus(own, 1.0, penalty, batch_size=0, given=given)


def pfedme(own: Constants, penalty: float, *, batch_size: int = 0, given: Given = NOTHING) -> Parameters:
    """Descent lemma on the inner problem: a = 1/(Lc' + lam), 1/(L' + lam) on all rows; beyond twice that it diverges.

    Nothing is known of the outer step.
    """
    derived = _Derivation(given)
    curvature = (own.component_smoothness if batch_size else own.smoothness) + penalty
    formula = "1/(Lc' + lam)" if batch_size else "1/(L' + lam)"
    derived.take("inner_step", 1 / curvature, formula, most=2 / curvature)
    return derived.found


def _refresh(seen: Components, shared_probability: float, optimal_for: str) -> tuple[float, str]:
    """rho: refreshes of every component cost as much as the draws of one block; of the only block where one is flat."""
    chances = {"shared": shared_probability, "personal": 1 - shared_probability}
    # a block that is never drawn has no draws to match: then every draw is the other block's
    chance = chances[optimal_for] or 1.0
    symbol = ("p_w" if optimal_for == "shared" else "p_beta") if chances[optimal_for] else "1"
    return chance / seen.draws, f"{symbol}/n, n = {seen.draws:g} draws"


def _convexity(derived: _Derivation, constants: BlockConstants) -> float:
    """mu, which is the limit for one set by hand, too; there is none where it is not known."""
    mu = constants.strong_convexity
    return derived.take("strong_convexity", mu, "mu of F", most=mu if mu > 0 else math.inf)


def _rule_of(derive: Callable[[Drawn], Parameters], theorem: str, promise: Promise | None = None) -> Rule:
    """Of a solver that draws components of F."""

    def derive_from(question: Question) -> Parameters:
        options = {"batch_size": 0, "optimal_for": "shared", "anchor": 0.5}
        found = {name: question.option(name, default) for name, default in options.items()}
        return derive(Drawn(question.of_f, question.rows, **found, given=question.given))

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
    derived = asvrcd_pfl(Drawn(stated, question.rows, algorithm.batch_size, given=free))
    own = {parameter.name: getattr(algorithm, parameter.name) for parameter in derived}
    if algorithm.anchor != 0.5 or not all(math.isclose(own[p.name], p.value, rel_tol=1e-6) for p in derived):
        return None
    del own["strong_convexity"], own["step_size"]
    return complexity.asvrcd_pfl(stated, question.rows, epsilon, batch_size=algorithm.batch_size, **own)


def _l2sgd_plus_promise(question: Question, epsilon: float) -> Prediction | None:
    own, penalty = question.own, question.algorithm.objective.penalty
    fields = {field: getattr(question.algorithm, field) for field in ("averaging_probability", "step_size")}
    chance = {"averaging_probability": fields["averaging_probability"]}
    *_, step = l2sgd_plus(own, question.rows, penalty, given=chance)
    if not own.strong_convexity > 0 or fields["step_size"] > step.value * (1 + 1e-9):
        return None
    return complexity.l2sgd_plus(own, question.rows, epsilon, penalty=penalty, **fields)


_SAFE = "no step theory in Unified 2023; eta = 1/(4 Lx) of its theorem 9 is safe"
ACD_PFL = Rule(
    derive=lambda q: acd_pfl(q.of_f, given=q.given),
    theorem="Unified 2023, theorem 7",
    of_blocks=True,
    promise=_acd_pfl_promise,
)
ASVRCD_PFL = _rule_of(asvrcd_pfl, "Unified 2023, theorems 8 and 9", _asvrcd_pfl_promise)
SVRCD_PFL = _rule_of(svrcd_pfl, _SAFE)
SCD_PFL = _rule_of(scd_pfl, _SAFE)
ASCD_PFL = _rule_of(ascd_pfl, "Unified 2023, section 5: ASVRCD's, and theta")
ASCD_THEN_ASVRCD = _rule_of(ascd_then_asvrcd, "Unified 2023, theorems 8 and 9, section 5")
L2GD = Rule(
    derive=lambda q: l2gd(q.own, float(q.option("penalty", 0.0)), given=q.given),
    theorem="Hanzely and Richtarik 2020, at n = 1",
)
L2SGD_PLUS = Rule(
    derive=lambda q: l2sgd_plus(q.own, q.rows, **_pulled(q)),
    theorem="Hanzely and Richtarik 2020",
    promise=_l2sgd_plus_promise,
)
PFEDME = Rule(derive=lambda q: pfedme(q.own, **_pulled(q)), theorem="descent lemma")
