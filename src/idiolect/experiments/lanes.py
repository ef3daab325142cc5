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

from idiolect.core.checks import DivergedError
from idiolect.data.federation import Federation
from idiolect.engines.plan import Options
from idiolect.engines.recording import Recorder
from idiolect.engines.session import Session, open_session
from idiolect.engines.stopping import has_converged
from idiolect.experiments.folds import fold
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.search import Point
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
Personal = dict[str, np.ndarray]  # score -> one number per client, of the personal models


class Request(NamedTuple):
    """What is trained, and for how long."""

    prepared: Prepared
    method: MethodSpec
    in_rows: Sequence[str]  # settings that are divided by a client's rows
    folds: int
    report: Report
    deadline: float = math.inf  # of `time.monotonic`
    most: int | None = None  # rounds; None: those of the spec
    own_units: Units | None = None  # what a step size is a multiple of, where each client has its own

    @property
    def stops_early(self) -> bool:
        """Whether the mean over clients ends a candidate; where each chooses alone, the others' scores end nothing."""
        return self.own_units is None and self.prepared.spec.tuning.until == "converged"

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline


@dataclasses.dataclass
class Lane:
    """One candidate: what its folds recorded, and the mean over folds of what validation rows say."""

    point: Point
    choose_by: str
    recorders: list[Recorder]  # one per fold
    records: list[dict[int, Personal]]  # by round, one per fold
    scores: dict[int, Any] = dataclasses.field(default_factory=dict)  # all scores of the first fold, by round
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # of the first fold, while it lasted
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

    def clients(self, number: int, score: str) -> np.ndarray:
        """(folds, clients) after a round."""
        return np.stack([records[number][score] for records in self.records])

    @property
    def course(self) -> list[float]:
        """The mean over clients and folds of the score to choose by after every round, larger is better."""
        sign, rounds = 1 if SCORES[self.choose_by].higher_is_better else -1, self.rounds
        for number in rounds:
            if number not in self.means:
                self.means[number] = sign * float(over_clients(self.clients(number, self.choose_by)).mean())
        return [self.means[number] for number in rounds]

    @property
    def best(self) -> tuple[float, int]:
        """(the best score, its round); minus infinity where there is none."""
        known = [(score, -number) for score, number in zip(self.course, self.rounds) if not np.isnan(score)]
        if self.diverged is not None or not known:
            return -np.inf, 0
        score, number = max(known)
        return (score, -number) if np.isfinite(score) else (-np.inf, 0)

    @property
    def stable(self) -> bool:
        """Whether it ends about as well as it began or better; a step that is too long may have a good first round."""
        course = self.course
        return self.diverged is None and bool(course) and course[-1] >= course[0] - UNSTABLE * abs(course[0])

    def best_without(self, fold: int) -> int:
        """The best round by the other folds, of which there must be one at least."""
        sign = 1 if SCORES[self.choose_by].higher_is_better else -1
        others = [np.delete(self.clients(number, self.choose_by), fold, axis=0) for number in self.rounds]
        scores = [sign * float(over_clients(own).mean()) for own in others]
        return self.rounds[int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))]

    @property
    def converged(self) -> bool:
        """Whether the last third of the rounds brought no progress."""
        return has_converged(self.rounds, self.course)


def cross_fit(lanes: Sequence[Lane]) -> np.ndarray:
    """(folds, clients): each fold's scores of the candidate and round that the other folds would choose.

    The best of many is best by luck too: what chose it flatters it, and more so a method with more candidates. There
    must be two folds at least.
    """
    able = [lane for lane in lanes if lane.diverged is None and lane.rounds]
    name, sign = able[0].choose_by, 1 if SCORES[able[0].choose_by].higher_is_better else -1
    found = np.stack([lane.clients(number, name) for lane in able for number in lane.rounds])  # (pairs, folds, clients)
    known = ~np.isnan(found)
    means = sign * np.where(known, found, 0).sum(axis=2) / np.maximum(known.sum(axis=2), 1)  # (pairs, folds)
    means = np.where(known.any(axis=2) & np.isfinite(means), means, -np.inf)
    others = [np.delete(means, fold, axis=1).mean(axis=1).argmax() for fold in range(found.shape[1])]
    return np.stack([found[place, fold] for fold, place in enumerate(others)])


def train_lanes(request: Request, points: Sequence[Point]) -> list[Lane]:
    """Train the candidates on all folds, round by round, until validation rows show no more progress of any."""
    sessions = [_session(request, number, points) for number in range(request.folds)]
    lanes = [Lane(point, request.prepared.choose_by, [], [{} for _ in sessions]) for point in points]
    rounds, reached = sessions[0].training.rounds, 0
    while True:
        _train_folds(sessions, lanes, reached, request.stops_early)
        request.report(reached, rounds)
        late = request.late and reached > 0  # untrained models cannot be compared
        if reached >= rounds or late or all(lane.ended for lane in lanes):
            return lanes
        # every round at first, where few rounds make much of a difference, then at steps of a tenth
        reached = min(max(reached + 1, -(-reached * 11 // 10)), rounds)


def _train_folds(sessions: Sequence[Session], lanes: list[Lane], upto: int, stops_early: bool) -> None:
    """Bring every fold to round `upto`: folds advance together, since a lane ends by its mean over all of them."""
    for number, session in enumerate(sessions):
        with contextlib.suppress(DivergedError):  # of the only candidate: its record says so
            session.train(watch=functools.partial(_keep, lanes, number), upto=upto)
    for place, lane in enumerate(lanes):
        lane.recorders = [session.recorders[place] for session in sessions]
        # an ended lane is computed on with the others, in one program; what it does is no longer recorded
        lane.ended |= lane.diverged is not None or (stops_early and lane.converged)


def _session(request: Request, number: int, points: Sequence[Point]) -> Session:
    """A session of all candidates on one fold, before its first round."""
    prepared, method = request.prepared, request.method
    if number:
        rows = fold(prepared.federation, number, prepared.spec.data.seed)
        prepared = prepared.on_rows(rows, method)
    spec, federation = prepared.spec, prepared.federation
    # constants are those of the fold's own rows, and so are steps and strengths in their units
    settings = [method.settings | _settings_on(request, point, prepared) for point in points]
    algorithms = [prepared.build(dataclasses.replace(method, settings=own)).algorithm for own in settings]
    training = spec.training
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
    seeds = [spec.seeds[0]] * len(points)
    return open_session(algorithms, federation, training, seeds, prepared.scores, Options(choose_by=prepared.choose_by))


def _settings_on(request: Request, point: Point, prepared: Prepared) -> dict[str, Any]:
    """A candidate's settings on a fold's rows."""
    settings = for_rows(point, request.in_rows, prepared.federation, prepared.constants)
    if request.own_units is not None:
        settings["step_size"] = (point["step_size"] * request.own_units(prepared, request.method)).tolist()
    return settings


def _keep(lanes: list[Lane], number: int, place: int, recorder: Recorder, scores: Any) -> None:
    """Keep what fold `number` has recorded of a lane that has not ended."""
    lane, last = lanes[place], recorder.last_round
    if lane.ended:
        return
    lane.records[number][last] = {name: np.asarray(own, np.float64) for name, own in scores["personal"].items()}
    if number:
        return
    lane.history = list(recorder.history)
    alone = len(lane.records) == 1
    if alone and recorder.selected_round == last:
        lane.scores.clear()  # a single fold decides by itself: what it has passed is of no use
    if not alone or recorder.selected_round == last:
        lane.scores[last] = scores


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
