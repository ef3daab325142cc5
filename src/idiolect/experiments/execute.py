# SPDX-License-Identifier: Apache-2.0
"""Run a spec: build, tune, train every method, and write the run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from idiolect.accounting.time_model import find_time_model
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import DivergedError, RequestError
from idiolect.core.kinds import PredictsWithMore
from idiolect.data.federation import Federation
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.demand import check_demand
from idiolect.engines.door import check_fit, check_participation, participation_of, run_precision
from idiolect.engines.evaluate import Standing
from idiolect.engines.session import Measure
from idiolect.engines.simulate import Session
from idiolect.experiments.announce import announce
from idiolect.experiments.build import Built, problem_constants
from idiolect.experiments.candidates import LOCAL
from idiolect.experiments.choice import write_choices
from idiolect.experiments.evidence import take_evidence, take_over, tuning_file
from idiolect.experiments.gains import judge_methods
from idiolect.experiments.known_optimum import optimum_measure
from idiolect.experiments.lanes import for_rows
from idiolect.experiments.outcome import client_rows, history_rows, method_summary, unscored, validation_mean
from idiolect.experiments.predictions import write_predictions
from idiolect.experiments.prepare import Prepared, prepare
from idiolect.experiments.privacy import privacy_statement
from idiolect.experiments.refit import shorten_steps, step_notes, with_validation_rows
from idiolect.experiments.run_folder import RunFolder, machine_facts, safe_name
from idiolect.experiments.same_rows import check_rows, note_rows
from idiolect.experiments.spec import MethodSpec, Resolved, Spec, resumed
from idiolect.experiments.sweeping import chosen_settings
from idiolect.experiments.trained import Trained
from idiolect.experiments.tuning import NOTHING_TO_CHOOSE_ON, Tuned, from_json, is_searched, is_tuned, tune
from idiolect.experiments.units import restore_units
from idiolect.metrics.scores import SCORES
from idiolect.record.privacy import STATEMENT
from idiolect.record.schema import RunSummary

if TYPE_CHECKING:
    import pyarrow as pa

MOST_KEPT = 1000  # clients whose own models a run folder keeps unasked; more could fill a disk

Progress = Callable[[str, int, int], None]  # method label, rounds done, rounds in all
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
    `remarks` are further notes.
    """
    folder = RunFolder(path)
    folder.check(resume)
    if resume:
        spec = resumed(folder.read_spec(), spec, path)
    tell = say or (lambda text: None)
    find_time_model(spec.evaluation.time_model)
    prepared = prepare(spec, rows)
    prepared = dataclasses.replace(prepared, left_out=(*prepared.left_out, *remarks))
    federation = prepared.federation
    methods = prepared.methods
    built = [prepared.build(method, _chosen_before(spec, method)) for method in methods]
    warnings = _check_methods(prepared, built)
    if resume:
        check_rows(folder, federation)
    with folder.open(resume):
        if not resume:
            note_rows(folder, federation)
        folder.write_spec(spec)
        if repeats is not None and take_over(spec, repeats, folder):
            tell(f"Settings are those that were chosen for the run in {repeats}.")
        own = [note for ready in built for note in ready.notes if theory or note not in ready.theory]
        for text in (*prepared.notes(), prepared.reason, *own):
            tell(text)
        for text in warnings:
            tell(f"Warning: {text}")
        trained: list[Trained] = []
        budget = Budget(spec.tuning.minutes, len(methods))
        for group in _groups(list(zip(methods, built))):
            spec, entries = _train(prepared, spec, group, folder, progress, tell, budget)
            trained += entries
        write_choices(folder, spec.name, trained, federation, prepared.scores[0])
        summary = _write(spec, prepared, folder, trained, warnings)
        return Executed(summary, trained, federation, path)


def _check_methods(prepared: Prepared, built: list[Built]) -> list[str]:
    """Warnings about rows and methods; RequestError for a method that cannot be run on these rows."""
    spec, federation = prepared.spec, prepared.federation
    if federation.validation.counts.sum() == 0 and any(is_searched(prepared, method) for method in prepared.methods):
        raise RequestError(NOTHING_TO_CHOOSE_ON)
    # a step chosen on validation rows needs no warning: it was tried
    given = [ready for method, ready in zip(prepared.methods, built) if not is_tuned(spec, method)]
    warnings = [*federation.warnings, *(text for ready in given for text in ready.warnings)]
    warnings += _absence_warnings(prepared, built)
    with run_precision(spec.training.precision):
        for method, ready in zip(prepared.methods, built):
            check_fit(ready.algorithm, federation)
            with named(method.label):
                check_demand(ready.algorithm, federation.train, spec.training, len(spec.seeds))
    return warnings


