# SPDX-License-Identifier: Apache-2.0
"""What is chosen on validation rows, method by method: the step size, how personal it is, and when to stop.

Every method is treated alike: candidates train as lanes of one program until they have converged, the grid widens while
the best stands at its edge, and the candidate and the round with the best proper score count.
"""

from __future__ import annotations

import dataclasses
import math
import time
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from idiolect.algorithms import find
from idiolect.core.addressing import PerClient
from idiolect.core.checks import RequestError
from idiolect.core.objective import Prepares
from idiolect.experiments.candidates import LOCAL
from idiolect.experiments.diverging import blame
from idiolect.experiments.folds import fold_count
from idiolect.experiments.lanes import Lane, Report, Request, cross_fit, train_lanes, validation_of
from idiolect.experiments.own_rounds import FACTORS, ROUNDS, OwnTraining, choose_own_training, own_steps
from idiolect.experiments.own_strength import choose_own
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.search import Axis, Point, best_of, search
from idiolect.experiments.spec import MethodSpec, Spec, setting_names
from idiolect.metrics.scores import SCORES
from idiolect.objectives import OBJECTIVES
from idiolect.record.divergence import Divergence
from idiolect.theory.step_sizes import advise

STEPS = (0.5, 2.0, 8.0, 32.0)  # of the step that theory recommends, which the worst client decides
AROUND = (0.25, 0.5, 1.0, 2.0)  # of the step that wins the race, where nothing else is tuned
OWN_STEPS = (0.1, 0.4, 1.6, 6.4)  # of fine-tuning
RACE = 25  # rounds in which step sizes race: the largest that is stable goes farthest, and where it leads is the same
PLAIN_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)  # where no constant is known

