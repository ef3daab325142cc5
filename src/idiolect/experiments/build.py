# SPDX-License-Identifier: Apache-2.0
"""From a spec to objects: model, loss, objective, algorithm."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.algorithms import find
from idiolect.core.addressing import PerClient
from idiolect.core.algorithm import Algorithm, fit_of
from idiolect.core.checks import RequestError, check, nearest
from idiolect.core.importing import imported
from idiolect.core.objective import Checks
from idiolect.core.settings import check_settings, know_population
from idiolect.data.federation import Federation
from idiolect.data.problem import Problem
from idiolect.data.task import Task
from idiolect.experiments.collaboration import Collaboration, join
from idiolect.experiments.hosts import over_hosts
from idiolect.experiments.protection import RowSpending, Spending
from idiolect.experiments.spec import MODEL_NAMES, MethodSpec, ModelSpec, Setting, own_settings
from idiolect.experiments.strict import coerce, refuse_unknown
from idiolect.models import MLP, MODELS, Linear, Location, Model
from idiolect.objectives import OBJECTIVES, ClientLoss, Objective
from idiolect.theory.constants import Constants, client_constants
from idiolect.theory.parameters import from_theory
from idiolect.theory.scafflix import refuse_singular

Number: TypeAlias = float | list[float]  # for all clients, or one for each


class Built(NamedTuple):
    """A method ready to run, and sentences about how its settings were chosen."""

    method: MethodSpec
    algorithm: Algorithm
    notes: list[str]
    warnings: list[str]
    chosen: dict[str, Number]  # what theory chose
    spent: Ledger = Ledger()  # before the first round: what finding out who listens to whom has sent
    absence: str | None = None  # what is to be said where clients are absent from rounds
    theory: frozenset[str] = frozenset()  # notes that say by which theorem settings were chosen
    protected: tuple[str, ...] = ()  # what protections are around it, in words
    spending: Spending | RowSpending | None = None  # what its rounds spend of a privacy budget


def build_client_loss(spec: ModelSpec, federation: Federation, problem: Problem | None) -> ClientLoss:
    """f'_m: a synthetic problem brings its own model; otherwise the width follows the data and the task."""
    if problem is not None:
        linear = problem.model == "linear"
        model = Linear(problem.dimension, 0, bias=False) if linear else Location(problem.dimension)
        return ClientLoss(model=model, criterion=problem.criterion, l2=problem.l2 or None)
    plain = federation.task.kind != "classification" and federation.train.targets.ndim == 1
    # whole numbers that name something and are never scaled
    tokens = bool(np.issubdtype(federation.train.inputs.dtype, np.integer))
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
    if spec.loss == "pinball" or spec.quantile is not None:
        _check_quantile(spec, task)
    width = 0 if plain_number or spec.loss == "logistic" else task.outputs
    of_numbers = "pinball" if spec.loss == "pinball" else "squared"
    criterion = {"classification": spec.loss, "counts": "poisson"}.get(task.kind, of_numbers)
    model = _model(spec, input_shape, width, tokens)
    return ClientLoss(model=model, criterion=criterion, l2=spec.l2, quantile=spec.quantile)


def _check_quantile(spec: ModelSpec, task: Task) -> None:
    """RequestError unless quantile and the pinball loss come together, of numbers, as a whole percent."""
    if spec.loss != "pinball" or spec.quantile is None:
        raise RequestError(
            "model.loss = 'pinball' and model.quantile go together, got "
            f"{spec.loss!r} and {spec.quantile}; set both, such as quantile = 0.9, or neither."
        )
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
    if tokens and spec.name not in NETWORKS:
        raise RequestError(f"{spec.name} needs numbers as inputs, got tokens; use {' or '.join(LANGUAGE_MODELS)}.")
    chosen = chosen_settings(spec.name, spec.settings)
    if spec.name in NETWORKS:
        return network(spec.name, chosen, input_shape, outputs, tokens)
    features = math.prod(input_shape)
    if spec.name == "linear":
        return Linear(features, outputs, spec.bias)
    return MLP(features, outputs, tuple(spec.hidden), **chosen)


def build_objective(
    name: str,
    client_loss: ClientLoss,
    settings: Mapping[str, Setting] | None = None,
    clients: int = 0,
    where: str = "objective",
) -> Objective:
    """The named objective on a plain loss; errors name the place `where` in the spec."""
    cls = _find_objective(name)
    return cls(client_loss, **_typed(cls, settings or {}, clients, where))  # type: ignore[call-arg]


