# SPDX-License-Identifier: Apache-2.0
"""From a spec to objects: model, loss, objective, algorithm, scores."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect.algorithms import find
from idiolect.collaborate.excess import Exchange
from idiolect.core.addressing import PerClient
from idiolect.core.algorithm import Algorithm, fit_of
from idiolect.core.checks import RequestError, check, nearest
from idiolect.core.objective import Checks
from idiolect.core.settings import check_settings, know_population
from idiolect.data.federation import Federation
from idiolect.data.problem import Problem
from idiolect.data.task import Task
from idiolect.experiments.collaboration import Collaboration, join
from idiolect.experiments.networks import (
    BESIDE_NAME,
    LANGUAGE_MODELS,
    NETWORKS,
    check_vocabulary,
    chosen_settings,
    holds_tokens,
    network,
    own_model,
    refuse_other_settings,
)
from idiolect.experiments.spec import MethodSpec, ModelSpec, Spec, own_settings
from idiolect.experiments.strict import coerce
from idiolect.experiments.units import unit_sentence
from idiolect.metrics.scores import default_score, find_score, proper_score
from idiolect.models import MLP, Linear, Location, Model
from idiolect.objectives import OBJECTIVES, ClientLoss, Objective
from idiolect.theory.constants import Constants, client_constants
from idiolect.theory.parameters import from_theory
from idiolect.theory.scafflix import refuse_singular


class Built(NamedTuple):
    """A method ready to run, and sentences about how its settings were chosen."""

    algorithm: Algorithm
    notes: list[str]
    warnings: list[str]
    chosen: dict[str, Any]  # what theory chose
    agreed: Exchange | None = None  # what it was sent to find out who listens to whom
    theory: frozenset[str] = frozenset()  # notes that say by which theorem settings were chosen


def build_client_loss(spec: ModelSpec, federation: Federation, problem: Problem | None) -> ClientLoss:
    """f'_m: a synthetic problem brings its own model; otherwise the width follows the data and the task."""
    if problem is not None:
        models: dict[str, Model] = {
            "linear": Linear(problem.dimension, 0, bias=False),
            "location": Location(problem.dimension),
        }
        return ClientLoss(model=models[problem.model], criterion=problem.criterion, l2=problem.l2 or None)
    plain = federation.task.kind != "classification" and federation.train.targets.ndim == 1
    tokens = holds_tokens(federation)
    if tokens:
        check_vocabulary(federation)
    return client_loss_for(spec, federation.task, federation.input_shape, plain_number=plain, tokens=tokens)


def client_loss_for(
    spec: ModelSpec, task: Task, input_shape: tuple[int, ...], plain_number: bool, tokens: bool = False
) -> ClientLoss:
    """f'_m for a task: cross-entropy over its classes, the squared error of numbers, or the Poisson loss of counts.

    Two classes need no more than one output, whose logistic loss is the cross-entropy of (0, output): half as many
    parameters of a linear model, and half the bytes.
    """
    if spec.loss == "logistic" and len(task.classes) != 2:
        what = f"{len(task.classes)} classes" if task.kind == "classification" else f"a target of the task {task.kind}"
        raise RequestError(
            f"model.loss = 'logistic' needs a target of two classes, got {what}; use 'cross_entropy', the default."
        )
    _check_quantile(spec, task)
    width = 0 if plain_number or spec.loss == "logistic" else task.outputs
    criterion = {"classification": spec.loss, "counts": "poisson"}.get(task.kind, "squared")
    model = _model(spec, input_shape, width, tokens)
    if spec.loss == "pinball":
        return ClientLoss(model=model, criterion="pinball", l2=spec.l2, quantile=spec.quantile)
    return ClientLoss(model=model, criterion=criterion, l2=spec.l2)


def _check_quantile(spec: ModelSpec, task: Task) -> None:
    """RequestError unless quantile and the pinball loss come together, of numbers, as a whole percent."""
    if (spec.loss == "pinball") != (spec.quantile is not None):
        raise RequestError(
            "model.loss = 'pinball' and model.quantile go together, got "
            f"{spec.loss!r} and {spec.quantile}; set both, such as quantile = 0.9, or neither."
        )
    if spec.quantile is None:
        return
    if task.kind != "regression":
        raise RequestError(f"model.loss = 'pinball' needs the task regression, got {task.kind}; leave it out.")
    if abs(100 * spec.quantile - round(100 * spec.quantile)) > 1e-9:
        raise RequestError(f"model.quantile must be a whole percent such as 0.9 or 0.25, got {spec.quantile:g}.")


