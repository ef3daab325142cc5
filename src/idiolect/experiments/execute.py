# SPDX-License-Identifier: Apache-2.0
"""Run a spec: build, tune, train every method, and write the run folder."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from idiolect.accounting.ledger import Ledger
from idiolect.accounting.time_model import find_time_model
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import DivergedError, RequestError
from idiolect.core.kinds import PredictsWithMore
from idiolect.data.federation import Federation
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.door import Training
from idiolect.engines.evaluate import Standing
from idiolect.engines.plan import Measure, Options
from idiolect.engines.run import Run
from idiolect.engines.simulate import open_session
from idiolect.experiments.announce import announce
from idiolect.experiments.build import Built, problem_constants
from idiolect.experiments.candidates import LOCAL
from idiolect.experiments.choice import write_choices
from idiolect.experiments.compilation import remembered
from idiolect.experiments.gains import judge_methods
from idiolect.experiments.known_optimum import optimum_measure
from idiolect.experiments.lanes import for_rows
from idiolect.experiments.outcome import client_rows, history_rows, method_summary, unscored, validation_mean
from idiolect.experiments.predictions import write_predictions
from idiolect.experiments.prepare import Prepared, prepare
from idiolect.experiments.privacy import privacy_statement
from idiolect.experiments.protection import out_of_reach, write_epsilon
from idiolect.experiments.refit import (
    shorten_steps,
    step_notes,
    take_evidence,
    take_over,
    tuning_file,
    with_validation_rows,
)
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import MethodSpec, Resolved, Spec, resumed
from idiolect.experiments.sweeping import chosen_settings
from idiolect.experiments.trained import Trained
from idiolect.experiments.tuning import NOTHING_TO_CHOOSE_ON, Tuned, from_json, is_searched, is_tuned, tune
from idiolect.experiments.units import restore_units
from idiolect.experiments.work import Overall, Progress, Work
from idiolect.metrics.scores import SCORES
from idiolect.record.schema import RunSummary

if TYPE_CHECKING:
    import pyarrow as pa

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
        searched = sum(is_searched(prepared, method) for method in prepared.methods)
        work = Work(progress, overall, len(prepared.methods), searched)
        training = _Training(prepared, folder, work, tell, Budget(spec.tuning.minutes, len(prepared.methods)), spec)
        trained = [entry for group in _groups(prepared) for entry in training.train(group)]
        write_choices(folder, spec.name, trained, prepared.federation, prepared.scores[0])
        summary = _write(training.spec, prepared, folder, trained, warnings)
        return Executed(summary, trained, prepared.federation, path)


def _introduce(prepared: Prepared, warnings: list[str], theory: bool, tell: Say) -> None:
    """Say what is to be known before training, with `theory` also how it chose settings."""
    own = [note for ready in prepared.built for note in ready.notes if theory or note not in ready.theory]
    for text in (*prepared.notes(), prepared.reason, *own, *(f"Warning: {text}" for text in warnings)):
        tell(text)


def _check_methods(prepared: Prepared) -> list[str]:
    """Warnings about rows and methods; RequestError for a method that cannot be run on these rows."""
    spec, federation = prepared.spec, prepared.federation
    if federation.validation.counts.sum() == 0 and any(is_searched(prepared, method) for method in prepared.methods):
        raise RequestError(NOTHING_TO_CHOOSE_ON)
    prepared.check_demand()
    # a step chosen on validation rows needs no warning: it was tried
    given = [ready for method, ready in zip(prepared.methods, prepared.built) if not is_tuned(spec, method)]
    absent = [f"{method.label}: {text}" for method, text in zip(prepared.methods, prepared.absence) if text is not None]
    given_texts = (text for ready in given for text in ready.warnings)
    return [*federation.warnings, *out_of_reach(spec, federation), *given_texts, *absent]


Group = list[tuple[MethodSpec, Built]]


def _groups(prepared: Prepared) -> list[Group]:
    """Neighbours that differ in floats only share a program: they become lanes of one session."""
    methods = zip(prepared.methods, prepared.built)
    same = itertools.groupby(methods, key=lambda pair: jax.tree.structure(pair[1].algorithm))
    return [list(group) for _, group in same]


class Budget:
    """Seconds that are left for choosing, dealt evenly to the methods that are still to come."""

    def __init__(self, minutes: float | None, methods: int):
        self._ends = None if minutes is None else time.monotonic() + 60 * minutes
        self._left = methods

    def next(self) -> float | None:
        """What the next method may take to be tuned; the rest of its part is for the final fit."""
        left, self._left = self._left, self._left - 1
        # methods that took less than their part leave the rest to those that follow
        return None if self._ends is None else max(0.0, 0.8 * (self._ends - time.monotonic()) / max(left, 1))


class Ready(NamedTuple):
    """A method on its way to its final fit."""

    method: MethodSpec
    built: Built
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
    budget: Budget
    spec: Spec

    def train(self, group: Group) -> list[Trained]:
        """Methods of one program: choose their settings on validation rows if asked, then train them and all seeds."""
        choices: list[Tuned | None] = []
        for method, _ in group:
            choices.append(self._choose(method))
            if choices[-1] is not None:
                self.tell(f"{method.label}: {choices[-1].sentence}.")
        ready = [self._settle(method, built, choice) for (method, built), choice in zip(group, choices)]
        for one in ready:
            for text in step_notes({} if one.choice is None else one.choice.settings, one.settings):
                self.tell(f"{one.method.label}: {text}")
        # lanes of one session train for the same rounds
        alike = itertools.groupby(ready, key=lambda one: (one.rounds, jax.tree.structure(one.built.algorithm)))
        return [entry for _, same in alike for entry in self._train_together(list(same))]

    def _choose(self, method: MethodSpec) -> Tuned | None:
        """What is chosen on validation rows: read back where it was chosen before, or chosen now; None: nothing is."""
        # taken even by a method that chooses nothing: its part then goes to the others
        seconds = self.budget.next()
        if not is_searched(self.prepared, method):
            return None
        known = self._chosen_before(method)
        if known is not None:
            return known
        # methods that prepare a model on each client do it as training alone does best, if that was chosen before them
        local = next((one for one in self.prepared.methods if one.algorithm == LOCAL), None)
        alone = None if local is None else self._chosen_before(local)
        found = tune(self.prepared, method, self.work.stage(method.label, 0), seconds, alone)
        # kept at once: a run that is stopped later must not choose anew, and could choose otherwise
        self.folder.write_sealed(tuning_file(method.label), dataclasses.asdict(found))
        return found

    def _chosen_before(self, method: MethodSpec) -> Tuned | None:
        known = self.folder.read_sealed(tuning_file(method.label))
        return None if known is None else from_json(known)

    def _settle(self, method: MethodSpec, built: Built, choice: Tuned | None) -> Ready:
        """The method with what was chosen for it, now or when the run was started."""
        prepared, known = self.prepared, self.spec.resolved.get(method.label)
        chosen: dict[str, Any] = {}
        rounds = None
        if known is not None:
            chosen, rounds = known.tuned or {}, known.rounds
        elif choice is not None:
            rows, rounds = self._rows_to_fit(choice), choice.rounds
            same = rows is prepared.federation
            # a refit has more rows, and another curvature: a step at the edge of stability may be beyond it there
            curved = prepared.constants if same else problem_constants(prepared.client_loss, rows)
            chosen = shorten_steps(for_rows(choice.settings, choice.in_rows, rows, curved), prepared.constants, curved)
        if chosen:
            settled = dataclasses.replace(method, settings=method.settings | chosen)
            built = prepared.build(settled, None if known is None else known.chosen)
        return Ready(method, built, choice, chosen, self.spec.training.rounds if rounds is None else rounds)

    def _rows_to_fit(self, choice: Tuned | None) -> Federation:
        """Training rows, and with them those that have served to choose."""
        refit = choice is not None and self.spec.tuning.refit
        return with_validation_rows(self.prepared.federation) if refit else self.prepared.federation

    def _train_together(self, methods: list[Ready]) -> list[Trained]:
        """Train methods of one program and one number of rounds, and all seeds, as lanes of one session."""
        prepared, folder, spec, labels = self.prepared, self.folder, self.spec, [one.method.label for one in methods]
        federation = self._rows_to_fit(methods[0].choice)
        training = dataclasses.replace(spec.training, rounds=methods[0].rounds)
        # other programs round otherwise; a repeated or resumed run takes the one that was used
        known = spec.resolved.get(labels[0])
        if known is not None:
            training = dataclasses.replace(training, executor=known.executor, chunk=known.chunk, block=known.block)
            if training.devices == "auto":
                training = dataclasses.replace(training, devices=known.devices)
        algorithms = [one.built.algorithm for one in methods]
        measure = _measure(spec, labels, algorithms, federation, folder, prepared.synthetic)
        # method by method, all seeds of one side by side: runs are cut apart in this order below
        lanes, seeds = [one for one in algorithms for _ in spec.seeds], list(spec.seeds) * len(methods)
        shown = labels[0] if len(labels) == 1 else f"{labels[0].partition('[')[0]} x {len(labels)}"
        checkpoint = folder.path / "checkpoint" / safe_name(labels[0])
        options = Options(
            checkpoint=Checkpoint(checkpoint, spec.output.checkpoint_every, self.tell),
            resume=True,
            progress=self.work.stage(shown, len(methods)),
            choose_by=prepared.choose_by,
            measure=measure,
            select_last=spec.privacy.is_on,  # to choose among rounds by scores would read rows that no noise hides
            spent=[_agreement(one.built) for one in methods for _ in spec.seeds],
            memory=remembered(),
        )
        session = open_session(lanes, federation, training, seeds, prepared.scores, options)
        self._resolve(methods, session.training)
        try:
            runs = session.run()
        except DivergedError as error:
            if len(prepared.methods) == 1:
                raise DivergedError(f"{shown}: {error}") from None
            runs = session.finish()  # the other methods still deserve their answer; the table says what happened
        count = len(spec.seeds)
        return [self._finish(one, runs[n * count : (n + 1) * count]) for n, one in enumerate(methods)]

    def _resolve(self, methods: list[Ready], used: Training) -> None:
        """Write down what was chosen before it trains: a resumed run must use the same program."""
        resolved = {
            one.method.label: Resolved(
                used.executor,
                used.chunk,
                used.block,
                None if one.choice is None else one.rounds,
                one.settings or None,
                one.built.chosen or None,
                int(used.devices),
            )
            for one in methods
        }
        self.spec = dataclasses.replace(self.spec, resolved=self.spec.resolved | resolved)
        self.folder.write_spec(self.spec)

    def _finish(self, one: Ready, runs: list[Run]) -> Trained:
        """The trained method; its models are written, its record is in the table's units."""
        for run in runs:
            if one.choice is not None:
                take_evidence(run.recorder, one.choice, refitted=self.spec.tuning.refit)
            restore_units(run.recorder, self.prepared.federation)
            write_models(self.folder, self.spec.output.models, one.method.label, run, self.prepared.federation)
        if self.spec.privacy.is_on:
            write_epsilon(one.built.spending, runs)
        return Trained(one.method, runs, one.built.notes, one.choice, one.built.protected)


