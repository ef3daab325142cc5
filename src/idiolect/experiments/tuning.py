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
from pathlib import Path
from typing import Any

import numpy as np

from idiolect.algorithms import find
from idiolect.core import PerClient, Prepares, RequestError
from idiolect.data.federation import Federation
from idiolect.engines.recording import Recorder, to_lists
from idiolect.engines.stopping import needs_no_more
from idiolect.experiments.folds import fold_count
from idiolect.experiments.lanes import Lane, Report, Request, cross_fit, train_lanes
from idiolect.experiments.own_choice import FACTORS, ROUNDS, choose_own, choose_own_training, own_steps
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.search import Axis, Point, best_of, search
from idiolect.experiments.spec import MethodSpec, Spec, setting_names
from idiolect.metrics.scores import SCORES
from idiolect.record.divergence import Divergence
from idiolect.record.words import counted
from idiolect.theory.step_sizes import advise

STEPS = (0.5, 2.0, 8.0, 32.0)  # of the step that theory recommends, which the worst client decides
AROUND = (0.25, 0.5, 1.0, 2.0)  # of the step that wins the race, where nothing else is tuned
OWN_STEPS = (0.1, 0.4, 1.6, 6.4)  # of fine-tuning
RACE = 25  # rounds in which step sizes race: the largest that is stable goes farthest, and where it leads is the same
PLAIN_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)  # where no constant is known

FAR = 8.0  # in scaled units; a number of a column within is no reason to diverge by itself
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

    @classmethod
    def read(cls, folder: RunFolder, label: str) -> Tuned | None:
        """What was chosen for a method before, in this run or in the one that it repeats."""
        kept = folder.read_sealed(tuning_file(label))
        return None if kept is None else from_json(kept)

    def write(self, folder: RunFolder, label: str) -> None:
        """Keep it for `read`."""
        folder.write_sealed(tuning_file(label), dataclasses.asdict(self))


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


def tuning_file(label: str) -> str:
    """Where a run folder keeps how a method's settings were chosen."""
    return f"tuning/{safe_name(label)}.json"


def take_over(spec: Spec, source: Path, folder: RunFolder) -> int:
    """Copy what was found out when the settings in the spec's [resolved] were chosen, from the run that it records.

    A repeat then chooses nothing anew. Returns for how many methods there was something to copy.
    """
    taken = 0
    for name in map(tuning_file, spec.resolved):
        known = RunFolder(source).read_sealed(name)
        if known is not None and folder.read_sealed(name) is None:
            folder.write_sealed(name, known)
            taken += 1
    return taken


def take_evidence(recorder: Recorder, choice: Tuned, refitted: bool) -> None:
    """Put the validation scores of the choice into the record of the final fit.

    A model that is fitted on validation rows too has no score of its own on them: the history and the validation
    columns tell of the fit on training rows by which everything was chosen. The ledger is the final fit's.
    """
    if choice.diverged is not None:
        recorder.diverged = choice.diverged
        return
    if not refitted:
        return
    last = recorder.history[-1]
    earlier = [row for row in choice.history if row["round"] < last["round"]]
    same = next((row for row in choice.history if row["round"] == last["round"]), {})
    scored = {key: value for key, value in same.items() if key.startswith("validation_")}
    recorder.history = [*earlier, last | scored]
    recorder.last = recorder.last | {"validation": choice.validation}
    recorder.selected = recorder.selected | {"validation": choice.validation}


def is_searched(prepared: Prepared, method: MethodSpec) -> bool:
    """Whether anything of the method is chosen by training candidates first."""
    tuning = prepared.spec.tuning
    return tuning.refit or tuning.until == "converged" or bool(axes_of(prepared, method))


def axes_of(prepared: Prepared, method: MethodSpec) -> list[Axis]:
    """The settings to choose: those that the spec asks for and the method was not given."""
    tuning, axes = prepared.spec.tuning, list[Axis]()
    if is_tuned(prepared.spec, method):
        limits = _fields(find(method.algorithm).algorithm)["step_size"].metadata["range"]
        asked = tuple(sorted(tuning.step_size))
        steps = asked or _times(_known_step(prepared, method), STEPS) or PLAIN_STEPS
        axes.append(Axis("step_size", steps, limits, widens=not asked))
    strength = _strength_axis(prepared, method) if tuning.auto else None
    return axes if strength is None else [*axes, strength]


