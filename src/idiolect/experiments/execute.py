# SPDX-License-Identifier: Apache-2.0
"""Run a spec: build, tune, train every method, and write the run folder."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pyarrow as pa

from idiolect.accounting.time_model import find_time_model
from idiolect.core import DivergedError, RequestError, unprotected
from idiolect.core.kinds import PredictsWithMore
from idiolect.data.federation import Federation
from idiolect.engines.evaluate import Standing
from idiolect.engines.plan import Measure
from idiolect.engines.simulate import Checkpoint, Options, Run, Training, open_session
from idiolect.experiments.build import Built, problem_constants
from idiolect.experiments.choice import write_choices
from idiolect.experiments.compilation import remembered
from idiolect.experiments.folds import with_validation_rows
from idiolect.experiments.gains import judge_methods
from idiolect.experiments.known_optimum import optimum_measure
from idiolect.experiments.lanes import for_rows, shorten_steps, step_notes
from idiolect.experiments.outcome import validation_mean, write_tables
from idiolect.experiments.predictions import write_predictions
from idiolect.experiments.prepare import Prepared, prepare
from idiolect.experiments.privacy import privacy_statement
from idiolect.experiments.protection import out_of_reach, write_epsilon
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import MethodSpec, Resolved, Spec, resumed
from idiolect.experiments.sweeping import chosen_settings
from idiolect.experiments.trained import Trained
from idiolect.experiments.tuning import Tuned, is_searched, is_tuned, take_evidence, take_over, tune
from idiolect.experiments.units import restore_units
from idiolect.experiments.work import Overall, Progress, Work
from idiolect.metrics.scores import SCORES
from idiolect.record.schema import RunSummary
from idiolect.theory.constants import Constants

MOST_KEPT = 1000  # clients whose own models a run folder keeps unasked; more could fill a disk

Say = Callable[[str], None]


@dataclasses.dataclass
class Executed:
    """A finished run: the summary that was written, and the trained methods."""

    summary: RunSummary
    trained: list[Trained]
    federation: Federation
    folder: Path


def execute(
    spec: Spec,
    path: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    overall: Overall | None = None,
    say: Say | None = None,
    theory: bool = True,
    repeats: Path | None = None,
    rows: pa.Table | None = None,
    remarks: Sequence[str] = (),
) -> Executed:
    """Train every method of `spec` and leave a complete run folder at `path`.

    A wrong request is refused before the folder is made. Methods that are one method with several settings of its
    objective (a sweep) also leave what each client would choose among them, in choices.json. Without `theory`, `say`
    does not hear how theory chose settings; the folder has these sentences all the same. `repeats` is the folder of the
    run that the spec records: what was chosen there is not chosen again. `rows` is a table that is in memory,
    `remarks` are further notes. `progress` hears of every method by itself, `overall` of all together.
    """
    folder = RunFolder(path)
    folder.check(resume)
    if resume:
        spec = resumed(folder.read_spec(), spec, path)
    tell = say or (lambda text: None)
    find_time_model(spec.evaluation.time_model)
    prepared = prepare(spec, rows)
    prepared = dataclasses.replace(prepared, left_out=(*prepared.left_out, *remarks))
    warnings = _check_methods(prepared)
    # all that can be refused has been refused: from here on the folder holds a run
    with folder.begin(spec, prepared.federation, resume):
        if repeats is not None and take_over(spec, repeats, folder):
            tell(f"Settings are those that were chosen for the run in {repeats}.")
        _introduce(prepared, warnings, theory, tell)
        searched = sum(is_searched(prepared, ready.method) for ready in prepared.built)
        work = Work(progress, overall, len(prepared.built), searched)
        training = _Training(prepared, folder, work, tell, spec)
        # neighbours that differ in floats only share a program: they become lanes of one session
        groups = itertools.groupby(prepared.built, key=lambda ready: jax.tree.structure(ready.algorithm))
        trained = [entry for _, group in groups for entry in training.train(list(group))]
        write_choices(folder, spec.name, trained, prepared.federation, prepared.scores[0])
        summary = _write(prepared, folder, trained, warnings)
        return Executed(summary, trained, prepared.federation, path)


def _introduce(prepared: Prepared, warnings: list[str], theory: bool, tell: Say) -> None:
    """Say what is to be known before training, with `theory` also how it chose settings."""
    own = [note for ready in prepared.built for note in ready.notes if theory or note not in ready.theory]
    for text in (*prepared.notes(), prepared.reason, *own, *(f"Warning: {text}" for text in warnings)):
        tell(text)


def _check_methods(prepared: Prepared) -> list[str]:
    """Warnings about rows and methods; RequestError for a method that cannot be run on these rows."""
    spec, federation = prepared.spec, prepared.federation
    if federation.validation.counts.sum() == 0 and any(is_searched(prepared, ready.method) for ready in prepared.built):
        raise RequestError(
            "No client has a validation row to choose a step size on. Bring at least 3 rows per client, or give "
            "data.validation (in a spec, or by --set) a larger fraction; a spec with one step_size and no tuning needs "
            "none."
        )
    prepared.check_demand()
    # a step chosen on validation rows needs no warning: it was tried
    given = [text for ready in prepared.built if not is_tuned(spec, ready.method) for text in ready.warnings]
    absent = [f"{ready.method.label}: {ready.absence}" for ready in prepared.built if ready.absence is not None]
    return [*federation.warnings, *out_of_reach(spec, federation), *given, *absent]


class Ready(NamedTuple):
    """A method on its way to its final fit."""

    built: Built  # with what was chosen
    choice: Tuned | None
    settings: dict[str, Any]  # chosen on validation rows, as this fit takes them
    rounds: int


@dataclasses.dataclass
class _Training:
    """The methods of a run, trained group by group; `spec` records what was chosen so far."""

    prepared: Prepared
    folder: RunFolder
    work: Work
    tell: Say
    spec: Spec

    def __post_init__(self) -> None:
        tuning, federation = self.spec.tuning, self.prepared.federation
        self.ends = math.inf if tuning.minutes is None else time.monotonic() + 60 * tuning.minutes
        self.waiting = len(self.prepared.built)  # methods that are still to come
        # what was chosen for training alone: methods whose clients prepare a model of their own do it so
        self.alone: Tuned | None = None
        # the rows of all final fits: training rows, and in a refit those that have served to choose
        self.rows = with_validation_rows(federation) if tuning.refit else federation

    @functools.cached_property
    def constants(self) -> Constants | None:
        """Those of the rows to fit: a refit has more rows, and another curvature."""
        prepared = self.prepared
        return problem_constants(prepared.client_loss, self.rows) if self.spec.tuning.refit else prepared.constants

    def train(self, group: list[Built]) -> list[Trained]:
        """Methods of one program: choose their settings on validation rows if asked, then train them and all seeds."""
        ready = [self._settle(built, self._choose(built.method)) for built in group]
        # lanes of one session train for the same rounds
        alike = itertools.groupby(ready, key=lambda one: (one.rounds, jax.tree.structure(one.built.algorithm)))
        return [entry for _, same in alike for entry in self._train_together(list(same))]

    def _choose(self, method: MethodSpec) -> Tuned | None:
        """What is chosen on validation rows: read back where it was chosen before, or chosen now; None: nothing is."""
        # Time is dealt evenly to the methods still to come: those that took less than their part, or choose nothing,
        # leave the rest to those that follow. A fifth of a part is for the final fit.
        seconds = max(0.0, 0.8 * (self.ends - time.monotonic()) / self.waiting)
        self.waiting -= 1
        if not is_searched(self.prepared, method):
            return None
        found = Tuned.read(self.folder, method.label)
        if found is None:
            found = tune(self.prepared, method, self.work.stage(method.label, 0), seconds, self.alone)
            # kept at once: a run that is stopped later must not choose anew, and could choose otherwise
            found.write(self.folder, method.label)
        if method.alone and self.alone is None:
            self.alone = found
        self.tell(f"{method.label}: {found.sentence}.")
        return found

    def _settle(self, built: Built, choice: Tuned | None) -> Ready:
        """The method with what was chosen for it, now or when the run was started."""
        prepared, method, known = self.prepared, built.method, self.spec.resolved.get(built.method.label)
        chosen: dict[str, Any] = {}
        rounds = None
        if known is not None:
            chosen, rounds = known.tuned or {}, known.rounds
        elif choice is not None:
            # a step at the edge of stability on training rows may be beyond it on more of them
            wanted = for_rows(choice.settings, choice.in_rows, self.rows, self.constants)
            chosen, rounds = shorten_steps(wanted, prepared.constants, self.constants), choice.rounds
        if chosen:
            settled = dataclasses.replace(method, settings=method.settings | chosen)
            built = prepared.build(settled, None if known is None else known.chosen)._replace(method=method)
        for text in step_notes({} if choice is None else choice.settings, chosen):
            self.tell(f"{method.label}: {text}")
        return Ready(built, choice, chosen, self.spec.training.rounds if rounds is None else rounds)

    def _train_together(self, methods: list[Ready]) -> list[Trained]:
        """Train methods of one program and one number of rounds, and all seeds, as lanes of one session."""
        spec, labels = self.spec, [one.built.method.label for one in methods]
        training = dataclasses.replace(spec.training, rounds=methods[0].rounds)
        # other programs round otherwise; a repeated or resumed run takes the one that was used
        known = spec.resolved.get(labels[0])
        if known is not None:
            devices = known.devices if training.devices == "auto" else training.devices
            training = dataclasses.replace(
                training, executor=known.executor, chunk=known.chunk, block=known.block, devices=devices
            )
        # method by method, all seeds of one side by side: runs are cut apart in this order below
        lanes, seeds = [one.built for one in methods for _ in spec.seeds], list(spec.seeds) * len(methods)
        shown = labels[0] if len(labels) == 1 else f"{labels[0].partition('[')[0]} x {len(labels)}"
        where = self.folder.path / "checkpoint" / safe_name(labels[0])
        options = Options(
            checkpoint=Checkpoint(where, spec.output.checkpoint_every, self.tell),
            resume=True,
            progress=self.work.stage(shown, len(methods)),
            choose_by=self.prepared.choose_by,
            measure=self._measure([one.built for one in methods]),
            select_last=spec.privacy.is_on,  # to choose among rounds by scores would read rows that no noise hides
            spent=[built.spent for built in lanes],
            memory=remembered(),
        )
        algorithms = [built.algorithm for built in lanes]
        session = open_session(algorithms, self.rows, training, seeds, self.prepared.scores, options)
        self._resolve(methods, session.training)
        try:
            runs = session.run()
        except DivergedError as error:
            if len(self.prepared.built) == 1:
                raise DivergedError(f"{shown}: {error}") from None
            runs = session.finish()  # the other methods still deserve their answer; the table says what happened
        count = len(spec.seeds)
        return [self._finish(one, runs[n * count : (n + 1) * count]) for n, one in enumerate(methods)]

    def _resolve(self, methods: list[Ready], used: Training) -> None:
        """Write down what was chosen before it trains: a resumed run must use the same program."""
        resolved = dict(self.spec.resolved)
        for built, choice, settings, rounds in methods:
            found = None if choice is None else rounds
            resolved[built.method.label] = Resolved(
                used.executor, used.chunk, used.block, found, settings or None, built.chosen or None, int(used.devices)
            )
        self.spec = dataclasses.replace(self.spec, resolved=resolved)
        self.folder.write_spec(self.spec)

    def _finish(self, one: Ready, runs: list[Run]) -> Trained:
        """The trained method; its models are written, its record is in the table's units."""
        built, federation, kept = one.built, self.prepared.federation, self.spec.output.models
        for run in runs:
            if one.choice is not None:
                take_evidence(run.recorder, one.choice, refitted=self.spec.tuning.refit)
            restore_units(run.recorder, federation)
            name = f"{safe_name(built.method.label)}-seed{run.seed}"
            shared = None if kept == "none" else run.shared_model(run.selected)
            if shared is not None:
                self.folder.write_model(f"{name}/shared", shared)
            if kept == "all" or (kept == "auto" and federation.clients <= MOST_KEPT):
                # stacked over clients, in the order of clients.json
                self.folder.write_model(f"{name}/personal", run.personal_models(run.selected))
        if self.spec.privacy.is_on:
            write_epsilon(built.spending, runs)
        return Trained(built, runs, one.choice)

    def _measure(self, methods: list[Built]) -> Measure | None:
        """Every method against the optimum of its own objective; None where it is not asked for, or none is known."""
        asked = self.spec.evaluation.optimum
        if asked == "never" or (asked == "auto" and not self.prepared.synthetic):
            return None
        own: list[Callable[[Standing], dict[str, float]] | None] = []
        for built in methods:
            objective, label = unprotected(built.algorithm.objective), built.method.label
            cache = self.folder.path / "optima" / f"{safe_name(label)}.npz"
            # what such a method predicts with is no point of its objective
            pointless = isinstance(built.algorithm, PredictsWithMore)
            own.append(None if pointless else optimum_measure(objective, self.rows.train, cache))
            if own[-1] is None and not pointless and asked == "always":
                raise RequestError(
                    '[evaluation] optimum = "always" needs a convex objective with an optimum, and '
                    f"{type(objective).__name__} of {label} has none that is known here; give [model] l2 a value above "
                    "0, use a linear model, or leave it on auto."
                )
        if not any(own):
            return None

        def measure_lane(lane: int, where: Standing) -> dict[str, float]:
            measure = own[lane // len(self.spec.seeds)]
            return {} if measure is None else measure(where)

        return measure_lane


def _write(prepared: Prepared, folder: RunFolder, trained: list[Trained], warnings: list[str]) -> RunSummary:
    federation, choose_by, spec = prepared.federation, prepared.choose_by, prepared.spec
    reached = {entry.method.label: validation_mean(entry, choose_by) for entry in trained}
    chosen = chosen_settings([entry.method for entry in trained], reached, SCORES[choose_by].higher_is_better)
    judged = judge_methods(trained, federation, prepared.scores[0], chosen, choose_by)
    summary = write_tables(folder, prepared, trained, chosen, judged, spec.evaluation.flops)
    announced = None if summary.announced is None else summary.announced.method
    left_out = write_predictions(folder, trained, federation, announced)
    summary = dataclasses.replace(summary, notes=(*summary.notes, *left_out), warnings=tuple(warnings))
    if spec.output.models != "none":
        folder.write_names(federation)
    folder.complete("summary.json", summary, privacy_statement(prepared, trained), spec.evaluation.time_model)
    return summary