NOTHING_TO_CHOOSE_ON = (
    "No client has a validation row to choose a step size on. Bring at least 3 rows per client, or give "
    "data.validation (in a spec, or by --set) a larger fraction; a spec with one step_size and no tuning needs none."
)
MOST_SOLVES = 500  # steps of a client's own solve, which every candidate repeats


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What was chosen for one method, and the evidence; plain values, as a run folder keeps them."""

    settings: dict[str, Any]  # of the method, chosen here: numbers, one per client, or names
    in_rows: list[str]  # of these, numbers to be divided by a client's rows
    rounds: int
    converged: bool
    trained: int  # rounds that the chosen candidate was trained for in all
    trials: list[dict[str, Any]]  # every candidate with its validation mean, None where it diverged
    validation: dict[str, dict[str, list[float]]]  # model -> score -> one number per client, at the chosen round
    folds: list[list[float]]  # fold by fold and client by client, the score to choose by, chosen on other folds
    history: list[dict[str, Any]]  # the chosen candidate's records, up to the chosen round
    sentence: str  # for the user
    diverged: Divergence | None = None  # why no candidate can be used
    spent: int = 0  # rounds of all candidates on all folds, to find this out
    # step size and rounds that serve clients best alike, where each has its own
    common: dict[str, Any] = dataclasses.field(default_factory=dict)


def from_json(kept: Mapping[str, Any]) -> Tuned:
    """What a run folder kept, where not-a-number is null."""
    numbers = {name: _with_nan(kept[name]) for name in ("validation", "history", "folds")}
    lost = None if kept["diverged"] is None else Divergence(**kept["diverged"])
    return Tuned(**{**kept, **numbers, "diverged": lost})


def _with_nan(kept: object) -> object:
    if isinstance(kept, Mapping):
        return {key: _with_nan(value) for key, value in kept.items()}
    if isinstance(kept, list):
        return [_with_nan(value) for value in kept]
    return math.nan if kept is None else kept


def is_searched(prepared: Prepared, method: MethodSpec) -> bool:
    """Whether anything of the method is chosen by training candidates first."""
    tuning = prepared.spec.tuning
    return tuning.refit or tuning.until == "converged" or bool(axes_of(prepared, method))


def axes_of(prepared: Prepared, method: MethodSpec) -> list[Axis]:
    """The settings to choose: those that the spec asks for and the method was not given."""
    tuning = prepared.spec.tuning
    strength = _strength_axis(prepared, method) if tuning.auto else None
    return [axis for axis in (_step_axis(prepared, method), strength) if axis is not None]


def is_tuned(spec: Spec, method: MethodSpec) -> bool:
    """Whether the step is chosen on validation rows: not where it is stated, absent, or left to theory."""
    fields = _fields(find(method.algorithm).algorithm)
    free = "step_size" in fields and not fields["step_size"].metadata.get("theory")
    return free and "step_size" not in method.settings and bool(spec.tuning.step_size or spec.tuning.auto)


def _step_axis(prepared: Prepared, method: MethodSpec) -> Axis | None:
    tuning = prepared.spec.tuning
    if not is_tuned(prepared.spec, method):
        return None
    limits = _fields(find(method.algorithm).algorithm)["step_size"].metadata["range"]
    if tuning.step_size:
        return Axis("step_size", tuple(sorted(tuning.step_size)), limits, widens=False)
    return Axis("step_size", _times(_known_step(prepared, method), STEPS) or PLAIN_STEPS, limits)


def _known_step(prepared: Prepared, method: MethodSpec) -> float | None:
    """The step that the constants of the problem recommend to this method; None where they are not known."""
    advice = advise(find(method.algorithm).theory, prepared.build(method).algorithm, prepared.constants)
    if advice is not None:
        return advice.recommended
    if prepared.constants is None or prepared.constants.smoothness == 0:
        return None
    return 1 / (2 * prepared.constants.batch_smoothness(int(method.settings.get("batch_size", 0))))


def _times(base: float | None, factors: tuple[float, ...]) -> tuple[float, ...]:
    return () if base is None else tuple(float(f"{base * factor:.3g}") for factor in factors)


def _strength_axis(prepared: Prepared, method: MethodSpec) -> Axis | None:
    """The setting that says how personal the method is, where it has one that was not given."""
    entry = find(method.algorithm)
    given = {*method.settings, *entry.preset, *entry.objective_preset}
    for name, about in _strength_fields(method).items():
        if name not in given and _applies(method, name):
            values, limits = about["strengths"], about["range"]
            if name == "fine_tuning_step_size":
                values = _times(_known_step(prepared, method), OWN_STEPS) or values
            # a setting with an upper end, such as a weight, is not widened: its values span the range already
            return Axis(name, values, limits, limits.at_most is None, about["in_rows"], refines=True)
    return None


def _strength_fields(method: MethodSpec) -> dict[str, Mapping[str, Any]]:
    """The settings that say how personal the method is, with their metadata: the algorithm's, then the objective's."""
    entry = find(method.algorithm)
    objective = OBJECTIVES.get(method.objective or entry.objective or "")
    own = _fields(entry.algorithm)
    # own first, for the order, and own last, so that its meaning of a name wins
    fields = own | (_fields(objective) if objective is not None else {}) | own
    known = setting_names(method.algorithm, method.objective)
    return {name: one.metadata for name, one in fields.items() if name in known and one.metadata.get("strengths")}


def _applies(method: MethodSpec, name: str) -> bool:
    """A step of fine-tuning is a strength only where there is fine-tuning; a learnt weight is not chosen."""
    given = {**find(method.algorithm).preset, **method.settings}
    if name == "fine_tuning_step_size":
        return bool(given.get("fine_tuning_steps") or given.get("fine_tuning_epochs"))
    return not (name == "own_share" and given.get("learn_share"))


def _fields(cls: type) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def tune(
    prepared: Prepared,
    method: MethodSpec,
    report: Report,
    seconds: float | None = None,
    alone: Tuned | None = None,
) -> Tuned:
    """Choose the method's settings and rounds; `seconds` bounds the time that training may take.

    `alone` is what was chosen for training alone: a method whose clients prepare a model of their own does it so.
    """
    prepares = _prepare_as(prepared, method, alone)
    method = dataclasses.replace(method, settings=method.settings | prepares)
    axes = axes_of(prepared, method)
    in_rows = [axis.name for axis in axes if axis.in_rows]
    deadline = time.monotonic() + (math.inf if seconds is None else seconds)
    request = Request(prepared, method, in_rows, fold_count(prepared.federation), report, deadline)
    if _chooses_alone(prepared, method):
        return _tune_alone(request)
    raced: list[Lane] = []
    axes = _raced(axes, request._replace(most=RACE), raced)
    lanes: list[Lane] = []

    def attempt(points: Sequence[Point]) -> list[tuple[float, float]]:
        lanes.extend(train_lanes(request, points))
        return [lane.best for lane in lanes[-len(points) :]]

    trials = search(axes, attempt)
    # trials and lanes were appended side by side: one place is one candidate
    chosen = lanes[trials.index(best_of(trials))]
    if not np.isfinite(chosen.best[0]):
        return _nothing_found(prepared, method, lanes)
    found = _tuned(request, lanes, chosen, _own_strengths(request, axes, lanes, chosen))
    if method.algorithm == LOCAL and prepared.federation.held_out is None:  # new clients could not be given a step
        common = {"step_size": found.settings.get("step_size"), "rounds": found.rounds}
        found = _alone(found, choose_own_training(lanes, chosen), request, common)
    found = _closed(request, found, [*raced, *lanes])
    return dataclasses.replace(found, settings=prepares | found.settings, in_rows=in_rows)


def _closed(request: Request, found: Tuned, lanes: Sequence[Lane]) -> Tuned:
    """With all rounds that were spent on the choice, and what time did not allow."""
    spent = sum(recorder.ledger.rounds for lane in lanes for recorder in lane.recorders)
    return dataclasses.replace(found, spent=spent, sentence=found.sentence + _unfinished(request, found))


def _chooses_alone(prepared: Prepared, method: MethodSpec) -> bool:
    """Whether every client can train alone by steps of its own: known curvature, and no new client to give one to."""
    known, new = prepared.constants is not None, prepared.federation.held_out is not None
    return method.algorithm == LOCAL and known and not new and is_tuned(prepared.spec, method)


def _tune_alone(request: Request) -> Tuned:
    """Training alone: the same multiples of each client's own step, the same rounds, and each client's own choice.

    Nothing here depends on another client's rows but what clients without a validation score are given.
    """
    prepared, method = request.prepared, request.method
    tuning, batch_size = prepared.spec.tuning, int(method.settings.get("batch_size", 0))

    def units(prepared: Prepared) -> np.ndarray:
        if tuning.step_size or prepared.constants is None:  # given for all: what is chosen is still each client's own
            return np.ones(prepared.federation.clients)
        return own_steps(prepared.constants, batch_size)

    bases = units(prepared)
    request = request._replace(own_units=units, most=ROUNDS if tuning.until == "converged" else None)
    lanes = train_lanes(request, [{"step_size": value} for value in tuning.step_size or FACTORS])
    chosen = max(lanes, key=lambda lane: lane.best[0])
    if not np.isfinite(chosen.best[0]):
        return _nothing_found(prepared, method, lanes)
    found = _tuned(request, lanes, chosen, None)
    # One step that serves clients alike, for methods that prepare as these train. Half of what is stable on these rows:
    # other folds have other rows, and one that stands out may double a client's curvature.
    alike = float(min(np.median(found.settings["step_size"]), bases.min()))
    common = {"step_size": alike, "rounds": found.rounds}
    own = choose_own_training(lanes, chosen, bases)
    return _closed(request, _alone(found, own, request, common), lanes)


def _alone(found: Tuned, own: OwnTraining | None, request: Request, common: dict[str, Any]) -> Tuned:
    """Training alone with each client's own step and rounds."""
    if own is None:
        return found
    choose_by = request.prepared.choose_by
    validation = {**found.validation, "personal": dict(found.validation["personal"])}
    validation["personal"][choose_by] = own.losses.mean(axis=0).tolist()
    words = (
        f"each client with the step size and rounds that its own validation rows choose (for all alike: "
        f"{found.sentence})"
    )
    return dataclasses.replace(
        found,
        settings=found.settings | {"step_size": own.step_sizes},
        rounds=own.rounds,
        converged=own.converged,
        folds=own.losses.tolist(),
        validation=validation,
        sentence=words,
        common=common,
    )