def is_tuned(spec: Spec, method: MethodSpec) -> bool:
    """Whether the step is chosen on validation rows: not where it is stated, absent, or left to theory."""
    fields = _fields(find(method.algorithm).algorithm)
    free = "step_size" in fields and not fields["step_size"].metadata.get("theory")
    return free and "step_size" not in method.settings and bool(spec.tuning.step_size or spec.tuning.auto)


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
    entry, minimised = find(method.algorithm), method.minimised
    fields = ({} if minimised is None else _fields(minimised)) | _fields(entry.algorithm)
    given = {**entry.objective_preset, **entry.preset, **method.settings}
    idle = {  # a step of fine-tuning says something only where there is fine-tuning; a learnt weight is not chosen
        "fine_tuning_step_size": not (given.get("fine_tuning_steps") or given.get("fine_tuning_epochs")),
        "own_share": bool(given.get("learn_share")),
    }
    for name in setting_names(method.algorithm, method.objective):
        about = fields[name].metadata
        if about.get("strengths") and name not in given and not idle.get(name):
            values, limits = about["strengths"], about["range"]
            if name == "fine_tuning_step_size":
                values = _times(_known_step(prepared, method), OWN_STEPS) or values
            # a setting with an upper end, such as a weight, is not widened: its values span the range already
            return Axis(name, values, limits, limits.at_most is None, about["in_rows"], refines=True)
    return None


def _fields(cls: type) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def tune(prepared: Prepared, method: MethodSpec, report: Report, seconds: float, alone: Tuned | None) -> Tuned:
    """Choose the method's settings and rounds; `seconds` bounds the time that training may take.

    `alone` is what was chosen for training alone: a method whose clients prepare a model of their own does it so.
    """
    prepares = _prepare_as(prepared, method, alone)
    method = dataclasses.replace(method, settings=method.settings | prepares)
    raced, lanes, folds = list[Lane](), list[Lane](), fold_count(prepared.federation)
    request = Request(prepared, method, axes_of(prepared, method), folds, report, time.monotonic() + seconds)
    if _chooses_alone(prepared, method):
        # by the same multiples of each client's own step, for the same rounds: nothing here depends on another
        # client's rows but what clients without a validation score are given
        tuning = prepared.spec.tuning
        request = request._replace(own_units=_own_units, most=ROUNDS if tuning.until == "converged" else None)
        lanes = train_lanes(request, [{"step_size": value} for value in tuning.step_size or FACTORS])
        chosen = max(lanes, key=lambda lane: lane.best[0])
    else:
        axes = _raced(request._replace(most=RACE), raced)

        def attempt(points: Sequence[Point]) -> list[tuple[float, float]]:
            lanes.extend(train_lanes(request, points))
            return [lane.best for lane in lanes[-len(points) :]]

        trials = search(axes, attempt)
        # trials and lanes were appended side by side: one place is one candidate
        chosen = lanes[trials.index(best_of(trials))]
    if not np.isfinite(chosen.best[0]):
        return _nothing_found(request, lanes)
    found = _tuned(request, lanes, chosen)
    if method.alone and prepared.federation.held_out is None:  # new clients could not be given a step
        found = _choose_by_client(request, lanes, chosen, found)
    spent = sum(recorder.ledger.rounds for lane in (*raced, *lanes) for recorder in lane.recorders)
    sentence = found.sentence + _unfinished(request, found)
    return dataclasses.replace(found, settings=prepares | found.settings, spent=spent, sentence=sentence)


def _chooses_alone(prepared: Prepared, method: MethodSpec) -> bool:
    """Whether every client can train alone by steps of its own: known curvature, and no new client to give one to."""
    known, new = prepared.constants is not None, prepared.federation.held_out is not None
    return method.alone and known and not new and is_tuned(prepared.spec, method)