def _agreement(built: Built) -> Ledger:
    """What finding out who listens to whom has sent, once, before the first round."""
    if built.agreed is None:
        return Ledger()
    return Ledger(upload_bytes=built.agreed.upload_bytes, download_bytes=built.agreed.download_bytes)


def _measure(
    spec: Spec,
    labels: list[str],
    algorithms: list[Algorithm],
    federation: Federation,
    folder: RunFolder,
    synthetic: bool,
) -> Measure | None:
    """Every method against the optimum of its own objective: a problem made to be solved always, others on request."""
    if not (synthetic or spec.evaluation.optimum == "always") or spec.evaluation.optimum == "never":
        return None
    own: list[Callable[[Standing], dict[str, float]] | None] = []
    for label, algorithm in zip(labels, algorithms):
        if isinstance(algorithm, PredictsWithMore):  # what it predicts with is no point of its objective
            own.append(None)
            continue
        cache = folder.path / "optima" / f"{safe_name(label)}.npz"
        measure = optimum_measure(algorithm.objective, federation.train, cache)
        if measure is None and spec.evaluation.optimum == "always":
            name = type(algorithm.objective).__name__
            raise RequestError(
                f'[evaluation] optimum = "always" needs a convex objective with an optimum, and {name} of {label} has '
                "none that is known here; give [model] l2 a value above 0, use a linear model, or leave it on auto."
            )
        own.append(measure)
    if not any(own):
        return None

    def measure_lane(lane: int, where: Standing) -> dict[str, float]:
        measure = own[lane // len(spec.seeds)]
        return {} if measure is None else measure(where)

    return measure_lane


def _write(
    spec: Spec, prepared: Prepared, folder: RunFolder, trained: list[Trained], warnings: list[str]
) -> RunSummary:
    federation, scores, choose_by = prepared.federation, prepared.scores, prepared.choose_by
    reached = {entry.method.label: validation_mean(entry, choose_by) for entry in trained}
    chosen = chosen_settings([entry.method for entry in trained], reached, SCORES[choose_by].higher_is_better)
    judged = judge_methods(trained, federation, scores[0], chosen, choose_by)
    announced = announce(trained, choose_by, chosen, federation.validation.counts)
    folder.write_table("history.parquet", history_rows(trained, spec))
    folder.write_table("clients.parquet", client_rows(trained, federation, scores, judged))
    left_out = write_predictions(folder, trained, federation, None if announced is None else announced.method)
    summary = RunSummary(
        name=spec.name,
        scores=scores,
        higher_is_better={name: SCORES[name].higher_is_better for name in scores},
        score_reason=prepared.reason,
        choose_by=choose_by,
        refit=spec.tuning.refit,
        announced=announced,
        notes=(*prepared.notes(), *(note for entry in trained for note in entry.notes), *left_out),
        warnings=tuple(warnings),
        unscored=unscored(trained, federation, scores),
        methods=tuple(
            dataclasses.replace(
                method_summary(entry, judged[entry.method.label], federation, scores, spec.evaluation.flops),
                choosing_mean=reached[entry.method.label],
                chosen=chosen[entry.method.label],
            )
            for entry in trained
        ),
    )
    if spec.output.models != "none":
        folder.write_names(federation)
    folder.complete("summary.json", summary, privacy_statement(prepared, trained), spec.evaluation.time_model)
    return summary


def write_models(folder: RunFolder, kept: str, label: str, run: Run, federation: Federation) -> None:
    """The selected round's models; personal ones stacked over clients, in the order of clients.json."""
    if kept == "none":
        return
    name = f"{safe_name(label)}-seed{run.seed}"
    shared = run.shared_model(run.selected)
    if shared is not None:
        folder.write_model(f"{name}/shared", shared)
    if kept == "all" or (kept == "auto" and federation.clients <= MOST_KEPT):
        folder.write_model(f"{name}/personal", run.personal_models(run.selected))