def _raced(axes: list[Axis], request: Request, raced: list[Lane]) -> list[Axis]:
    """The axes with the step sizes that are left after a short race, all else at its middle value; fills `raced`.

    The full grid of step sizes and strengths is a product: the race settles the step first, and the product loses a
    factor. Steps that the user gave, which do not widen, need none.
    """
    if not axes or axes[0].name != "step_size" or not axes[0].widens:
        return axes
    step, others = axes[0], axes[1:]
    middle = {axis.name: axis.values[len(axis.values) // 2] for axis in others}

    def race(points: Sequence[Point]) -> list[tuple[float, float]]:
        raced.extend(train_lanes(request, [{**point, **middle} for point in points]))
        return [(lane.best[0] if lane.stable else -math.inf, 0.0) for lane in raced[-len(points) :]]

    best = best_of(search([step], race)).point["step_size"]
    # with a strength to choose, one step; without one, the long runs can afford its neighbours
    return [step._replace(values=(best,) if others else _times(best, AROUND)), *others]


def _prepare_as(prepared: Prepared, method: MethodSpec, alone: Tuned | None) -> dict[str, Any]:
    """Settings of FLIX's own solves, where none were given: the steps that serve a client best alone.

    An exact optimum of few rows would be overfitted, or would not exist.
    """
    objective = OBJECTIVES.get(method.objective or find(method.algorithm).objective or "")
    if (
        objective is None
        or not issubclass(objective, Prepares)
        or "solver_epochs" in method.settings
        or not prepared.spec.tuning.auto
    ):
        return {}
    if alone is None or alone.diverged is not None:
        return {"solver": "early_stopping", "solver_epochs": 200, "solver_batch_size": 0}
    # at least one step, where training alone does best with none or time ran out before the first
    common = {"step_size": alone.settings.get("step_size", 0.1), "rounds": alone.rounds} | alone.common
    steps = max(1, common["rounds"] * int(method.settings.get("epochs") or method.settings.get("local_steps", 1)))
    solves = min(steps, MOST_SOLVES)
    return {
        "solver": "epochs",
        "solver_epochs": solves,
        "solver_batch_size": method.settings.get("batch_size", 0),
        "solver_step_size": common["step_size"] * steps / solves,  # as far in fewer steps
    }


def _nothing_found(prepared: Prepared, method: MethodSpec, lanes: list[Lane]) -> Tuned:
    """Every candidate diverged, or none can be scored; the latter ends the run, the former is an answer."""
    if prepared.federation.validation.counts.sum() == 0:
        raise RequestError(NOTHING_TO_CHOOSE_ON)
    lost = [lane.diverged for lane in lanes if lane.diverged is not None]
    # some candidate was trained to the end and has no score: the rows or the score are at fault, not the steps
    if len(lost) < len(lanes):
        raise RequestError(
            f"{method.label}: nothing can be chosen, because {prepared.choose_by} is undefined or infinite on every "
            "client's validation rows; choose another in [evaluation] choose_by, or give one step_size and no tuning."
        )
    tried = sorted({lane.point["step_size"] for lane in lanes if "step_size" in lane.point})
    steps = f" with every step size from {tried[0]:g} to {tried[-1]:g}" if len(tried) > 1 else ""
    last = lost[-1]
    assert last.diverged is not None
    reason = dataclasses.replace(last.diverged, reason=f"{steps}{blame(prepared.federation, last.diverged_client)}")
    trials: list[dict[str, Any]] = [{**lane.point, "validation": None} for lane in lanes]
    return Tuned({}, [], 0, False, 0, trials, {}, [], [], f"diverged: {reason}", reason)


def _own_axis(request: Request, axes: Sequence[Axis]) -> Axis | None:
    """The axis along which each client may choose for itself."""
    # new clients could not be given a value, and one fold cannot judge what it chose
    if request.prepared.federation.held_out is not None or request.folds < 2:
        return None
    if SCORES[request.prepared.choose_by].higher_is_better:
        return None
    return next((axis for axis in axes if not axis.in_rows and _takes_one_each(request.method, axis.name)), None)


def _own_strengths(
    request: Request, axes: Sequence[Axis], lanes: list[Lane], chosen: Lane
) -> tuple[str, list[float], np.ndarray] | None:
    """(setting, one value per client, losses) where the setting takes one per client and that pays."""
    federation, axis = request.prepared.federation, _own_axis(request, axes)
    if axis is None:
        return None
    others = {name: value for name, value in chosen.point.items() if name != axis.name}
    beside = [lane for lane in lanes if others.items() <= lane.point.items() and np.isfinite(lane.best[0])]

    def scores(rounds: list[int]) -> np.ndarray:
        return np.stack([lane.clients(number, lane.choose_by) for lane, number in zip(beside, rounds)])

    without = [scores([lane.best_without(fold) for lane in beside]) for fold in range(request.folds)]
    best = scores([lane.best[1] for lane in beside])
    own = choose_own(best, without, federation.validation.counts, cross_fit(lanes))
    return own and (axis.name, [beside[place].point[axis.name] for place in own.places], own.losses)


def _takes_one_each(method: MethodSpec, name: str) -> bool:
    entry = find(method.algorithm)
    objective = OBJECTIVES.get(method.objective or entry.objective or "")
    hints = typing.get_type_hints(entry.algorithm) | (typing.get_type_hints(objective) if objective else {})
    return name != "step_size" and PerClient in typing.get_args(hints.get(name))


def _tuned(request: Request, lanes: list[Lane], chosen: Lane, own: tuple[str, list[float], np.ndarray] | None) -> Tuned:
    rounds, last, choose_by = chosen.best[1], chosen.rounds[-1], chosen.choose_by
    settings: dict[str, Any] = dict(chosen.point)
    if request.own_units is not None:
        settings["step_size"] = (chosen.point["step_size"] * request.own_units(request.prepared)).tolist()
    validation = validation_of(chosen, rounds)
    # what the folds say of the chosen candidate flatters it; methods are compared by what other folds would have chosen
    folds = cross_fit(lanes) if request.folds > 1 else chosen.clients(rounds, choose_by)
    if own is not None:
        settings[own[0]], folds = own[1:]
        validation["personal"][choose_by] = folds.mean(axis=0).tolist()
    trials: list[dict[str, Any]] = [
        {**lane.point, "validation": abs(lane.best[0]) if np.isfinite(lane.best[0]) else None} for lane in lanes
    ]
    sentence = _sentence(request, settings, rounds, len(lanes))
    history, cells = [row for row in chosen.history if row["round"] <= rounds], folds.tolist()
    return Tuned(settings, [], rounds, chosen.converged, last, trials, validation, cells, history, sentence)


def _sentence(request: Request, settings: Mapping[str, Any], rounds: int, candidates: int) -> str:
    """What was chosen, by what, among how many."""
    words = [_value_words(name, value) for name, value in settings.items()]
    parted = f" of {request.folds} folds" if request.folds > 1 else ""
    return (
        f"{', '.join([*words, _rounds(rounds)])}, by {request.prepared.choose_by.replace('_', ' ')} on validation "
        f"rows{parted} among {candidates} candidate{'' if candidates == 1 else 's'}"
    )


def _unfinished(request: Request, found: Tuned) -> str:
    """Why the method had not converged, for the end of the sentence; nothing where it had."""
    if found.converged:
        return ""
    last = _rounds(found.trained)
    enough = f"after {last} it was still improving" if found.rounds == found.trained else f"{last} are too few to tell"
    return f"; not converged: {'the time was up' if request.late else enough}"


def _rounds(number: int) -> str:
    return f"{number} round{'' if number == 1 else 's'}"


def _value_words(name: str, value: float | list[float]) -> str:
    plain = name.replace("_", " ")
    if isinstance(value, list):
        low, high = min(value), max(value)
        return f"{plain} {low:g}" if low == high else f"{plain} per client from {low:.3g} to {high:.3g}"
    return f"{plain} {value:g}"