def _own_units(prepared: Prepared, method: MethodSpec) -> np.ndarray:
    """(clients,) what a client's step is a multiple of: its own, or 1 where steps are given for all clients alike."""
    if prepared.spec.tuning.step_size or prepared.constants is None:
        return np.ones(prepared.federation.clients)
    return own_steps(prepared.constants, int(method.settings.get("batch_size", 0)))


def _choose_by_client(request: Request, lanes: list[Lane], chosen: Lane, found: Tuned) -> Tuned:
    """Training alone with each client's own step and rounds, where these can be chosen."""
    bases = None if request.own_units is None else request.own_units(request.prepared, request.method)
    own = choose_own_training(lanes, chosen, bases)
    if own is None:
        return found
    alike = found.settings.get("step_size")
    if bases is not None:
        # One step that serves clients alike, for methods that prepare as these train. Half of what is stable on these
        # rows: other folds have other rows, and one that stands out may double a client's curvature.
        alike = float(min(np.median(found.settings["step_size"]), bases.min()))
    losses = {request.prepared.choose_by: own.losses.mean(axis=0).tolist()}
    settings = found.settings | {"step_size": own.step_sizes}
    still = f", {counted(own.untrained, 'client')} as they began" if own.untrained else ""
    return dataclasses.replace(
        found,
        settings=settings,
        rounds=own.rounds,
        trained=own.trained,
        converged=own.converged,
        folds=own.losses.tolist(),
        validation=found.validation | {"personal": found.validation["personal"] | losses},
        sentence=f"each client as far as its own validation rows choose: "
        f"{_sentence(request, settings, own.rounds, len(lanes))}{still}",
        common={"step_size": alike, "rounds": found.rounds},
    )


def _raced(request: Request, raced: list[Lane]) -> Sequence[Axis]:
    """The axes with the step sizes that are left after a short race, all else at its middle value; fills `raced`.

    The full grid of step sizes and strengths is a product: the race settles the step first, and the product loses a
    factor. Steps that the user gave, which do not widen, need none.
    """
    axes = request.axes
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
    minimised, asked = method.minimised, prepared.spec.tuning.auto and "solver_epochs" not in method.settings
    if not asked or minimised is None or not issubclass(minimised, Prepares):
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


def _nothing_found(request: Request, lanes: list[Lane]) -> Tuned:
    """Every candidate diverged, or none can be scored; the latter ends the run, the former is an answer."""
    prepared = request.prepared
    lost = [lane.diverged for lane in lanes if lane.diverged is not None]
    # some candidate was trained to the end and has no score: the rows or the score are at fault, not the steps
    if len(lost) < len(lanes):
        raise RequestError(
            f"{request.method.label}: nothing can be chosen, because {prepared.choose_by} is undefined or infinite on "
            "every client's validation rows; choose another in [evaluation] choose_by, or give one step_size and no "
            "tuning."
        )
    tried = sorted({lane.point["step_size"] for lane in lanes if "step_size" in lane.point})
    steps = f" with every step size from {tried[0]:g} to {tried[-1]:g}" if len(tried) > 1 else ""
    last = lost[-1]
    assert last.diverged is not None
    reason = dataclasses.replace(last.diverged, reason=f"{steps}{blame(prepared.federation, last.diverged_client)}")
    trials: list[dict[str, Any]] = [{**lane.point, "validation": None} for lane in lanes]
    return Tuned({}, [], 0, False, 0, trials, {}, [], [], f"diverged: {reason}", reason)


def blame(federation: Federation, client: int) -> str:
    """'; its column ... reaches ...' where one column of the client's training rows lies far out; else nothing."""
    recipe = federation.preprocessing
    if client < 0 or recipe is None or federation.train.inputs.ndim != 2:
        return ""
    inputs, _ = federation.train.of(client)
    reach = np.abs(inputs).max(axis=0, initial=0.0)
    column = int(reach.argmax())
    if reach[column] < FAR:
        return ""
    name = recipe.feature_names[column]
    return f"; its column {name!r} lies up to {reach[column]:.0f} spreads from the mean, leave it out or transform it"