@contextlib.contextmanager
def named(label: str) -> Iterator[None]:
    """A refusal inside begins with the method that it is about."""
    try:
        yield
    except RequestError as error:
        raise RequestError(f"{label}: {error}") from None


def _absence_warnings(prepared: Prepared, built: list[Built]) -> list[str]:
    """What theory does not cover when clients are absent; refused, before anything is written, where that is all."""
    training, clients = prepared.spec.training, prepared.federation.clients
    sentences = [
        check_participation(ready.algorithm, participation_of(ready.algorithm, training, clients).chance)
        for ready in built
    ]
    return [f"{method.label}: {text}" for method, text in zip(prepared.methods, sentences) if text is not None]


Group = list[tuple[MethodSpec, Built]]


def _groups(methods: Group) -> list[Group]:
    """Neighbours that differ in floats only share a program: they become lanes of one session."""
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
        return None if self._ends is None else max(0.0, 0.8 * (self._ends - time.monotonic()) / max(left, 1))


def _train(
    prepared: Prepared,
    spec: Spec,
    group: Group,
    folder: RunFolder,
    progress: Progress | None,
    tell: Say,
    budget: Budget,
) -> tuple[Spec, list[Trained]]:
    """Methods of one program: choose their settings on validation rows if asked, then train them and all seeds."""
    choices: list[Tuned | None] = []
    for method, _ in group:
        choices.append(_choice(prepared, method, folder, progress, budget))
        if choices[-1] is not None:
            tell(f"{method.label}: {choices[-1].sentence}.")
    entries: list[Trained] = []
    ready = [_ready(prepared, spec, method, built, choice) for (method, built), choice in zip(group, choices)]
    for one in ready:
        for text in step_notes({} if one.choice is None else one.choice.settings, one.settings):
            tell(f"{one.method.label}: {text}")
    # lanes of one session train for the same rounds
    for _, same in itertools.groupby(ready, key=lambda one: (one.rounds, jax.tree.structure(one.built.algorithm))):
        spec, more = _train_together(prepared, spec, list(same), folder, progress, tell)
        entries += more
    return spec, entries


def _choice(
    prepared: Prepared, method: MethodSpec, folder: RunFolder, progress: Progress | None, budget: Budget
) -> Tuned | None:
    """What is chosen on validation rows: read back where it was chosen before, or chosen now; None: nothing is."""
    seconds = budget.next()
    if not is_searched(prepared, method):
        return None
    name = tuning_file(method.label)
    known = folder.read_sealed(name)
    if known is not None:
        return from_json(known)
    report = _progress_of(progress, f"{method.label} (choosing)")
    found = tune(prepared, method, report, seconds, _alone(prepared, folder))
    folder.write_sealed(name, dataclasses.asdict(found))
    return found


def _alone(prepared: Prepared, folder: RunFolder) -> Tuned | None:
    """What was chosen for training alone, if that came before."""
    local = next((method for method in prepared.methods if method.algorithm == LOCAL), None)
    known = None if local is None else folder.read_sealed(tuning_file(local.label))
    return None if known is None else from_json(known)


class Ready(NamedTuple):
    """A method on its way to its final fit."""

    method: MethodSpec
    built: Built
    choice: Tuned | None
    settings: dict[str, Any]  # chosen on validation rows, as this fit takes them
    rounds: int


def _ready(prepared: Prepared, spec: Spec, method: MethodSpec, built: Built, choice: Tuned | None) -> Ready:
    """The method with what was chosen for it, now or when the run was started."""
    known = spec.resolved.get(method.label)
    if known is not None:
        chosen, rounds = known.tuned or {}, known.rounds
    elif choice is not None:
        rows, rounds = _rows_to_fit(prepared, choice), choice.rounds
        curved = prepared.constants if rows is prepared.federation else problem_constants(prepared.client_loss, rows)
        chosen = shorten_steps(for_rows(choice.settings, choice.in_rows, rows), prepared.constants, curved)
    else:
        chosen, rounds = {}, None
    if chosen:
        settled = dataclasses.replace(method, settings=method.settings | chosen)
        built = prepared.build(settled, _chosen_before(spec, method))
    return Ready(method, built, choice, chosen, spec.training.rounds if rounds is None else rounds)


def _rows_to_fit(prepared: Prepared, choice: Tuned | None) -> Federation:
    """Training rows, and with them those that have served to choose."""
    refit = choice is not None and prepared.spec.tuning.refit
    return with_validation_rows(prepared.federation) if refit else prepared.federation


