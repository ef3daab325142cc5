# SPDX-License-Identifier: Apache-2.0
"""From a spec to objects: model, loss, objective, algorithm, scores."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from idiolect.algorithms import find
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError, check, nearest
from idiolect.core.settings import check_settings
from idiolect.data.federation import Federation
from idiolect.data.problem import Problem
from idiolect.data.task import Task
from idiolect.experiments.spec import MethodSpec, ModelSpec, Spec
from idiolect.experiments.strict import coerce
from idiolect.experiments.units import unit_sentence
from idiolect.metrics.scores import SCORES, default_score, find_score
from idiolect.models import MLP, Linear, Location, Model
from idiolect.objectives import OBJECTIVES, ClientLoss, Objective
from idiolect.theory.constants import Constants, client_constants
from idiolect.theory.step_sizes import advise, step_warnings


class Built(NamedTuple):
    """A method ready to run, and sentences about how its settings were chosen."""

    algorithm: Algorithm
    notes: list[str]
    warnings: list[str]


def build_client_loss(spec: ModelSpec, federation: Federation, problem: Problem | None) -> ClientLoss:
    """f'_m: a synthetic problem brings its own model; otherwise the width follows the data and the task."""
    if problem is not None:
        models: dict[str, Model] = {
            "linear": Linear(problem.dimension, 0, bias=False),
            "location": Location(problem.dimension),
        }
        return ClientLoss(model=models[problem.model], criterion=problem.criterion, l2=problem.l2 or None)
    plain = federation.task.kind == "regression" and federation.train.targets.ndim == 1
    return client_loss_for(spec, federation.task, federation.input_shape, plain_number=plain)


def client_loss_for(spec: ModelSpec, task: Task, input_shape: tuple[int, ...], plain_number: bool) -> ClientLoss:
    """f'_m for a task: cross-entropy over its classes, or the squared error of one number or several."""
    features = math.prod(input_shape)
    width = 0 if plain_number else task.outputs
    models: dict[str, Callable[[], Model]] = {
        "linear": lambda: Linear(features, width, spec.bias),
        "mlp": lambda: MLP(features, width, tuple(spec.hidden)),
    }
    criterion = "cross_entropy" if task.kind == "classification" else "squared"
    return ClientLoss(model=models[spec.name](), criterion=criterion, l2=spec.l2)


def build_objective(name: str, client_loss: ClientLoss) -> Objective:
    """The named objective on a plain loss."""
    if name not in OBJECTIVES:
        raise RequestError(f"There is no objective {name!r}.{nearest(name, OBJECTIVES)}")
    return OBJECTIVES[name](client_loss)  # type: ignore[call-arg]


def build_method(method: MethodSpec, client_loss: ClientLoss, constants: Constants | None, clients: int) -> Built:
    """The algorithm a spec describes. A step_size of "theory" is resolved from the problem's constants."""
    entry = find(method.algorithm)
    name = method.objective or entry.objective
    if name is None:
        raise RequestError(f"[methods.{method.label}] needs an objective; one of {', '.join(sorted(OBJECTIVES))}.")
    hints = typing.get_type_hints(entry.algorithm)
    given = dict(entry.preset) | method.settings
    theory = given.get("step_size") == "theory"
    if theory:
        given.pop("step_size")
    where = f"methods.{method.label}"
    values = {key: coerce(_plain_type(hints[key]), value, f"{where}.{key}") for key, value in given.items()}
    algorithm = entry.algorithm(build_objective(name, client_loss), **values)
    algorithm = dataclasses.replace(algorithm, clients=clients)
    for field in dataclasses.fields(entry.algorithm):
        if field.name in values and "range" in field.metadata:
            check(where, field.name, values[field.name], field.metadata["range"])
    check_settings(algorithm)
    reason = algorithm.skip()
    if reason is not None:
        raise RequestError(f"[{where}] {method.algorithm} cannot minimise {name}: {reason}.")
    notes = []
    if theory:
        advice = advise(method.algorithm, algorithm, constants)
        if advice is None:
            raise RequestError(
                f'{where}.step_size = "theory" needs a rule and known constants, and {method.algorithm} on this model '
                "has none; give a number, or list some in [tuning] step_size."
            )
        algorithm = dataclasses.replace(algorithm, step_size=advice.recommended)  # type: ignore[call-arg]
        notes.append(f"{method.label}: {advice.explanation()}")
    warnings = [f"{method.label}: {text}" for text in step_warnings(method.algorithm, algorithm, constants)]
    return Built(algorithm, notes, warnings)


def _plain_type(hint: Any) -> Any:
    """The part of a setting's type that a TOML file can hold."""
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind in (float, int, bool, str, type(None))]
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
        reason = f"{primary} decides, as the spec asks. {unit_sentence(primary, federation)}"
        return tuple(spec.evaluation.scores), reason.rstrip()
    balance = federation.class_balance() if kind == "classification" else None
    primary, reason = default_score(kind, balance)
    others = [name for name, score in SCORES.items() if score.task == kind and name in ("log_loss", "squared_error")]
    reason = f"{reason} {unit_sentence(primary, federation)}".rstrip()
    return (primary, *(name for name in others if name != primary)), reason
