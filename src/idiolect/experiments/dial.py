# SPDX-License-Identifier: Apache-2.0
"""The personalization dial: one setting walked along one warm-started path, its price, and each client's own choice.

The state after one value is the start of the next: a value costs only the stretch that leads to it, and what clients
prepare (x*_m of FLIX) is paid once. Clients choose their value on validation rows; test rows only judge.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import DivergedError, RequestError, nearest
from idiolect.core.order import natural_order
from idiolect.data.federation import Federation
from idiolect.engines.run import Run
from idiolect.engines.simulate import Checkpoint, Options, Session, open_session
from idiolect.experiments.build import Built, problem_constants
from idiolect.experiments.choice import Tried, client_rows, find_choice
from idiolect.experiments.execute import MOST_KEPT, Say
from idiolect.experiments.folds import with_validation_rows
from idiolect.experiments.prepare import Prepared, choose_scores, loss_scores, prepare
from idiolect.experiments.privacy import dial_statement
from idiolect.experiments.protection import is_protected
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.sources import refuse_weights
from idiolect.experiments.spec import MethodSpec, Spec, own_settings, parse_numbers, resumed
from idiolect.experiments.tuning import is_tuned
from idiolect.experiments.units import restore_units
from idiolect.experiments.work import Progress
from idiolect.record.choices import Choice

# What can be dialled, and for whom. The largest value of either is the least personal.
DIALS = {"personalization": ("flix",), "penalty": ("mx2", "mt2")}
METHODS = {"personalization": "scafflix", "penalty": "acd_pfl"}  # who walks, unless told: exact, steps from theory
MOST = 200  # values; more is almost surely a slip
# Paths from one model for all to every client alone. Data are scaled, so that curvatures are of the order of 1: a
# penalty of 30 holds personal models at the shared one, one of 0.003 lets them go.
DEFAULT_VALUES = {"personalization": (1.0, 0.5, 0.2, 0.1, 0.0), "penalty": (30.0, 5.0, 1.0, 0.2, 0.03, 0.003)}
PLAIN_ROUNDS = 30  # where theory does not say how many are enough
MOST_ROUNDS = 1_000
ACCURACY = 1e-4  # what is left of the squared distance to the optimum after each value's rounds


def parse_values(text: str | None, setting: str = "personalization") -> list[float]:
    """'1,0.5,0' as numbers; without a text the path of the setting from one model for all to every client alone."""
    if text is None:
        return list(DEFAULT_VALUES.get(setting, DEFAULT_VALUES["personalization"]))
    return parse_numbers(text, "--values", "1,0.5,0.1,0")


def walk(
    spec: Spec,
    path: Path,
    setting: str,
    values: Sequence[float],
    *,
    label: str | None = None,
    resume: bool = False,
    refit: bool = False,
    to_the_end: bool = False,
    by_loss: bool = False,
    ridge: str | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Choice:
    """Train `training.rounds` rounds at every value in turn, each from where the last ended; leave a run folder.

    With `refit` the path is walked once more on training and validation rows, and test rows judge those models; with
    `to_the_end` each value gets the rounds that theory asks for; with `by_loss` the loss decides; `ridge`
    says how validation rows chose the ridge before. With `resume`, an interrupted dial goes on from its last
    checkpoint, to the same bits.
    """
    folder = RunFolder(path, "dial")
    folder.check(resume)
    method = _method(spec, setting, label)
    _check_values(setting, values)
    _check_one_path(spec, method)
    spec = dataclasses.replace(spec, methods=(method,))
    request = {"setting": setting, "values": list(values)} | ({"refit": True} if refit else {})
    if resume:
        _check_same(folder, request)
        spec = resumed(folder.read_spec(), spec, path)
    refuse_weights(spec.data, "dial")
    if is_protected(spec):
        raise RequestError(
            "dial goes on from one value to the next, which protections are not made for; leave [privacy], "
            "[compression], [robustness], [attack] and [secure_aggregation] out, or use sweep."
        )
    stations = tuple(dataclasses.replace(method, settings=method.settings | {setting: value}) for value in values)
    stops = dataclasses.replace(spec, methods=stations)
    prepared = prepare(stops, scoring=loss_scores if by_loss else choose_scores)
    _check_rows(prepared.federation)
    prepared.check_demand()
    tell = say or (lambda text: None)
    with folder.begin(spec, prepared.federation, resume, request):
        notes, warnings = _announce(prepared, ridge, to_the_end, tell)
        path_of = Walk(spec, method, setting, values, folder, to_the_end, progress, tell)
        tried = path_of.train(prepared, "checkpoint", walks=1 + refit)
        if refit:
            again = path_of.train(_refitted(prepared), "checkpoint/refit", walks=2, walked=1)
            tried = [first._replace(again=second.runs) for first, second in zip(tried, again)]
            notes.append("Values were chosen on validation rows; then the path was walked again with them, too.")
        found = path_of.choose(prepared, tried, notes, warnings, refit)
        statement = dial_statement(prepared.federation, method.label, setting, tried, ridge is not None)
        folder.complete("dial.json", found, statement, spec.evaluation.time_model)
        return found


def _announce(prepared: Prepared, ridge: str | None, to_the_end: bool, tell: Say) -> tuple[list[str], list[str]]:
    """Say what is to be known before training; returns notes and warnings for the page, which tells more.

    Where the path is the program's own (`to_the_end`), what theory says against it is for specialists: on the page.
    """
    federation = prepared.federation
    doubts = list(dict.fromkeys(text for ready in prepared.built for text in ready.warnings))
    absence = dict.fromkeys(ready.absence for ready in prepared.built if ready.absence)
    warnings = [*federation.warnings, *([] if to_the_end else doubts), *absence]
    notes = [*federation.describe(), *federation.notes, *filter(None, [ridge])]
    for text in (*notes, prepared.reason, *(f"Warning: {text}" for text in warnings)):
        tell(text)
    chosen = dict.fromkeys(text for ready in prepared.built for text in ready.notes)
    return [*notes, *chosen, *(doubts if to_the_end else [])], warnings


def _refitted(prepared: Prepared) -> Prepared:
    """The same stations, with what theory says of training and validation rows together."""
    federation, joined = prepared.federation, with_validation_rows(prepared.federation)
    # validation rows train, too; they stay where they are so that scores can be computed as before
    groups = joined.groups and federation.groups and (joined.groups[0], *federation.groups[1:])
    # rows were prepared, and that was billed, on the first path
    whole = dataclasses.replace(federation, train=joined.train, groups=groups, places=None, preparation=None)
    again = dataclasses.replace(prepared, federation=whole, constants=problem_constants(prepared.client_loss, whole))
    return dataclasses.replace(again, built=tuple(map(again.build, again.methods)))


def _check_same(folder: RunFolder, request: dict[str, Any]) -> None:
    """An interrupted dial goes on with its own setting and values."""
    stored = folder.read_request()
    if stored is not None and stored != request:
        before, now = (
            f"{one['setting']} = {', '.join(f'{value:g}' for value in one['values'])}" for one in (stored, request)
        )
        raise RequestError(
            f"The dial in {folder.path} was started with {before}, and this asks for {now}; resume it as it was, or "
            "choose another --out."
        )


def _method(spec: Spec, setting: str, label: str | None) -> MethodSpec:
    """The method to walk with: the named one, or the only one that has the setting."""
    if setting not in DIALS:
        homes = " or ".join(f"{name} (of {' and '.join(homes)})" for name, homes in DIALS.items())
        raise RequestError(
            f"--setting must be {homes}, got {setting!r}.{nearest(setting, DIALS)} "
            "`idiolect sweep` tries values of any other setting."
        )
    asked = {method.label: method for method in spec.methods if label in (None, method.label)}
    if label is not None and not asked:
        known = [method.label for method in spec.methods]
        raise RequestError(f"There is no method {label!r} in the spec.{nearest(label, known)}")
    fitting = {name: method for name, method in asked.items() if setting in own_settings(method.minimised)}
    if not fitting:
        raise RequestError(
            f"--setting {setting} needs a method on the objective {' or '.join(DIALS[setting])}, and "
            f"{', '.join(asked)} has none; use {METHODS[setting]}, for example."
        )
    if len(fitting) > 1:
        raise RequestError(
            f"A dial walks with one method, and {', '.join(fitting)} all have {setting}; choose with --method LABEL."
        )
    return next(iter(fitting.values()))


def _check_values(setting: str, values: Sequence[float]) -> None:
    shown = ", ".join(f"{value:g}" for value in values)
    if len(values) < 2:
        raise RequestError(f"--values needs at least 2 values to choose from, got {shown}; give such as 1,0.5,0.1,0.")
    if len(values) > MOST:
        raise RequestError(f"--values names {len(values)} values, more than {MOST}; thin them out.")
    if setting == "penalty" and min(values) <= 0:
        raise RequestError(
            f"--values of a penalty must be above 0, got {min(values):g}: at 0 nothing ties a client to the others and "
            "there is no shared model to find; the smallest value lets clients go, 0.001 for example."
        )
    doubled = next((value for value in values if list(values).count(value) > 1), None)
    if doubled is not None:
        raise RequestError(f"--values names {doubled:g} twice; give every value of {setting} once.")


def _check_one_path(spec: Spec, method: MethodSpec) -> None:
    if spec.training.rounds < 1:
        raise RequestError(
            "--rounds (training.rounds in a spec) must be at least 1 for every value of a dial, got "
            f"{spec.training.rounds}; give more."
        )
    if is_tuned(spec, method):
        raise RequestError(
            f"A dial takes one step size, got tuning.step_size = {spec.tuning.step_size}; set methods.{method.label}."
            "step_size to the one that `idiolect run` chose."
        )


def _check_rows(federation: Federation) -> None:
    """Validation rows choose and test rows judge: without either a dial has no answer."""
    for split, purpose in (("validation", "choose a value on"), ("test", "judge the choice by")):
        if getattr(federation, split).counts.sum() == 0:
            raise RequestError(
                f"No client has a {split} row to {purpose}. Give --set 'data.{split} = 0.2', or bring more rows per "
                "client."
            )


class Walk(NamedTuple):
    """One path to walk, perhaps twice: on training rows, and on those and the validation rows."""

    spec: Spec
    method: MethodSpec
    setting: str
    values: Sequence[float]
    folder: RunFolder
    to_the_end: bool
    progress: Progress | None
    tell: Say

    def lengths(self, built: Sequence[Built]) -> list[int]:
        """Rounds of every value; none for alpha = 0, where the personal model is x*_m whatever the others do."""
        asked = [enough_rounds(ready.algorithm) if self.to_the_end else self.spec.training.rounds for ready in built]
        alone = [self.setting == "personalization" and value == 0 for value in self.values]
        return [0 if none else rounds for none, rounds in zip(alone, asked)]

    def train(self, prepared: Prepared, checkpoints: str, walks: int = 1, walked: int = 0) -> list[Tried]:
        """The path: every session goes on after the one before, all seeds as lanes of one program.

        A stretch that a checkpoint holds is read back instead of walked again. `walked` of `walks` paths are done.
        """
        spec, federation, lengths = self.spec, prepared.federation, self.lengths(prepared.built)
        tried: list[Tried] = []
        session: Session | None = None
        training = spec.training
        if self.to_the_end:
            training = dataclasses.replace(training, record_every=max(sum(lengths), 1))

        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(self.method.label, walked * sum(lengths) + done, walks * sum(lengths))

        for place, (value, ready) in enumerate(zip(self.values, prepared.built)):
            training = dataclasses.replace(training, rounds=sum(lengths[: place + 1]))
            lanes = [ready.algorithm] * len(spec.seeds)
            where = self.folder.path / checkpoints / str(place)
            checkpoint = Checkpoint(where, spec.output.checkpoint_every, self.tell)
            options = Options(checkpoint=checkpoint, resume=True, progress=report)
            if session is None:
                session = open_session(lanes, federation, training, spec.seeds, prepared.scores, options)
            else:
                session = session.go_on(lanes, training, options)
            runs = self._run(session, value)
            if lengths[place]:
                training = session.training  # what `auto` chose at first holds for the whole path
            for run in runs:
                restore_units(run.recorder, federation)
            tried.append(Tried(value, runs, -value))
        return tried

    def _run(self, session: Session, value: float) -> list[Run]:
        where = f"{self.method.label} at {self.setting} = {value:g}"
        try:
            runs = session.run()
        except DivergedError as error:
            raise DivergedError(f"{where}: {error}") from None
        lost = next((run for run in runs if run.recorder.diverged), None)
        if lost is not None:
            raise DivergedError(
                f"{where}, seed {lost.seed}: {lost.recorder.diverged}: its parameters are no longer finite. Use a "
                "smaller step size."
            )
        return runs

    def choose(
        self, prepared: Prepared, tried: list[Tried], notes: list[str], warnings: list[str], refit: bool
    ) -> Choice:
        """Every client's choice, with its rows and its model written."""
        federation, name = prepared.federation, self.spec.name
        found = find_choice("dial", name, self.method, self.setting, tried, federation, prepared.scores[0])
        self.folder.write_table("dial.parquet", [vars(row) for row in client_rows(found, federation)])
        kept = self.spec.output.models
        if kept != "none" and (kept != "auto" or federation.clients <= MOST_KEPT):
            self.folder.write_names(federation)
            for lane, seed in enumerate(self.spec.seeds):
                self._write_models(tried, lane, f"{safe_name(self.method.label)}-seed{seed}", list(found.chosen.places))
        return dataclasses.replace(
            found,
            score_reason=prepared.reason,
            notes=tuple(notes),
            warnings=tuple(warnings),
            refit=refit,
            order=tuple(natural_order(federation.names)),
        )

    def _write_models(self, tried: list[Tried], lane: int, name: str, chosen: list[int]) -> None:
        """Every client's chosen model, as a run's personal models lie; with "all" also those of every value."""
        kept, write = self.spec.output.models, self.folder.write_model
        if kept in ("auto", "all"):
            models = [one.handed_over[lane].personal_models() for one in tried]
            own = jax.tree.map(lambda *leaves: np.stack(leaves)[chosen, np.arange(len(chosen))], *models)
            write(f"{name}/personal", own)
        for one in tried if kept in ("shared", "all") else ():
            shared = one.handed_over[lane].shared_model()
            if shared is not None:
                write(f"{name}/at-{one.value:g}/shared", shared)
            if kept == "all":
                write(f"{name}/at-{one.value:g}/personal", one.handed_over[lane].personal_models())


def enough_rounds(algorithm: Algorithm) -> int:
    """Rounds after which theory promises the optimum to ACCURACY; PLAIN_ROUNDS where it promises nothing."""
    chance: Any = getattr(algorithm, "communication_probability", None)
    steps: Any = getattr(algorithm, "coefficients", None)
    if chance is not None:  # ProxSkip's rate: 1 - p^2 an iteration, 1/p of them a round
        rounds = -math.log(ACCURACY) / float(np.min(chance))
    elif steps is not None and float(np.min(steps.momentum)) > 0:
        rounds = -math.log(ACCURACY) * float(np.max(steps.shared_probability)) / float(np.min(steps.momentum))
    else:
        return PLAIN_ROUNDS
    return max(PLAIN_ROUNDS, min(math.ceil(rounds), MOST_ROUNDS))