def _model(spec: ModelSpec, input_shape: tuple[int, ...], outputs: int, tokens: bool) -> Model:
    plain = ModelSpec()
    for owner, name in BESIDE_NAME.items():
        given = getattr(spec, name)
        if spec.name != owner and given != getattr(plain, name):
            raise RequestError(
                f"model.{name} is a setting of {owner}, got {given} with {spec.name!r}; what {spec.name!r} can be told "
                "goes into [model.settings]."
            )
    if ":" in spec.name:
        return own_model(spec.name, spec.settings, input_shape, outputs, tokens)
    if spec.name in NETWORKS:
        return network(spec.name, spec.settings, input_shape, outputs, tokens)
    if tokens:
        raise RequestError(f"{spec.name} needs numbers as inputs, got tokens; use {' or '.join(LANGUAGE_MODELS)}.")
    features = math.prod(input_shape)
    if spec.name == "linear":
        refuse_other_settings("linear", spec.settings)
        return Linear(features, outputs, spec.bias)
    return MLP(features, outputs, tuple(spec.hidden), **chosen_settings("mlp", spec.settings))


def build_objective(
    name: str,
    client_loss: ClientLoss,
    settings: Mapping[str, Any] | None = None,
    clients: int = 0,
    where: str = "objective",
) -> Objective:
    """The named objective on a plain loss; errors name the place `where` in the spec."""
    cls = _find_objective(name)
    return cls(client_loss, **_coerced(cls, settings or {}, clients, where))  # type: ignore[call-arg]


def _find_objective(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        raise RequestError(f"There is no objective {name!r}.{nearest(name, OBJECTIVES)}")
    return OBJECTIVES[name]


class Assembled(NamedTuple):
    """An algorithm as a spec describes it, before theory had its say."""

    algorithm: Algorithm
    wanted: list[str]  # settings written as "theory"
    defaulted: list[str]  # settings that nobody gave


def assemble(method: MethodSpec, client_loss: ClientLoss, clients: int, where: str) -> Assembled:
    """Algorithm and objective with the settings of each, checked; errors name the place `where` in the spec."""
    entry = find(method.algorithm)
    name = method.objective or entry.objective
    if name is None:
        raise RequestError(f"[{where}] needs an objective; one of {', '.join(sorted(OBJECTIVES))}.")
    given = {**entry.preset, **(entry.objective_preset if name == entry.objective else {}), **method.settings}
    of_objective = {key: given.pop(key) for key in own_settings(_find_objective(name)) if key in given}
    wanted = [key for key, value in given.items() if value == "theory" and _is_number(entry.algorithm, key)]
    values = _coerced(entry.algorithm, {key: given[key] for key in given if key not in wanted}, clients, where)
    algorithm = entry.algorithm(build_objective(name, client_loss, of_objective, clients, where), **values)
    algorithm = know_population(algorithm, clients)
    check_settings(algorithm)
    if isinstance(algorithm.objective, Checks):
        algorithm.objective.check_parts()
    reason = fit_of(algorithm).refused
    if reason is not None:
        raise RequestError(f"[{where}] {method.algorithm} cannot minimise {name}: {reason}.")
    return Assembled(algorithm, wanted, [key for key in own_settings(entry.algorithm) if key not in given])


def build_method(
    method: MethodSpec,
    client_loss: ClientLoss,
    constants: Constants | None,
    clients: int,
    rows: float,
    resolved: Mapping[str, Any] | None = None,
    names: Sequence[str] = (),
    collaboration: Collaboration | None = None,
) -> Built:
    """The algorithm a spec describes. What is left to theory is found from the problem's constants.

    `rows` is the mean number of training rows per client. `resolved` is what theory chose when the run was started.
    `names` are what clients are called, `collaboration` is who listens to whom.
    """
    where = f"methods.{method.label}"
    algorithm, wanted, defaulted = assemble(method, client_loss, clients, where)
    algorithm, told = join(algorithm, collaboration, constants, where)
    refuse_singular(algorithm.objective, constants, names or range(clients))
    rule = find(method.algorithm).theory
    algorithm, advice = from_theory(rule, algorithm, constants, rows, wanted=wanted, defaulted=defaulted, owner=where)
    chosen = {name: _listed(value) for name, value in advice.chosen.items()}
    chosen |= dict(resolved) if resolved else {}  # a repeat runs on the very same numbers
    algorithm = dataclasses.replace(algorithm, **{name: _addressed(value) for name, value in chosen.items()})
    check_settings(algorithm)
    notes = [f"{method.label}: {text}" for text in (*told, *advice.sentences)]
    agreed = collaboration.exchange if collaboration is not None and told else None
    warnings = [f"{method.label}: {text}" for text in advice.warnings]
    return Built(algorithm, notes, warnings, chosen, agreed, frozenset(notes[len(told) :]))


def _listed(value: Any) -> Any:
    """What a spec can hold."""
    return np.asarray(value.values, float).tolist() if isinstance(value, PerClient) else value


def _addressed(value: Any) -> Any:
    return PerClient(np.asarray(value, float)) if isinstance(value, list) else value


def _coerced(cls: type, settings: Mapping[str, Any], clients: int, where: str) -> dict[str, Any]:
    """Settings in the types and ranges that the class declares; a list has one entry per client."""
    hints = typing.get_type_hints(cls)
    values = {key: coerce(_plain_type(hints[key]), value, f"{where}.{key}") for key, value in settings.items()}
    values |= {key: tuple(value) for key, value in values.items() if typing.get_origin(hints[key]) is tuple}
    for field in dataclasses.fields(cls):
        if field.name in values and "range" in field.metadata:
            check(where, field.name, values[field.name], field.metadata["range"])
    for key, value in values.items():
        if isinstance(value, list):
            if len(value) != clients:
                raise RequestError(
                    f"{where}.{key} must be one number or have an entry for each of the {clients} clients, "
                    f"got {len(value)}; give one number for all."
                )
            values[key] = _addressed(value)
    return values


def _is_number(cls: type, key: str) -> bool:
    return str not in _kinds(typing.get_type_hints(cls)[key])


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) or (hint,)