def _train_together(
    prepared: Prepared,
    spec: Spec,
    methods: list[Ready],
    folder: RunFolder,
    progress: Progress | None,
    tell: Say,
) -> tuple[Spec, list[Trained]]:
    """Train methods of one program and one number of rounds, and all seeds, as lanes of one session."""
    labels = [one.method.label for one in methods]
    shown = labels[0] if len(labels) == 1 else f"{labels[0].partition('[')[0]} x {len(labels)}"
    federation = _rows_to_fit(prepared, methods[0].choice)
    training = dataclasses.replace(spec.training, rounds=methods[0].rounds)
    known = spec.resolved.get(labels[0])
    if known is not None:
        training = dataclasses.replace(training, executor=known.executor, chunk=known.chunk, block=known.block)
    algorithms = [one.built.algorithm for one in methods]
    lanes = [algorithm for algorithm in algorithms for _ in spec.seeds]
    measure = _measure(spec, labels, algorithms, federation, folder, prepared.synthetic)
    seeds = list(spec.seeds) * len(methods)
    session = Session(lanes, federation, training, seeds, prepared.scores, None, measure, choose_by=prepared.choose_by)
    _charge_agreement(session, [one.built for one in methods for _ in spec.seeds])
    chosen = session.training
    resolved = {
        one.method.label: Resolved(
            chosen.executor,
            chosen.chunk,
            chosen.block,
            None if one.choice is None else one.rounds,
            one.settings or None,
            one.built.chosen or None,
        )
        for one in methods
    }
    spec = dataclasses.replace(spec, resolved=spec.resolved | resolved)
    folder.write_spec(spec)  # before training: a resumed run must use the same program
    checkpoint = Checkpoint(folder.path / "checkpoint" / safe_name(labels[0]), spec.output.checkpoint_every, tell)
    try:
        runs = session.run(checkpoint, True, _progress_of(progress, shown))
    except DivergedError as error:
        if len(prepared.methods) == 1:
            raise DivergedError(f"{shown}: {error}") from None
        runs = session.finish()  # the other methods still deserve their answer; the table says what happened
    count, entries = len(spec.seeds), []
    for place, (method, built, choice, _, _) in enumerate(methods):
        own = runs[place * count : (place + 1) * count]
        for run in own:
            if choice is not None:
                take_evidence(run.recorder, choice, refitted=spec.tuning.refit)
            restore_units(run.recorder, prepared.federation)
        sentence = None if choice is None else choice.sentence
        entries.append(Trained(method, own, built.notes, sentence, choice))
    return spec, entries


def _charge_agreement(session: Session, built: list[Built]) -> None:
    """What finding out who listens to whom has sent, once, before the first round."""
    for recorder, ready in zip(session.recorders, built):
        if ready.agreed is not None:
            recorder.ledger = recorder.ledger.charge(
                upload_bytes=ready.agreed.upload_bytes, download_bytes=ready.agreed.download_bytes
            )


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


def _chosen_before(spec: Spec, method: MethodSpec) -> dict[str, Any] | None:
    """What theory chose when this run was started; None for a new run."""
    known = spec.resolved.get(method.label)
    return None if known is None else known.chosen


def _progress_of(progress: Progress | None, label: str) -> Callable[[int, int], None]:
    return lambda done, total: None if progress is None else progress(label, done, total)


def _write(
    spec: Spec, prepared: Prepared, folder: RunFolder, trained: list[Trained], warnings: list[str]
) -> RunSummary:
    federation, scores, choose_by = prepared.federation, prepared.scores, prepared.choose_by
    reached = {entry.method.label: validation_mean(entry, choose_by) for entry in trained}
    chosen = chosen_settings([entry.method for entry in trained], reached, SCORES[choose_by].higher_is_better)
    judged = judge_methods(trained, federation, scores[0], chosen)
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
    _write_models(spec, folder, trained, federation)
    folder.write_json("machine.json", machine_facts(spec.evaluation.time_model))
    folder.write_json(STATEMENT, privacy_statement(prepared, trained))
    folder.write_json("summary.json", summary)
    folder.finish()
    return summary


def write_names(folder: RunFolder, federation: Federation) -> None:
    """What a reader of models needs: the order of clients, and how a table becomes inputs."""
    folder.write_json("models/clients.json", list(federation.names))
    if federation.preprocessing is not None:
        folder.write_text("models/preprocessing.json", federation.preprocessing.to_json())


def _write_models(spec: Spec, folder: RunFolder, trained: list[Trained], federation: Federation) -> None:
    """The selected round's models; personal ones stacked over clients, in the order of clients.json."""
    if spec.output.models == "none":
        return
    write_names(folder, federation)
    for entry in trained:
        for run in entry.runs:
            name = f"{safe_name(entry.method.label)}-seed{run.seed}"
            shared = run.shared_model(run.selected)
            if shared is not None:
                folder.write_model(f"{name}/shared", shared)
            if spec.output.models == "all" or (spec.output.models == "auto" and federation.clients <= MOST_KEPT):
                folder.write_model(f"{name}/personal", run.personal_models(run.selected))
