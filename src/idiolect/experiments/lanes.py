# SPDX-License-Identifier: Apache-2.0
"""Candidates of one method, trained side by side on every fold, and what validation rows say of them round by round."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from idiolect.core import Algorithm, DivergedError
from idiolect.data.federation import Federation
from idiolect.engines.recording import Recorder
from idiolect.engines.simulate import Options, Session, open_session
from idiolect.engines.stopping import has_converged
from idiolect.experiments.build import Number
from idiolect.experiments.folds import cross_fitted, fold
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.search import Axis, Point
from idiolect.experiments.spec import MethodSpec
from idiolect.experiments.trained import over_clients
from idiolect.metrics.scores import SCORES
from idiolect.theory.constants import Constants

BLOCK = 10  # rounds of a compiled block
UNSTABLE = 0.1  # of the first score: a lane that ends worse by more grows without bound, or soon will
STABLE = 1.5  # step times curvature, of at most 2, that a strength may lead to
LEAST = 0.1  # of a step: strength that a client is given however much its own rows curve

Report = Callable[[int, int], None]  # rounds done, rounds in all
Units = Callable[[Prepared, MethodSpec], np.ndarray]  # (clients,) by the rows that a fold trains on


class Request(NamedTuple):
    """What is trained, and for how long."""

    prepared: Prepared
    method: MethodSpec
    axes: Sequence[Axis]  # the settings to choose
    folds: int
    report: Report
    deadline: float = math.inf  # of `time.monotonic`
    most: int | None = None  # rounds; None: those of the spec
    own_units: Units | None = None  # what a step size is a multiple of, where each client has its own

    @property
    def in_rows(self) -> list[str]:
        """Settings that are divided by a client's rows."""
        return [axis.name for axis in self.axes if axis.in_rows]


@dataclasses.dataclass
class Lane:
    """One candidate: what its folds recorded, and the mean over folds of what validation rows say."""

    point: Point
    choose_by: str
    recorders: Sequence[Recorder]  # one per fold
    records: list[dict[int, dict[str, np.ndarray]]]  # of personal models, by round and score, one per fold
    scores: dict[int, Any] = dataclasses.field(default_factory=dict)  # all scores of the first fold, by round
    ended: bool = False  # it needs no further round
    means: dict[int, float] = dataclasses.field(default_factory=dict)  # of `course`, by round: each is made once

    @property
    def diverged(self) -> Recorder | None:
        """The record of the first fold that left the finite numbers."""
        return next((recorder for recorder in self.recorders if recorder.diverged is not None), None)

    @property
    def rounds(self) -> list[int]:
        """Recorded in every fold."""
        return [number for number in self.records[0] if all(number in other for other in self.records)]

    @property
    def sign(self) -> int:
        """1 where a larger score is better, else -1."""
        return 1 if SCORES[self.choose_by].higher_is_better else -1

    def clients(self, number: int, score: str) -> np.ndarray:
        """(folds, clients) after a round."""
        return np.stack([records[number][score] for records in self.records])

    def merits(self, number: int) -> np.ndarray:
        """The same of the score to choose by, larger is better."""
        return self.sign * self.clients(number, self.choose_by)

    @property
    def course(self) -> list[float]:
        """The mean over clients and folds of the score to choose by after every round, larger is better."""
        rounds = self.rounds
        self.means |= {n: float(over_clients(self.merits(n)).mean()) for n in rounds if n not in self.means}
        return [self.means[number] for number in rounds]

    @property
    def best(self) -> tuple[float, int]:
        """(the best score, its round); minus infinity where there is none."""
        known = [(score, -number) for score, number in zip(self.course, self.rounds) if not np.isnan(score)]
        score, number = max(known, default=(-np.inf, 0))
        return (score, -number) if self.diverged is None and np.isfinite(score) else (-np.inf, 0)

    @property
    def stable(self) -> bool:
        """Whether it ends about as well as it began or better; a step that is too long may have a good first round."""
        course = self.course
        return self.diverged is None and bool(course) and course[-1] >= course[0] - UNSTABLE * abs(course[0])

    def best_without(self, fold: int) -> int:
        """The best round by the other folds, of which there must be one at least."""
        others = [np.delete(self.merits(number), fold, axis=0) for number in self.rounds]
        scores = [float(over_clients(own).mean()) for own in others]
        return self.rounds[int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))]


