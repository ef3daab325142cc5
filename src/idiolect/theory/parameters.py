# SPDX-License-Identifier: Apache-2.0
"""What theory chooses for an algorithm: `from_theory` fills what was left to it and says how, or why it cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.addressing import PerClient
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import NeedsRidgeError, RequestError, unset
from idiolect.theory import scafflix
from idiolect.theory import solver_parameters as solvers
from idiolect.theory.constants import BlockConstants, Constants, block_constants, condition, shares_of
from idiolect.theory.solver_parameters import Parameter, Parameters
from idiolect.theory.step_sizes import advise, step_warnings


@dataclasses.dataclass(frozen=True)
class Advice:
    """Every parameter theory has a say in, what it follows from, and what to tell the user."""

    theorem: str = ""
    parameters: Parameters = ()
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by symbol
    source: str = ""  # of the constants
    chosen: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what theory filled: floats, PerClient
    sentences: tuple[str, ...] = ()  # how they were chosen; empty where nothing was
    warnings: tuple[str, ...] = ()

    def explanation(self) -> str:
        """One or two sentences about what was chosen."""
        return " ".join(self.sentences)


class Question(NamedTuple):
    """What a rule may ask about: the algorithm, the constants of f'_m and of F, and mean rows n."""

    algorithm: Algorithm
    own: Constants
    blocks: BlockConstants | None
    rows: float
    given: Mapping[str, Any]  # fields set by hand
    owner: str = ""  # what a refusal names

    @property
    def of_f(self) -> BlockConstants:
        """The constants of F, in a rule that is only asked where they are known."""
        assert self.blocks is not None
        return self.blocks

    def option(self, name: str, default: Any) -> Any:
        """A field of the algorithm or of its objective, where it has one."""
        return getattr(self.algorithm, name, getattr(self.algorithm.objective, name, default))


class Rule(NamedTuple):
    """How one solver's parameters are found."""

    derive: Callable[[Question], Parameters]
    theorem: str
    of_blocks: bool = True  # needs the constants of F, not only those of f'_m


def _draws(question: Question) -> dict[str, Any]:
    return {"batch_size": question.option("batch_size", 0), "given": question.given}


def _refreshes(question: Question) -> dict[str, Any]:
    return _draws(question) | {"optimal_for": question.option("optimal_for", "shared")}


def _anchored(question: Question) -> dict[str, Any]:
    return _refreshes(question) | {"anchor": question.option("anchor", 0.5)}


def _penalty(question: Question) -> float:
    return float(question.option("penalty", 0.0))


def _scafflix(question: Question, individual: bool = True) -> Parameters:
    algorithm, own, given = question.algorithm, question.own, question.given
    shares = shares_of(algorithm.objective, own.clients)
    if "communication_probability" not in given:
        scafflix.refuse_flat(own, shares, question.owner)
    accuracy, terms = question.option("target_accuracy", None), None
    if accuracy is not None:
        noise = float(question.option("noise", None) or 0.0)
        if own.rows is not None:
            terms = scafflix.noise_constants(algorithm.objective, own.rows, question.option("batch_size", 0), noise)
        if terms is None:
            raise RequestError(
                f"{question.owner}.target_accuracy needs the noise C_m at the optimum, which is not known here; "
                "set local_step and communication_probability by hand."
            )
    return scafflix.parameters(
        own,
        shares,
        individual=individual,
        batch_size=question.option("batch_size", 0),
        target_accuracy=accuracy,
        noise_terms=terms,
        given=given,
    )


_SAFE = "no step theory in paper 002; eta = 1/(4 Lx) of its theorem 9 is safe"
_THEOREM_4 = "paper 001, theorem 4 and corollary 6"
RULES: dict[str, Rule] = {
    "scafflix": Rule(_scafflix, _THEOREM_4, False),
    "i_scaffnew": Rule(_scafflix, _THEOREM_4, False),
    "scaffnew": Rule(lambda q: _scafflix(q, individual=False), _THEOREM_4, False),
    "flix_gd": Rule(_scafflix, "paper 001: gradient descent on FLIX with step 1/(mean alpha^2 L')", False),
    "acd_pfl": Rule(lambda q: solvers.acd_pfl(q.of_f, given=q.given), "paper 002, theorem 7"),
    "asvrcd_pfl": Rule(lambda q: solvers.asvrcd_pfl(q.of_f, q.rows, **_anchored(q)), "paper 002, theorems 8 and 9"),
    "svrcd_pfl": Rule(lambda q: solvers.svrcd_pfl(q.of_f, q.rows, **_refreshes(q)), _SAFE),
    "scd_pfl": Rule(lambda q: solvers.scd_pfl(q.of_f, q.rows, **_draws(q)), _SAFE),
    "ascd_pfl": Rule(
        lambda q: solvers.ascd_pfl(q.of_f, q.rows, **_refreshes(q)), "paper 002, section 5: ASVRCD's, and theta"
    ),
    "ascd_then_asvrcd": Rule(
        lambda q: solvers.ascd_then_asvrcd(q.of_f, q.rows, **_anchored(q)), "paper 002, theorems 8 and 9, section 5"
    ),
    "l2gd": Rule(
        lambda q: solvers.l2gd(q.own, _penalty(q), given=q.given), "Hanzely and Richtarik 2020, at n = 1", False
    ),
    "l2sgd_plus": Rule(
        lambda q: solvers.l2sgd_plus(q.own, q.rows, _penalty(q), **_draws(q)), "Hanzely and Richtarik 2020", False
    ),
    "pfedme": Rule(lambda q: solvers.pfedme(q.own, _penalty(q), **_draws(q)), "descent lemma", False),
}
_RISKS = {
    "local_step": "the theorem does not cover it, and beyond 2/L_m local steps diverge",
    "step_size": "it may diverge",
    "inner_step": "the inner steps diverge",
    "strong_convexity": "that much curvature is not proven, and neither is the rate",
    "shared_smoothness": "steps on w may overshoot",
    "personal_smoothness": "steps on beta may overshoot",
}


