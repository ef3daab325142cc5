# SPDX-License-Identifier: Apache-2.0
"""The personalization dial: one setting walked along one warm-started path, its price, and each client's own choice.

The state after one value is the start of the next: a value costs only the stretch that leads to it, and what clients
prepare (x*_m of FLIX) is paid once. Clients choose their value on validation rows; test rows only judge.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect.core.checks import DivergedError, RequestError, nearest
from idiolect.core.order import natural_order
from idiolect.data.federation import Federation
from idiolect.engines.demand import check_demand
from idiolect.engines.door import check_participation, check_training, participation_of
from idiolect.engines.run import Run
from idiolect.engines.simulate import Checkpoint, Session
from idiolect.experiments.build import Built, build_client_loss, build_method, choose_scores, problem_constants
from idiolect.experiments.choice import Tried, client_rows, find_choice, objective_settings
from idiolect.experiments.dial_path import DEFAULT_VALUES, Refitted, enough_rounds, loss_scores, with_all_rows
from idiolect.experiments.execute import MOST_KEPT, Progress, Say, is_tuned, named, write_names
from idiolect.experiments.privacy import dial_statement
from idiolect.experiments.run_folder import RunFolder, machine_facts, safe_name
from idiolect.experiments.same_rows import check_rows, note_rows
from idiolect.experiments.sources import build_data, refuse_weights
from idiolect.experiments.spec import MethodSpec, Spec, resumed
from idiolect.experiments.units import restore_units
from idiolect.record.choices import Choice
from idiolect.record.privacy import STATEMENT

# What can be dialled, and for whom. The largest value of either is the least personal.
DIALS = {"personalization": ("flix",), "penalty": ("mx2", "mt2")}
METHODS = {"personalization": "scafflix", "penalty": "acd_pfl"}  # who walks, unless told: exact, steps from theory
MOST = 200  # values; more is almost surely a slip


def parse_values(text: str) -> list[float]:
    """'1,0.5,0' as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"--values needs numbers such as 1,0.5,0.1,0, got {text!r}.") from None