def every_round(lanes: Sequence[Lane]) -> list[tuple[Lane, int]]:
    """Every recorded round of the candidates that did not diverge."""
    return [(lane, number) for lane in lanes if lane.diverged is None for number in lane.rounds]


def cross_fit(lanes: Sequence[Lane]) -> np.ndarray:
    """(folds, clients): each fold's scores of the candidate and round that the other folds, at least one, would choose.

    A method with more candidates would be flattered more by those that chose.
    """
    merits = np.stack([lane.merits(number) for lane, number in every_round(lanes)])  # (pairs, folds, clients)

    def choose(others: np.ndarray) -> np.ndarray:
        means = over_clients(others)  # (pairs, folds)
        return np.where(np.isfinite(means), means, -np.inf).mean(axis=1).argmax(axis=0)

    return lanes[0].sign * cross_fitted([merits] * merits.shape[1], choose)


def train_lanes(request: Request, points: Sequence[Point]) -> list[Lane]:
    """Train the candidates on all folds, round by round, until validation rows show no more progress of any."""
    sessions = [_session(request, number, points) for number in range(request.folds)]
    lanes = [Lane(point, request.prepared.choose_by, [], [{} for _ in sessions]) for point in points]
    rounds, reached = sessions[0].training.rounds, 0
    while True:
        _train_folds(request, sessions, lanes, reached)
        request.report(reached, rounds)
        late = time.monotonic() > request.deadline and reached > 0  # untrained models cannot be compared
        if reached >= rounds or late or all(lane.ended for lane in lanes):
            return lanes
        # every round at first, where few rounds make much of a difference, then at steps of a tenth
        reached = min(max(reached + 1, -(-reached * 11 // 10)), rounds)


def _train_folds(request: Request, sessions: Sequence[Session], lanes: list[Lane], upto: int) -> None:
    """Bring every fold to round `upto`: folds advance together, since a lane ends by its mean over all of them."""
    # where each client chooses alone, the others' scores end nothing
    stops_early = request.own_units is None and request.prepared.spec.tuning.until == "converged"
    for number, session in enumerate(sessions):
        with contextlib.suppress(DivergedError):  # of the only candidate: its record says so
            session.train(watch=functools.partial(_keep, lanes, number), upto=upto)
    for lane, recorders in zip(lanes, zip(*(session.recorders for session in sessions))):
        lane.recorders = recorders
        # an ended lane is computed on with the others, in one program; what it does is no longer recorded
        lane.ended |= lane.diverged is not None or (stops_early and has_converged(lane.rounds, lane.course))


def _session(request: Request, number: int, points: Sequence[Point]) -> Session:
    """A session of all candidates on one fold, before its first round."""
    prepared = request.prepared
    if number:
        prepared = prepared.on_rows(fold(prepared.federation, number, prepared.spec.data.seed), request.method)
    training = prepared.spec.training
    # lanes need one program; "auto" would measure executors for each of a dozen short searches
    if training.executor == "auto" or training.executor.startswith("looped"):
        training = dataclasses.replace(training, executor="batched", chunk=0)
    if training.devices == "auto":
        training = dataclasses.replace(training, devices=1)
    rounds = training.rounds if request.most is None else min(request.most, training.rounds)
    # `train_lanes` says when to record; a block is compiled once, for as many rounds as it has at most
    every, block = max(rounds, 1), training.block or BLOCK
    # each client's own scores are compared: a sample of them would not do
    training = dataclasses.replace(training, rounds=rounds, record_every=every, block=block, evaluate_clients=0)
    algorithms = [_candidate(request, prepared, point) for point in points]
    seeds = prepared.spec.seeds[:1] * len(points)
    options = Options(choose_by=prepared.choose_by)
    return open_session(algorithms, prepared.federation, training, seeds, prepared.scores, options)


def _candidate(request: Request, prepared: Prepared, point: Point) -> Algorithm:
    """A candidate on a fold's rows: their constants are those of its steps and strengths, too."""
    method, settings = request.method, for_rows(point, request.in_rows, prepared.federation, prepared.constants)
    if request.own_units is not None:
        settings["step_size"] = (point["step_size"] * request.own_units(prepared, method)).tolist()
    return prepared.build(dataclasses.replace(method, settings=method.settings | settings)).algorithm


def _keep(lanes: list[Lane], number: int, place: int, recorder: Recorder, scores: Any) -> None:
    """Keep what fold `number` has recorded of a lane that has not ended."""
    lane, last = lanes[place], recorder.last_round
    if lane.ended:
        return
    lane.records[number][last] = {name: np.asarray(own, np.float64) for name, own in scores["personal"].items()}
    if number == 0 and len(lane.records) > 1:
        lane.scores[last] = scores
    elif number == 0 and recorder.selected_round == last:
        lane.scores = {last: scores}  # a single fold decides by itself: what it has passed is of no use


def for_rows(
    chosen: Mapping[str, Any], in_rows: Sequence[str], federation: Federation, constants: Constants | None
) -> dict[str, Any]:
    """Settings as a fit on these training rows takes them: a strength in rows weighs less on a client that has many.

    One number for all where new clients, which have no row here, are to be judged.
    """
    counts = federation.train.counts
    if federation.held_out is not None:
        counts = np.full(len(counts), counts.mean())
    # Gradient steps swing up where step times curvature is above 2, and a strength adds to the curvature of the
    # client's loss. One row or two curve much and are divided by little: without this bound such clients would diverge.
    most: np.ndarray | float = np.inf
    if "step_size" in chosen:
        step = np.max(chosen["step_size"])
        curved = None if constants is None else constants.client_smoothness
        most = 1 / step if curved is None else np.maximum(STABLE / step - curved, LEAST / step)
    settings = dict(chosen)
    for name in set(in_rows) & set(chosen):
        divided = np.minimum(chosen[name] / counts, most).tolist()
        settings[name] = divided if federation.held_out is None else divided[0]
    return settings


def shorten_steps(chosen: Mapping[str, Number], before: Constants | None, after: Constants | None) -> dict[str, Number]:
    """Settings with steps above 1 / smoothness shortened by as much as the loss is less smooth on the rows to fit.

    Where validation rows are unlike training rows (a split by time), a long step that was good on the one may diverge
    on both together. Steps are never made longer, and shorter ones are safe as they are.
    """
    settings = dict(chosen)
    if before is None or after is None:
        return settings
    for name in settings:
        if name.endswith("step_size"):
            own = isinstance(chosen[name], list)  # a step of each client's own follows the client's own rows
            was, now = (known.client_smoothness if own else known.smoothness for known in (before, after))
            rougher = (np.asarray(was) > 0) & (np.asarray(was) < now)
            now = np.where(rougher, now, 1.0)
            shorter = np.minimum(chosen[name], np.maximum(np.multiply(chosen[name], was) / now, 1 / now))
            settings[name] = np.where(rougher, shorter, chosen[name]).tolist()
    return settings


def step_notes(chosen: Mapping[str, Number], fitted: Mapping[str, Number]) -> list[str]:
    """Sentences about the steps that are shorter in the final fit than those that were chosen."""
    return [
        f"{name.replace('_', ' ')} {np.max(fitted[name]):.3g}{' at most' if np.ndim(fitted[name]) else ''} "
        "in the final fit, because the loss is less smooth on training and validation rows together."
        for name in chosen
        if name.endswith("step_size") and name in fitted and np.any(np.less(fitted[name], chosen[name]))
    ]
