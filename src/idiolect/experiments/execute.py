# SPDX-License-Identifier: Apache-2.0
"""Run a spec: build, tune, train every method, and write the run folder."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from idiolect.accounting.time_model import find_time_model
from idiolect.algorithms import find
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import DivergedError, RequestError
from idiolect.data.federation import Federation
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.door import check_fit, check_participation, check_training, participation_of, run_precision
from idiolect.engines.evaluate import Standing
from idiolect.engines.session import Measure
from idiolect.engines.simulate import Session
from idiolect.experiments.build import (
    Built,
    build_client_loss,
    build_method,
    choose_scores,
    problem_constants,
)
from idiolect.experiments.choice import write_choices
from idiolect.experiments.collaboration import find_collaboration
from idiolect.experiments.finished import announced_method
from idiolect.experiments.known_optimum import optimum_measure
from idiolect.experiments.measured import measured
from idiolect.experiments.outcome import Trained, alone_for, client_rows, history_rows, method_summary, validation_mean
from idiolect.experiments.predictions import write_predictions
from idiolect.experiments.run_folder import SCHEMA, RunFolder, machine_facts, safe_name
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import MethodSpec, Resolved, Spec, resumed
from idiolect.experiments.sweeping import chosen_settings
from idiolect.experiments.units import restore_units
from idiolect.metrics.scores import SCORES

MOST_KEPT = 1000  # clients whose own models a run folder keeps unasked; more could fill a disk

Progress = Callable[[str, int, int], None]  # method label, rounds done, rounds in all
Say = Callable[[str], None]


@dataclasses.dataclass
class Executed:
    """A finished run: the summary that was written, and the trained methods."""

    summary: dict[str, Any]
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
) -> Executed:
    """Train every method of `spec` and leave a complete run folder at `path`.

    A wrong request is refused before the folder is made. Methods that are one method with several settings of its
    objective (a sweep) also leave what each client would choose among them, in choices.json.
    """
    folder = RunFolder(path)
    folder.check(resume)
    if resume:
        spec = resumed(folder.read_spec(), spec, path)
    tell = say or (lambda text: None)
    find_time_model(spec.evaluation.time_model)
    federation, problem = build_data(spec.data, spec.training.precision)
    check_training(spec.training, federation.clients)
    _check_comparable(federation, spec, synthetic=problem is not None)
    scores, reason = choose_scores(spec, federation)
    client_loss = build_client_loss(spec.model, federation, problem)
    constants = problem_constants(client_loss, federation)
    rows = float(np.mean(federation.train.counts))
    together = find_collaboration(spec.collaboration, federation)
    built = [
        build_method(
            method,
            client_loss,
            constants,
            federation.clients,
            rows,
            _chosen_before(spec, method),
            federation.names,
            together,
        )
        for method in spec.methods
    ]
    # a step chosen on validation rows needs no warning: it was tried
    given = [ready for method, ready in zip(spec.methods, built) if not is_tuned(spec, method)]
    warnings = [*federation.warnings, *(text for ready in given for text in ready.warnings)]
    warnings += _absence_warnings(spec, built, federation.clients)
    with run_precision(spec.training.precision):
        for ready in built:
            check_fit(ready.algorithm, federation)
    folder.open(resume)
    folder.write_spec(spec)
    for text in (*_data_notes(federation), reason, *(n for m in built for n in m.notes)):
        tell(text)
    for text in warnings:
        tell(f"Warning: {text}")
    trained: list[Trained] = []
    for group in _groups(list(zip(spec.methods, built))):
        spec, entries = _train(spec, group, federation, scores, folder, progress, problem is not None)
        trained += entries
        for entry in entries:
            if entry.tuned is not None:
                tell(f"{entry.method.label}: {entry.tuned}.")
    write_choices(folder, spec.name, trained, federation, scores[0])
    summary = _write(spec, folder, trained, federation, scores, reason, warnings)
    return Executed(summary, trained, federation, path)


def _check_comparable(federation: Federation, spec: Spec, synthetic: bool) -> None:
    """Without a test row anywhere nothing could be reported, without a validation row nothing chosen."""
    if federation.test.counts.sum() == 0 and not synthetic:
        raise RequestError(
            "No client has a test row, so no method could be judged. Give [data] test a larger share, "
            "or bring more rows per client."
        )
    if federation.validation.counts.sum() == 0 and any(is_tuned(spec, method) for method in spec.methods):
        raise RequestError(
            "No client has a validation row to choose a step size on. Give [data] validation a larger share, "
            "or one step_size instead of a list."
        )


def _absence_warnings(spec: Spec, built: list[Built], clients: int) -> list[str]:
    """What theory does not cover when clients are absent; refused, before anything is written, where that is all."""
    sentences = [
        check_participation(ready.algorithm, participation_of(ready.algorithm, spec.training, clients).chance)
        for ready in built
    ]
    return [f"{method.label}: {text}" for method, text in zip(spec.methods, sentences) if text is not None]


def _data_notes(federation: Federation) -> list[str]:
    notes = [*federation.describe(), *federation.notes]
    if federation.validation.counts.sum() == 0:
        notes.append("No client has a validation row, so the last round counts as the selected one.")
    return notes


Group = list[tuple[MethodSpec, Built]]


def _groups(methods: Group) -> list[Group]:
    """Neighbours that differ in floats only share a program: they become lanes of one session."""
    same = itertools.groupby(methods, key=lambda pair: jax.tree.structure(pair[1].algorithm))
    return [list(group) for _, group in same]


def _train(
    spec: Spec,
    group: Group,
    federation: Federation,
    scores: tuple[str, ...],
    folder: RunFolder,
    progress: Progress | None,
    synthetic: bool,
) -> tuple[Spec, list[Trained]]:
    """Methods of one program: choose their steps on validation rows if asked, then train all of them and all seeds."""
    labels = [method.label for method, _ in group]
    shown = labels[0] if len(labels) == 1 else f"{labels[0].partition('[')[0]} x {len(labels)}"
    report = _progress_of(progress, shown)
    algorithms, steps = [], []
    for method, ready in group:
        step_size = _step_size(spec, method, ready.algorithm, federation, scores, progress)
        steps.append(step_size)
        changed: dict[str, Any] = {} if step_size is None else {"step_size": step_size}
        algorithms.append(dataclasses.replace(ready.algorithm, **changed))
    training, known = spec.training, spec.resolved.get(labels[0])
    if known is not None:
        training = dataclasses.replace(training, executor=known.executor, chunk=known.chunk, block=known.block)
    lanes = [algorithm for algorithm in algorithms for _ in spec.seeds]
    measure = _measure(spec, labels, algorithms, federation, folder, synthetic)
    session = Session(lanes, federation, training, list(spec.seeds) * len(group), scores, None, measure)
    _charge_agreement(session, [ready for _, ready in group for _ in spec.seeds])
    chosen = session.training
    resolved = {
        method.label: Resolved(chosen.executor, chosen.chunk, chosen.block, step, ready.chosen or None)
        for (method, ready), step in zip(group, steps)
    }
    spec = dataclasses.replace(spec, resolved=spec.resolved | resolved)
    folder.write_spec(spec)  # before training: a resumed run must use the same program
    checkpoint = Checkpoint(folder.path / "checkpoint" / safe_name(labels[0]), spec.output.checkpoint_every)
    try:
        runs = session.run(checkpoint, True, report)
    except DivergedError as error:
        if len(spec.methods) == 1:
            raise DivergedError(f"{shown}: {error}") from None
        runs = session.finish()  # the other methods still deserve their answer; the table says what happened
    for run in runs:
        restore_units(run.recorder, federation)
    count = len(spec.seeds)
    entries = [
        Trained(method, runs[place * count : (place + 1) * count], ready.notes, _tuned(spec, step))
        for place, ((method, ready), step) in enumerate(zip(group, steps))
    ]
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
        if algorithm.more_than_parameters:  # what it predicts with is no point of its objective
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


def _tuned(spec: Spec, step_size: float | None) -> str | None:
    if step_size is None:
        return None
    tried = ", ".join(f"{value:g}" for value in spec.tuning.step_size)
    sentence = f"step_size {step_size:g} chosen from {tried} on validation rows, seed {spec.seeds[0]}"
    edges = {max(spec.tuning.step_size): "largest", min(spec.tuning.step_size): "smallest"}
    if len(edges) > 1 and step_size in edges:
        sentence += f"; it is the {edges[step_size]} tried, so a wider list may find a better one"
    return sentence


def _step_size(
    spec: Spec,
    method: MethodSpec,
    algorithm: Algorithm,
    federation: Federation,
    scores: tuple[str, ...],
    progress: Progress | None,
) -> float | None:
    """The tuned step size: read back from a resolved spec, or chosen now; None: as the spec says."""
    known = spec.resolved.get(method.label)
    if known is not None:
        return known.step_size
    if not is_tuned(spec, method):
        return None
    report = _progress_of(progress, f"{method.label} (tuning)")
    return _tune(spec, method.label, algorithm, federation, scores, report)


def _chosen_before(spec: Spec, method: MethodSpec) -> dict[str, Any] | None:
    """What theory chose when this run was started; None for a new run."""
    known = spec.resolved.get(method.label)
    return None if known is None else known.chosen


def is_tuned(spec: Spec, method: MethodSpec) -> bool:
    """Whether the step is chosen on validation rows: not where it is stated, absent, or left to theory."""
    fields = {field.name: field for field in dataclasses.fields(find(method.algorithm).algorithm)}
    free = "step_size" in fields and not fields["step_size"].metadata.get("theory")
    return bool(spec.tuning.step_size) and free and "step_size" not in method.settings


def _progress_of(progress: Progress | None, label: str) -> Callable[[int, int], None]:
    return lambda done, total: None if progress is None else progress(label, done, total)


def _tune(
    spec: Spec,
    label: str,
    algorithm: Algorithm,
    federation: Federation,
    scores: tuple[str, ...],
    progress: Callable[[int, int], None],
) -> float:
    """The step size with the best validation score, all candidates trained as one batched program."""
    candidates = [dataclasses.replace(algorithm, step_size=value) for value in spec.tuning.step_size]  # type: ignore[call-arg]
    training = spec.training
    if training.executor.startswith("looped"):
        training = dataclasses.replace(training, executor="batched")
    seeds = [spec.seeds[0]] * len(candidates)
    session = Session(candidates, federation, training, seeds, scores, None)
    session.train(progress=progress)
    if all(recorder.diverged for recorder in session.recorders):
        raise DivergedError(
            f"{label}: {session.recorders[0].diverged}, and so with every step size of {spec.tuning.step_size}; "
            "try smaller ones."
        )
    reached = [[-np.inf] if recorder.diverged else recorder.best or [-np.inf] for recorder in session.recorders]
    if not np.isfinite([means[0] for means in reached]).any():
        raise RequestError(
            f"{label}: no step size of {spec.tuning.step_size} can be chosen, because {scores[0]} is undefined or "
            "infinite on every client's validation rows; choose another score in [evaluation] scores, or one step_size."
        )
    best = max(range(len(reached)), key=lambda place: reached[place])  # further scores break ties
    return spec.tuning.step_size[best]


def _write(
    spec: Spec,
    folder: RunFolder,
    trained: list[Trained],
    federation: Federation,
    scores: tuple[str, ...],
    reason: str,
    warnings: list[str],
) -> dict[str, Any]:
    higher = SCORES[scores[0]].higher_is_better
    chosen = chosen_settings({entry.method.label: validation_mean(entry, scores[0]) for entry in trained}, higher)
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "name": spec.name,
        "scores": list(scores),
        "higher_is_better": {name: SCORES[name].higher_is_better for name in scores},
        "score_reason": reason,
        "notes": [*_data_notes(federation), *(note for entry in trained for note in entry.notes)],
        "warnings": warnings,
        "methods": [
            method_summary(entry, alone_for(entry, trained, chosen), federation, scores, _objective_name(entry))
            | {"chosen": chosen[entry.method.label]}
            | measured(entry.runs, spec.evaluation.flops)
            for entry in trained
        ],
    }
    folder.write_table("history.parquet", history_rows(trained, spec))
    folder.write_table("clients.parquet", client_rows(trained, federation, scores, chosen))
    summary["notes"] += write_predictions(folder, trained, federation, announced_method(summary))
    _write_models(spec, folder, trained, federation)
    folder.write_json("machine.json", machine_facts(spec.evaluation.time_model))
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


def _objective_name(entry: Trained) -> str:
    return entry.method.objective or find(entry.method.algorithm).objective or "?"
