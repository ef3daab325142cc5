# SPDX-License-Identifier: Apache-2.0
"""What theory chooses for an algorithm: `from_theory` fills what was left to it and says how, or why it cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from idiolect.core.addressing import PerClient
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import NeedsRidgeError, RequestError, unset
from idiolect.theory.constants import BlockConstants, Constants, block_constants, condition, numbers_of
from idiolect.theory.rule import Parameter, Parameters, Question, Rule
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


def from_theory(
    rule: Rule | None,
    algorithm: Algorithm,
    constants: Constants | None,
    rows: float,
    *,
    wanted: Collection[str] = (),
    defaulted: Collection[str] = (),
    owner: str = "",
) -> tuple[Algorithm, Advice]:
    """The algorithm with every field that is left to theory filled in by its rule, and the advice behind it.

    A registered name's rule is `ALGORITHMS[name].theory`. Left to theory are the None fields that say so, and those in
    `wanted` whatever they hold; both must be found. `defaulted` are fields that were not given and hold a default:
    theory may know better, and need not. `constants` belong to the plain losses, `rows` is the mean number of
    training rows per client. `owner` is what a refusal names, such as "methods.acd"; the class unless told.
    """
    owner = owner or type(algorithm).__name__
    left = list(dict.fromkeys((*wanted, *unset(algorithm))))
    if rule is not None and rule.derive is not None:
        advice = _solver_advice(rule, rule.derive, algorithm, constants, rows, left, owner)
    else:
        advice = _step_advice(rule, algorithm, constants, left, defaulted)
    missing = [field for field in left if field not in advice.chosen]
    if missing:
        raise RequestError(_no_rule(missing, wanted, owner))
    return dataclasses.replace(algorithm, **advice.chosen), advice


def _step_advice(
    rule: Rule | None, algorithm: Any, constants: Constants | None, left: Collection[str], defaulted: Collection[str]
) -> Advice:
    """Algorithms with one step size, or without a rule; LSGD-PFL's average also has a weight."""
    advice, found, sentences = advise(rule, algorithm, constants), [], []
    if advice is not None and "step_size" in left:
        found.append(Parameter("step_size", advice.recommended, advice.formula, most=advice.bound))
        sentences.append(advice.explanation())
        algorithm = dataclasses.replace(algorithm, step_size=advice.recommended)
    blocks = block_constants(algorithm.objective, constants)
    mu = _average_convexity(algorithm, blocks) if "strong_convexity" in (*left, *defaulted) else None
    if mu is not None:
        found.append(Parameter("strong_convexity", mu, "mu of F"))
        sentences.append(f"strong_convexity {mu:.3g}: mu of F, for the weights of theorem 5's average.")
    known = blocks or constants
    return Advice(
        "" if advice is None else advice.theorem,
        tuple(found),
        {} if known is None else known.symbols,
        "" if known is None else known.source,
        {parameter.name: parameter.value for parameter in found},
        tuple(sentences),
        tuple(step_warnings(rule, algorithm, constants)),
    )


def _average_convexity(algorithm: Any, blocks: BlockConstants | None) -> float | None:
    """mu where iterates are averaged with weights that it decides, and those weights make sense."""
    if blocks is None or getattr(algorithm, "output", "") != "weighted_average":
        return None
    return blocks.strong_convexity if 0 < blocks.strong_convexity * algorithm.step_size < 1 else None


def _solver_advice(
    rule: Rule,
    derive: Callable[[Question], Parameters],
    algorithm: Algorithm,
    constants: Constants | None,
    rows: float,
    left: Collection[str],
    owner: str,
) -> Advice:
    """Solvers whose parameters follow from the constants of F or of f'_m."""
    blocks = block_constants(algorithm.objective, constants)
    relied_on = blocks if rule.of_blocks else constants
    if constants is None or constants.smoothness == 0 or relied_on is None:
        if left:
            raise RequestError(_no_constants(algorithm, constants, left, owner))
        return Advice()
    question = Question(algorithm, constants, blocks, rows, _by_hand(algorithm, left), owner)
    _refuse_blocks(question, left)
    parameters = derive(question)
    chosen = {p.name: PerClient(p.value) if np.ndim(p.value) else p.value for p in parameters if p.name in left}
    return Advice(
        theorem=rule.theorem,
        parameters=parameters,
        constants=relied_on.symbols,
        source=relied_on.source,
        chosen=chosen,
        sentences=_sentences(rule, parameters, relied_on) if chosen else (),
        warnings=_warnings(rule, question, parameters),
    )