def _find_objective(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        raise RequestError(f"There is no objective {name!r}.{nearest(name, OBJECTIVES)}")
    return OBJECTIVES[name]


class Assembled(NamedTuple):
    """An algorithm as a spec describes it, before theory had its say."""

    algorithm: Algorithm
    wanted: list[str]  # settings written as "theory"
    defaulted: list[str]  # settings that were not given


def assemble(method: MethodSpec, client_loss: ClientLoss, clients: int, where: str) -> Assembled:
    """Algorithm and objective with the settings of each, checked; errors name the place `where` in the spec."""
    found = configure(method, client_loss, clients, where)
    if isinstance(found.algorithm.objective, Checks):
        found.algorithm.objective.check_parts()
    reason = fit_of(found.algorithm).refused
    if reason is not None:
        name = method.objective or find(method.algorithm).objective
        raise RequestError(f"[{where}] {method.algorithm} cannot minimise {name}: {reason}.")
    return found


def configure(method: MethodSpec, client_loss: ClientLoss, clients: int, where: str) -> Assembled:
    """The same, with all checked that does not depend on the model: names, types and ranges of settings."""
    entry = find(method.algorithm)
    name = method.objective or entry.objective
    if name is None:
        raise RequestError(f"[{where}] needs an objective; one of {', '.join(sorted(OBJECTIVES))}.")
    given = {**entry.preset, **(entry.objective_preset if name == entry.objective else {}), **method.settings}
    of_objective = {key: given.pop(key) for key in own_settings(_find_objective(name)) if key in given}
    values, wanted = _without_theory(entry.algorithm, given)
    objective = build_objective(name, client_loss, of_objective, clients, where)
    algorithm = entry.algorithm(objective, **_typed(entry.algorithm, values, clients, where))
    algorithm = know_population(algorithm, clients)
    check_settings(algorithm, where)  # here and nowhere else: what theory adds is checked when it is added
    return Assembled(algorithm, wanted, [key for key in own_settings(entry.algorithm) if key not in given])


def _without_theory(cls: type, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings that have a value, and the numbers that are written as "theory"."""
    hints = typing.get_type_hints(cls)
    texts = [key for key, hint in hints.items() if str in (typing.get_args(hint) or (hint,))]
    wanted = [key for key, value in given.items() if value == "theory" and key not in texts]
    return {key: value for key, value in given.items() if key not in wanted}, wanted


def build_method(
    method: MethodSpec,
    client_loss: ClientLoss,
    constants: Constants | None,
    clients: int,
    rows: float,
    resolved: Mapping[str, Number] | None = None,
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
    chosen: dict[str, Number] = {
        name: np.asarray(value.values, float).tolist() if isinstance(value, PerClient) else value
        for name, value in advice.chosen.items()
    }
    chosen |= dict(resolved) if resolved else {}  # a repeat runs on the very same numbers
    found: dict[str, Any] = {name: addressed(value) for name, value in chosen.items()}
    algorithm = dataclasses.replace(algorithm, **found)
    check_settings(algorithm, where, only=chosen)
    notes = [f"{method.label}: {text}" for text in (*told, *advice.sentences)]
    sent = getattr(collaboration, "exchange", None) if told else None
    spent = Ledger(upload_bytes=sent.upload_bytes, download_bytes=sent.download_bytes) if sent else Ledger()
    warnings = [f"{method.label}: {text}" for text in advice.warnings]
    return Built(method, algorithm, notes, warnings, chosen, spent, theory=frozenset(notes[len(told) :]))


def addressed(value: Setting) -> Setting | PerClient:
    """A list has one entry per client."""
    return PerClient(np.asarray(value, float)) if isinstance(value, list) else value


def _typed(cls: type, settings: Mapping[str, Setting], clients: int, where: str) -> dict[str, Any]:
    """Settings in the types that the class declares; a list has one entry per client."""
    hints = typing.get_type_hints(cls)
    values = {key: coerce(_plain_type(hints[key]), value, f"{where}.{key}") for key, value in settings.items()}
    for key, value in values.items():
        if isinstance(value, list) and len(value) != clients:
            raise RequestError(
                f"{where}.{key} must be one number or have an entry for each of the {clients} clients, "
                f"got {len(value)}; give one number for all."
            )
    return {key: addressed(value) for key, value in values.items()}


def _plain_type(hint: Any) -> Any:
    """The part of a setting's type that a TOML file can hold; one value per client is a list."""
    if typing.get_origin(hint) is tuple:
        return hint
    every = typing.get_args(hint) or (hint,)
    kinds = [kind for kind in every if kind in (float, int, bool, str, type(None))]
    kinds += [list[float]] if PerClient in every else []
    return functools.reduce(operator.or_, kinds) if kinds else Any


def problem_constants(client_loss: ClientLoss, federation: Federation) -> Constants | None:
    """Smoothness and strong convexity of each client's loss, where known."""
    with jax.enable_x64(True):
        return client_constants(client_loss, federation.train, over_hosts)


LANGUAGE_MODELS = ("character_lstm", "word_lstm")
BESIDE_NAME = {"linear": "bias", "mlp": "hidden"}  # settings that stand in [model] itself
NETWORKS = tuple(name for name in MODEL_NAMES if name not in BESIDE_NAME)
SMALLEST_IMAGE = 6  # pixels: two 3 x 3 convolutions leave two, which are pooled


def network(name: str, chosen: Mapping[str, Any], input_shape: tuple[int, ...], outputs: int, tokens: bool) -> Model:
    """The named network for inputs of this shape; `outputs` is the number of classes, or of tokens to guess from."""
    cls: Any = MODELS[name]
    if name in LANGUAGE_MODELS:
        if not tokens or len(input_shape) != 1:
            raise RequestError(
                f"{name} needs sequences of tokens, got inputs of shape {input_shape}"
                f"{'' if tokens else ' that were not read as tokens'}; use cnn, mlp or linear, or for an npz file of "
                "tokens set data.settings.vocabulary."
            )
        return cls(outputs, outputs, **chosen)
    if tokens or len(input_shape) not in (2, 3) or min(input_shape[:2]) < SMALLEST_IMAGE:
        given, other = ("tokens", LANGUAGE_MODELS[0]) if tokens else ("inputs", "mlp")
        raise RequestError(
            f"{name} needs images of at least {SMALLEST_IMAGE} x {SMALLEST_IMAGE} pixels (height, width, channels), "
            f"got {given} of shape {input_shape}; use {other}."
        )
    if name == "resnet18":
        _check_groups(chosen.get("filters", 64), chosen.get("groups", 2))
    height, width, channels = (*input_shape, 1)[:3]
    return cls(height, width, channels, outputs, **chosen)


def _check_groups(filters: int, groups: int) -> None:
    if filters % groups:
        raise RequestError(
            f"[model.settings] resnet18 needs groups that divide filters, got {groups} and {filters}; set groups = 1."
        )


def network_settings(name: str) -> dict[str, dataclasses.Field[Any]]:
    """What can be set on a network; the rest follows the data."""
    fields = dataclasses.fields(MODELS[name])  # type: ignore[arg-type]
    return {field.name: field for field in fields if "range" in field.metadata}


def own_model(
    path: str, settings: Mapping[str, Any], input_shape: tuple[int, ...], outputs: int, tokens: bool = False
) -> Model:
    """A model of your own: what the function at "package.module:function" makes for these inputs and outputs."""
    make = imported(path, "A model's path must be 'package.module:function'")
    try:
        model = make(input_shape, outputs, **settings)
    except RequestError:
        raise
    except TypeError as error:
        raise RequestError(
            f"{path!r} must take an input shape, a number of outputs and [model.settings] by name ({error})."
        ) from error
    except (Exception, SystemExit) as error:  # a function of others may raise anything
        raise RequestError(f"{path!r} made no model ({type(error).__name__}: {error}); fix that function.") from error
    if not isinstance(model, Model):
        raise RequestError(
            f"{path!r} must give an idiolect.models.Model, got {type(model).__name__}; "
            "wrap a module with idiolect.models.from_flax or from_equinox."
        )
    _check_answer(path, model, input_shape, outputs, tokens)
    return model


def _check_answer(path: str, model: Model, input_shape: tuple[int, ...], outputs: int, tokens: bool) -> None:
    """RequestError where it answers with more or fewer numbers than asked for; what it cannot take is said later."""
    kind = jnp.int32 if tokens else jnp.result_type(float)
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
        answer = jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((1, *input_shape), kind)).shape
    except Exception:
        return
    if answer[-1:] != (outputs,) if outputs else answer != (1,):
        wanted = f"{outputs} outputs for each" if outputs else "one plain number for each row"
        raise RequestError(f"{path!r} must give {wanted}, got an answer of shape {answer} to one row.")


def chosen_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings of a model in their types and ranges, or RequestError; of others' it says whose they are."""
    known, hints = network_settings(name), typing.get_type_hints(MODELS[name])
    for key in settings:
        if BESIDE_NAME.get(name) == key:
            raise RequestError(f"[model.settings] {name} has no setting {key!r}; write model.{key}, beside model.name.")
        owners = [other for other in ("mlp", *NETWORKS) if key in network_settings(other)]
        if key not in known and owners:
            raise RequestError(
                f"[model.settings] {name} has no setting {key!r}, which is one of {', '.join(owners)}; leave it out, "
                "in the spec file if it stands there: --set adds to the file's tables and takes nothing out of them."
            )
    refuse_unknown(settings, known, f"[model.settings] {name}")
    chosen = {}
    for key, value in settings.items():
        chosen[key] = coerce(hints[key], value, f"model.settings.{key}")
        several = typing.get_args(hints[key])
        if several and len(chosen[key]) != len(several):
            raise RequestError(f"model.settings.{key} must be {len(several)} numbers, got {value!r}.")
        check("model.settings", key, chosen[key], known[key].metadata["range"])
    return chosen


def check_vocabulary(federation: Federation) -> None:
    """RequestError where a token of the inputs is none of those that are to be guessed."""
    vocabulary = federation.task.outputs
    for part in (federation, *([federation.held_out] if federation.held_out else ())):
        for rows in (part.train, part.validation, part.test):
            lowest, highest = rows.extent or (0, 0)
            if lowest < 0 or highest >= vocabulary:
                place = tuple(np.argwhere((rows.inputs < 0) | (rows.inputs >= vocabulary))[0])
                owner = part.names[int(np.searchsorted(rows.offsets, place[0], side="right")) - 1]
                raise RequestError(
                    f"The inputs of client {owner!r} hold the token {int(rows.inputs[place])}, and the vocabulary is 0 "
                    f"to {vocabulary - 1}: inputs and targets must number the same tokens; give Federation.from_arrays "
                    "`classes` with a name for every token."
                )