def _own_setting(request: Request) -> str | None:
    """The setting of which each client may choose its own value."""
    prepared, method = request.prepared, request.method
    # new clients could not be given a value, and one fold cannot judge what it chose
    able = prepared.federation.held_out is None and request.folds > 1
    if not able or SCORES[prepared.choose_by].higher_is_better:
        return None
    hints: dict[str, Any] = typing.get_type_hints(find(method.algorithm).algorithm)
    hints |= typing.get_type_hints(method.minimised) if method.minimised else {}
    free = (axis.name for axis in request.axes if not axis.in_rows and axis.name != "step_size")
    return next((name for name in free if PerClient in typing.get_args(hints.get(name))), None)


def _own_strengths(request: Request, lanes: list[Lane], chosen: Lane) -> tuple[str, list[float], np.ndarray] | None:
    """(setting, one value per client, losses) where the setting takes one per client and that pays."""
    name = _own_setting(request)
    if name is None:
        return None
    others = {key: value for key, value in chosen.point.items() if key != name}
    beside = [lane for lane in lanes if others.items() <= lane.point.items() and np.isfinite(lane.best[0])]

    def scores(rounds: list[int]) -> np.ndarray:
        return np.stack([lane.clients(number, lane.choose_by) for lane, number in zip(beside, rounds)])

    without = [scores([lane.best_without(fold) for lane in beside]) for fold in range(request.folds)]
    best = scores([lane.best[1] for lane in beside])
    own = choose_own(best, without, request.prepared.federation.validation.counts, cross_fit(lanes))
    return own and (name, [beside[place].point[name] for place in own.places], own.losses)


def _tuned(request: Request, lanes: list[Lane], chosen: Lane) -> Tuned:
    rounds, choose_by = chosen.best[1], chosen.choose_by
    settings: dict[str, Any] = dict(chosen.point)
    if request.own_units is not None:
        units = request.own_units(request.prepared, request.method)
        settings["step_size"] = (chosen.point["step_size"] * units).tolist()
    # the first fold's scores, those of personal models a mean over folds
    validation = to_lists(chosen.scores[rounds])
    for name in validation["personal"]:
        validation["personal"][name] = chosen.clients(rounds, name).mean(axis=0).tolist()
    # what the folds say of the chosen candidate flatters it; methods are compared by what other folds would have chosen
    folds = cross_fit(lanes) if request.folds > 1 else chosen.clients(rounds, choose_by)
    own = _own_strengths(request, lanes, chosen)
    if own is not None:
        settings[own[0]], folds = own[1:]
        validation["personal"][choose_by] = folds.mean(axis=0).tolist()
    reached = [(lane.point, lane.best[0]) for lane in lanes]
    return Tuned(
        settings=settings,
        in_rows=request.in_rows,
        rounds=rounds,
        converged=needs_no_more(chosen.rounds, chosen.course),
        trained=chosen.rounds[-1],
        trials=[{**point, "validation": abs(best) if np.isfinite(best) else None} for point, best in reached],
        validation=validation,
        folds=folds.tolist(),
        history=[row for row in chosen.recorders[0].history if row["round"] <= rounds],
        sentence=_sentence(request, settings, rounds, len(lanes)),
    )


def _sentence(request: Request, settings: Mapping[str, Any], rounds: int, candidates: int) -> str:
    """What was chosen, by what, among how many."""
    words = []
    for name, value in settings.items():
        low, high = np.min(value), np.max(value)
        several = f"per client from {low:.3g} to {high:.3g}"
        words.append(f"{name.replace('_', ' ')} {several if low < high else f'{low:g}'}")
    parted = f" of {request.folds} folds" if request.folds > 1 else ""
    return (
        f"{', '.join([*words, counted(rounds, 'round')])}, by {request.prepared.choose_by.replace('_', ' ')} on "
        f"validation rows{parted} among {counted(candidates, 'candidate')}"
    )


def _unfinished(request: Request, found: Tuned) -> str:
    """Why the method had not converged, for the end of the sentence; nothing where it had."""
    if found.converged:
        return ""
    last = counted(found.trained, "round is", "rounds are")
    reason = f"{last} too few to tell"
    if found.rounds == found.trained:
        reason = f"after {counted(found.trained, 'round')} it was still improving"
    return f"; not converged: {'the time was up' if time.monotonic() > request.deadline else reason}"