def _refuse_blocks(question: Question, left: Collection[str]) -> None:
    """A block that is curved must be sampled, and mu cannot be chosen where F has none.

    l2 would give it some where the plain losses have none either.
    """
    blocks, curved = question.blocks, question.own.strong_convexity > 0
    if blocks is None:
        return
    if "strong_convexity" in left and not blocks.strong_convexity > 0:
        ways = "set strong_convexity by hand" if curved else "set model.l2, or strong_convexity by hand"
        raise (RequestError if curved else NeedsRidgeError)(
            f"{question.owner}.strong_convexity is left to theory, which needs F to be strongly convex, and mu = 0 "
            f"here ({blocks.source}); {ways}."
        )
    probability = question.given.get("shared_probability")
    for never, block, smoothness in ((0.0, "w", blocks.shared_smoothness), (1.0, "beta", blocks.personal_smoothness)):
        if probability == never and smoothness > 0:
            raise RequestError(
                f"{question.owner}.shared_probability must be between 0 and 1, got {probability:g}, which never "
                f"samples {block}; leave it out to have it chosen."
            )


def _by_hand(algorithm: Algorithm, left: Collection[str]) -> dict[str, Any]:
    """What the user set among the fields that theory could have; a block that is absent leaves no choice of p_w."""
    asked = [field for field in dataclasses.fields(algorithm) if field.metadata.get("theory") or field.default is None]
    values = {field.name: getattr(algorithm, field.name) for field in asked if field.name not in left}
    # an absent block is never sampled and the other one always: there is nothing to choose
    if not (algorithm.objective.has_shared and algorithm.objective.has_personal):
        values.pop("shared_probability", None)
    return {name: numbers_of(value)[()] for name, value in values.items() if value is not None}


def _warnings(rule: Rule, question: Question, parameters: Parameters) -> tuple[str, ...]:
    """About a condition of mu that does not hold, where mu is relied on, and about fields set by hand."""
    relies = any(parameter.name == "strong_convexity" for parameter in parameters)
    broken = condition(question.algorithm.objective, question.own) if relies else None
    found = (broken, *(parameter.warning(rule.theorem) for parameter in parameters))
    return tuple(sentence for sentence in found if sentence)


def _sentences(rule: Rule, parameters: Parameters, relied_on: Constants | BlockConstants) -> tuple[str, ...]:
    """How parameters were chosen."""
    values = ", ".join(
        f"{p.name} {p.shown()} " + ("(set by hand)" if p.by_hand else f"= {p.formula}") for p in parameters
    )
    known = ", ".join(f"{symbol} {value:.3g}" for symbol, value in relied_on.symbols.items())
    return f"{values} ({rule.theorem}).", f"Constants: {known} ({relied_on.source})."


def _no_rule(missing: Collection[str], wanted: Collection[str], owner: str) -> str:
    field = next((field for field in missing if field in wanted), None)
    if field is not None:
        tuned = ", or list some in [tuning] step_size" if field == "step_size" else ""
        return (
            f'{owner}.{field} = "theory" needs a rule and known constants, and on this model there are none; '
            f"give a number{tuned}."
        )
    return f"{owner} leaves {', '.join(missing)} to theory, which has no rule for it; set numbers by hand."


def _no_constants(algorithm: Algorithm, constants: Constants | None, left: Collection[str], owner: str) -> str:
    objective = type(algorithm.objective).__name__
    why = f"the constants of {objective} are not known"
    if constants is None:
        why = "theory knows the constants of linear models with a convex loss only, and this model is not one"
    elif constants.smoothness == 0:
        why = "this loss has no curvature at all"
    return f"{owner} leaves {', '.join(left)} to theory, and {why}; set {'them' if len(left) > 1 else 'it'} by hand."