def values_of(setting: str) -> list[float]:
    """The path of a setting where none is given, from one model for all to every client alone."""
    return list(DEFAULT_VALUES.get(setting, DEFAULT_VALUES["personalization"]))


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
    ridge_chosen: bool = False,
    remarks: Sequence[str] = (),
    progress: Progress | None = None,
    say: Say | None = None,
) -> Choice:
    """Train `training.rounds` rounds at every value in turn, each from where the last ended; leave a run folder.

    With `refit` the path is walked once more on training and validation rows, and test rows judge those models; with
    `to_the_end` each value gets the rounds that theory asks for; with `by_loss` the loss decides; `ridge_chosen`
    says that validation rows chose the ridge before. With `resume`, an interrupted dial goes on from its last
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
    tell = say or (lambda text: None)
    refuse_weights(spec.data, "dial")
    federation, problem = build_data(spec.data, spec.training.precision)
    check_training(spec.training, federation.clients)
    _check_rows(federation)
    scores, reason = (loss_scores if by_loss else choose_scores)(spec, federation)
    built = _build(spec, method, setting, values, federation, problem)
    with named(method.label):
        check_demand(built[0].algorithm, federation.train, spec.training, len(spec.seeds))
    doubts = list(dict.fromkeys(text for ready in built for text in ready.warnings))
    # where the path is the program's own, what theory says against it is for specialists
    if resume:
        check_rows(folder, federation)
    warnings = [*federation.warnings, *([] if to_the_end else doubts), *_absence(spec, built, federation.clients)]
    with folder.open(resume, request):
        if not resume:
            note_rows(folder, federation)
        folder.write_spec(spec)
        notes = [*federation.describe(), *federation.notes, *remarks]
        for text in (*notes, reason, *(f"Warning: {text}" for text in warnings)):
            tell(text)
        notes += dict.fromkeys(text for ready in built for text in ready.notes)  # for specialists: on the page alone
        notes += doubts if to_the_end else []
        path_of = Walk(spec, method, setting, values, scores, folder, to_the_end, progress, tell)
        tried = path_of.train(built, federation, "checkpoint")
        if refit:
            whole = with_all_rows(federation)
            again = path_of.train(_build(spec, method, setting, values, whole, problem), whole, "checkpoint/refit")
            tried = [Refitted.join(*pair) for pair in zip(tried, again)]
            notes.append("Values were chosen on validation rows; then the path was walked again with them, too.")
        found = find_choice("dial", spec.name, method, setting, tried, federation, scores[0], "last")
        order = tuple(natural_order(federation.names))
        found = dataclasses.replace(
            found, score_reason=reason, notes=tuple(notes), warnings=tuple(warnings), refit=refit, order=order
        )
        folder.write_table("dial.parquet", [vars(row) for row in client_rows(found, federation)])
        _write_models(spec, folder, method, tried, list(found.chosen.places), federation)
        folder.write_json("machine.json", machine_facts(spec.evaluation.time_model))
        statement = dial_statement(federation, method.label, setting, tried, ridge_chosen)
        folder.write_json(STATEMENT, statement)
        folder.write_json("dial.json", found)
        folder.finish()
        return found


def _build(
    spec: Spec, method: MethodSpec, setting: str, values: Sequence[float], federation: Federation, problem: Any
) -> list[Built]:
    """The method at every value, with what theory says of these rows."""
    client_loss = build_client_loss(spec.model, federation, problem)
    constants = problem_constants(client_loss, federation)
    rows = float(np.mean(federation.train.counts))
    arguments = client_loss, constants, federation.clients, rows, None, federation.names
    return [build_method(_at(method, setting, value), *arguments) for value in values]


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
        known = " or ".join(f"{name} (of {' and '.join(homes)})" for name, homes in DIALS.items())
        raise RequestError(
            f"--setting must be {known}, got {setting!r}.{nearest(setting, DIALS)} "
            "`idiolect sweep` tries values of any other setting."
        )
    labels = [method.label for method in spec.methods]
    if label is not None and label not in labels:
        raise RequestError(f"There is no method {label!r} in the spec.{nearest(label, labels)}")
    asked = [method for method in spec.methods if label in (None, method.label)]
    fitting = [method for method in asked if setting in objective_settings(method)]
    if not fitting:
        raise RequestError(
            f"--setting {setting} needs a method on the objective {' or '.join(DIALS[setting])}, and "
            f"{', '.join(method.label for method in asked)} has none; use {METHODS[setting]}, for example."
        )
    if len(fitting) > 1:
        names = ", ".join(method.label for method in fitting)
        raise RequestError(f"A dial walks with one method, and {names} all have {setting}; choose with --method LABEL.")
    return fitting[0]


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


def _at(method: MethodSpec, setting: str, value: float) -> MethodSpec:
    return dataclasses.replace(method, settings=method.settings | {setting: value})


def _absence(spec: Spec, built: list[Built], clients: int) -> list[str]:
    """What is to be said of clients that are absent from rounds, every sentence once."""
    said = dict.fromkeys(
        check_participation(ready.algorithm, participation_of(ready.algorithm, spec.training, clients).chance)
        for ready in built
    )
    return [text for text in said if text]


class Walk(NamedTuple):
    """One path to walk, perhaps twice: on training rows, and on those and the validation rows."""

    spec: Spec
    method: MethodSpec
    setting: str
    values: Sequence[float]
    scores: tuple[str, ...]
    folder: RunFolder
    to_the_end: bool
    progress: Progress | None
    tell: Say

    def lengths(self, built: list[Built]) -> list[int]:
        """Rounds of every value."""
        asked = [enough_rounds(ready.algorithm) if self.to_the_end else self.spec.training.rounds for ready in built]
        alone = [_needs_nobody(self.setting, value) for value in self.values]
        return [0 if nobody else rounds for nobody, rounds in zip(alone, asked)]

    def train(self, built: list[Built], federation: Federation, checkpoints: str) -> list[Tried]:
        """The path: every session goes on after the one before, all seeds as lanes of one program.

        A stretch that a checkpoint holds is read back instead of walked again.
        """
        spec, lengths = self.spec, self.lengths(built)
        tried: list[Tried] = []
        session: Session | None = None
        training = spec.training
        if self.to_the_end:
            training = dataclasses.replace(training, record_every=max(sum(lengths), 1))

        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(self.method.label, done, sum(lengths))

        for place, (value, ready) in enumerate(zip(self.values, built)):
            training = dataclasses.replace(training, rounds=sum(lengths[: place + 1]))
            lanes = [ready.algorithm] * len(spec.seeds)
            session = Session(lanes, federation, training, list(spec.seeds), self.scores, None, after=session)
            where = self.folder.path / checkpoints / str(place)
            checkpoint = Checkpoint(where, spec.output.checkpoint_every, self.tell)
            runs = self._run(session, checkpoint, value, report)
            if lengths[place]:
                training = session.training  # what `auto` chose at first holds for the whole path
            for run in runs:
                restore_units(run.recorder, federation)
            tried.append(Tried(value, runs, -value))
        return tried

    def _run(
        self, session: Session, checkpoint: Checkpoint, value: float, report: Callable[[int, int], None]
    ) -> list[Run]:
        where = f"{self.method.label} at {self.setting} = {value:g}"
        try:
            runs = session.run(checkpoint, True, report)
        except DivergedError as error:
            raise DivergedError(f"{where}: {error}") from None
        lost = next((run for run in runs if run.recorder.diverged), None)
        if lost is not None:
            raise DivergedError(
                f"{where}, seed {lost.seed}: {lost.recorder.diverged}: its parameters are no longer finite. Use a "
                "smaller step size."
            )
        return runs


def _needs_nobody(setting: str, value: float) -> bool:
    """alpha = 0: the personal model is x*_m, whatever the others do, so that no round is spent."""
    return setting == "personalization" and value == 0


def _write_models(
    spec: Spec, folder: RunFolder, method: MethodSpec, tried: list[Tried], chosen: list[int], federation: Federation
) -> None:
    """Every client's chosen model, as a run's personal models lie; with "all" also those of every value."""
    kept = spec.output.models
    few = federation.clients <= MOST_KEPT
    if kept == "none" or (kept == "auto" and not few):
        return
    write_names(folder, federation)
    for lane, seed in enumerate(spec.seeds):
        name = f"{safe_name(method.label)}-seed{seed}"
        if kept in ("auto", "all"):
            models = [_final(one)[lane].personal_models() for one in tried]
            own = jax.tree.map(lambda *leaves: np.stack(leaves)[chosen, np.arange(federation.clients)], *models)
            folder.write_model(f"{name}/personal", own)
        for one in tried if kept in ("shared", "all") else ():
            at = f"{name}/at-{one.value:g}"
            shared = _final(one)[lane].shared_model()
            if shared is not None:
                folder.write_model(f"{at}/shared", shared)
            if kept == "all":
                folder.write_model(f"{at}/personal", _final(one)[lane].personal_models())


def _final(tried: Tried) -> list[Run]:
    """The runs whose models are handed over."""
    return tried.again if isinstance(tried, Refitted) else tried.runs