def from_theory(
    name: str,
    algorithm: Algorithm,
    constants: Constants | None,
    rows: float,
    *,
    wanted: Collection[str] = (),
    defaulted: Collection[str] = (),
    owner: str = "",
) -> tuple[Algorithm, Advice]:
    """The named algorithm with every field that is left to theory filled in, and the advice behind it.

    Left to theory are the None fields that say so, and those in `wanted` whatever they hold; both must be found.
    `defaulted` are fields that hold a default because nobody gave them: theory may know better, and need not.
    `constants` belong to the plain losses, `rows` is the mean number of training rows per client. `owner` is what a
    refusal names, such as "methods.acd"; the algorithm's name unless told.
    """
    owner = owner or name
    left = list(dict.fromkeys((*wanted, *unset(algorithm))))
    advise_on = _solver_advice if name in RULES else _step_advice
    advice = advise_on(name, algorithm, constants, rows, left, defaulted, owner)
    missing = [field for field in left if field not in advice.chosen]
    if missing:
        raise RequestError(_no_rule(name, missing, wanted, owner))
    return dataclasses.replace(algorithm, **advice.chosen), advice


def _step_advice(
    name: str,
    algorithm: Algorithm,
    constants: Constants | None,
    rows: float,
    left: Collection[str],
    defaulted: Collection[str],
    owner: str,
) -> Advice:
    """Algorithms with one step size, by the table of `step_sizes`; LSGD-PFL's average also has a weight."""
    advice, found, sentences = advise(name, algorithm, constants), [], []
    if advice is not None and "step_size" in left:
        found.append(Parameter("step_size", advice.recommended, advice.formula, most=advice.bound))
        sentences.append(advice.explanation())
        algorithm = dataclasses.replace(algorithm, step_size=advice.recommended)  # type: ignore[call-arg]
    blocks = block_constants(algorithm.objective, constants)
    weighs = getattr(algorithm, "output", "") == "weighted_average" and "strong_convexity" in (*left, *defaulted)
    if blocks is not None and weighs:
        mu = blocks.strong_convexity
        if 0 < mu * algorithm.step_size < 1:  # type: ignore[attr-defined]
            found.append(Parameter("strong_convexity", mu, "mu of F"))
            sentences.append(f"strong_convexity {mu:.3g}: mu of F, for the weights of theorem 5's average.")
    return Advice(
        theorem=advice.theorem if advice is not None else "",
        parameters=tuple(found),
        constants=_symbols(constants, blocks),
        source="" if constants is None else constants.source if blocks is None else blocks.source,
        chosen={parameter.name: parameter.value for parameter in found},
        sentences=tuple(sentences),
        warnings=tuple(step_warnings(name, algorithm, constants)),
    )


def _solver_advice(
    name: str,
    algorithm: Algorithm,
    constants: Constants | None,
    rows: float,
    left: Collection[str],
    defaulted: Collection[str],
    owner: str,
) -> Advice:
    """Solvers whose parameters follow from the constants of F, by `RULES`."""
    rule, blocks = RULES[name], block_constants(algorithm.objective, constants)
    if constants is None or constants.smoothness == 0 or (rule.of_blocks and blocks is None):
        if left:
            raise RequestError(_no_constants(algorithm, constants, left, owner))
        return Advice()
    if blocks is not None and "strong_convexity" in left and not blocks.strong_convexity > 0:
        kind = RequestError if constants.strong_convexity > 0 else NeedsRidgeError
        raise kind(_not_strongly_convex(constants, blocks, owner))
    question = Question(algorithm, constants, blocks, rows, _by_hand(algorithm, left), owner)
    if rule.of_blocks and blocks is not None:
        _refuse_never_sampled(question.given.get("shared_probability"), blocks, owner)
    parameters = rule.derive(question)
    chosen = {parameter.name: _addressed(parameter.value) for parameter in parameters if parameter.name in left}
    relies = any(parameter.name == "strong_convexity" for parameter in parameters)
    broken = condition(algorithm.objective, constants) if relies else None
    symbols = _symbols(constants, blocks if rule.of_blocks else None)
    source = blocks.source if rule.of_blocks and blocks is not None else constants.source
    return Advice(
        theorem=rule.theorem,
        parameters=parameters,
        constants=symbols,
        source=source,
        chosen=chosen,
        sentences=_sentences(rule, parameters, symbols, source) if chosen else (),
        warnings=(*([broken] if broken else []), *_warnings(rule, parameters)),
    )