def _plain_type(hint: Any) -> Any:
    """The part of a setting's type that a TOML file can hold; one value per client is a list."""
    if typing.get_origin(hint) is tuple:
        return list[_kinds(hint)[0]]  # type: ignore[misc]
    kinds = [kind for kind in _kinds(hint) if kind in (float, int, bool, str, type(None))]
    if PerClient in _kinds(hint):
        kinds.append(list[float])
    plain = kinds[0] if kinds else Any
    for kind in kinds[1:]:
        plain = plain | kind
    return plain


def problem_constants(client_loss: ClientLoss, federation: Federation) -> Constants | None:
    """Smoothness and strong convexity of each client's loss, where known."""
    with jax.enable_x64(True):
        return client_constants(client_loss, federation.train)


def choose_scores(spec: Spec, federation: Federation) -> tuple[tuple[str, ...], str]:
    """The scores to record (the first decides) and the sentence that says why."""
    kind = federation.task.kind
    if spec.evaluation.scores:
        for name in spec.evaluation.scores:
            find_score(name, kind)
        if len(set(spec.evaluation.scores)) < len(spec.evaluation.scores):
            raise RequestError(f"evaluation.scores must differ, got {spec.evaluation.scores}; name each once.")
        primary = spec.evaluation.scores[0]
        reason = f"{primary} decides, as was asked. {unit_sentence(primary, federation)}"
        return tuple(spec.evaluation.scores), reason.rstrip()
    if kind == "classification" and federation.train.targets.ndim == 2:
        reason = "Scored by accuracy (higher is better): the share of positions whose next token is guessed."
        return ("accuracy", "log_loss"), reason
    balance = federation.class_balance() if kind == "classification" else None
    proper = proper_score(kind, spec.model.quantile)
    primary, reason = default_score(kind, balance)
    if spec.model.quantile is not None:
        primary, reason = proper, f"Scored by {proper} (mean over rows, lower is better): the model's own loss."
    reason = f"{reason} {unit_sentence(primary, federation)}".rstrip()
    return (primary,) if primary == proper else (primary, proper), reason