def _addressed(value: Any) -> Any:
    return PerClient(value) if np.ndim(value) else value


def _by_hand(algorithm: Algorithm, left: Collection[str]) -> dict[str, Any]:
    """What the user set among the fields that theory could have; a block that is absent leaves no choice of p_w."""
    values = {
        field.name: getattr(algorithm, field.name)
        for field in dataclasses.fields(algorithm)
        if (field.metadata.get("theory") or field.default is None) and field.name not in left
    }
    both = algorithm.objective.has_shared and algorithm.objective.has_personal
    return {
        name: np.asarray(value.values, float) if isinstance(value, PerClient) else float(value)
        for name, value in values.items()
        if value is not None and (both or name != "shared_probability")
    }


def _refuse_never_sampled(probability: float | None, blocks: BlockConstants, owner: str) -> None:
    for never, block, smoothness in ((0.0, "w", blocks.shared_smoothness), (1.0, "beta", blocks.personal_smoothness)):
        if probability == never and smoothness > 0:
            raise RequestError(
                f"{owner}.shared_probability must be between 0 and 1, got {probability:g}, which never samples "
                f"{block}; leave it out to have it chosen."
            )


def _symbols(own: Constants | None, blocks: BlockConstants | None) -> dict[str, float]:
    if blocks is not None:
        return {
            "mu": blocks.strong_convexity,
            "L^w": blocks.shared_smoothness,
            "L^beta": blocks.personal_smoothness,
            "Lc^w": blocks.component_shared_smoothness,
            "Lc^beta": blocks.component_personal_smoothness,
        }
    if own is None:
        return {}
    return {"mu'": own.strong_convexity, "L'": own.smoothness, "Lc'": own.component_smoothness}


def _sentences(rule: Rule, parameters: Parameters, symbols: Mapping[str, float], source: str) -> tuple[str, str]:
    values = ", ".join(
        f"{p.name} {p.shown()} " + ("(set by hand)" if p.by_hand else f"= {p.formula}") for p in parameters
    )
    known = ", ".join(f"{symbol} {value:.3g}" for symbol, value in symbols.items())
    return f"{values} ({rule.theorem}).", f"Constants: {known} ({source})."


def _warnings(rule: Rule, parameters: Parameters) -> list[str]:
    """One sentence for every field set by hand beyond what theory covers."""
    sentences = []
    for parameter in parameters:
        beyond = parameter.beyond()
        if beyond is not None:
            side, value, limit, client = beyond
            whose = "" if client is None else f" of client number {client}"
            sentences.append(
                f"{parameter.name} {value:.3g}{whose} is {side} {limit:.3g}, from {parameter.formula} "
                f"({rule.theorem}): "
                f"{_RISKS[parameter.name]}. Leave it out to have it chosen."
            )
    return sentences


def _no_rule(name: str, missing: Collection[str], wanted: Collection[str], owner: str) -> str:
    field = next((field for field in missing if field in wanted), None)
    if field is not None:
        tuned = ", or list some in [tuning] step_size" if field == "step_size" else ""
        return (
            f'{owner}.{field} = "theory" needs a rule and known constants, and {name} on this model has none; '
            f"give a number{tuned}."
        )
    return f"{owner} leaves {', '.join(missing)} to theory, which has no rule for {name}; set numbers by hand."


def _no_constants(algorithm: Algorithm, constants: Constants | None, left: Collection[str], owner: str) -> str:
    objective = type(algorithm.objective).__name__
    why = f"the constants of {objective} are not known"
    if constants is None:
        why = "theory knows the constants of linear models with a convex loss only, and this model is not one"
    elif constants.smoothness == 0:
        why = "this loss has no curvature at all"
    return f"{owner} leaves {', '.join(left)} to theory, and {why}; set {'them' if len(left) > 1 else 'it'} by hand."


def _not_strongly_convex(own: Constants, blocks: BlockConstants, owner: str) -> str:
    ways = "set strong_convexity by hand" if own.strong_convexity > 0 else "set model.l2, or strong_convexity by hand"
    return (
        f"{owner}.strong_convexity is left to theory, which needs F to be strongly convex, and mu = 0 here "
        f"({blocks.source}); {ways}."
    )
