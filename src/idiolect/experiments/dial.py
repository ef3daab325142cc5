# SPDX-License-Identifier: Apache-2.0
"""The personalization dial: one setting walked along one warm-started path, its price, and each client's own choice.

The state after one value is the start of the next: a value costs only the stretch that leads to it, and what clients
prepare (x*_m of FLIX) is paid once. Clients choose their value on validation rows; test rows only judge.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from idiolect.core.checks import DivergedError, RequestError, nearest
from idiolect.data.federation import Federation
from idiolect.engines.door import check_participation, check_training, participation_of
from idiolect.engines.simulate import Checkpoint, Session
from idiolect.experiments.build import Built, build_client_loss, build_method, choose_scores, problem_constants
from idiolect.experiments.choice import Tried, client_rows, find_choice, objective_settings
from idiolect.experiments.execute import MOST_KEPT, Progress, Say, is_tuned, write_names
from idiolect.experiments.run_folder import RunFolder, machine_facts, safe_name
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import MethodSpec, Spec, resumed
from idiolect.experiments.units import restore_units

# What can be dialled, and for whom. The largest value of either is the least personal.
DIALS = {"personalization": ("flix",), "penalty": ("mx2", "mt2")}
METHODS = {"personalization": "scafflix", "penalty": "acd_pfl"}  # who walks, unless told: exact, steps from theory
MOST = 200  # values; more is almost surely a slip
REQUEST = "request.json"  # in the folder: what was asked, for a dial that is resumed


def parse_values(text: str) -> list[float]:
    """'1,0.5,0' as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"--values needs numbers such as 1,0.5,0.1,0, got {text!r}.") from None


def walk(
    spec: Spec,
    path: Path,
    setting: str,
    values: Sequence[float],
    *,
    label: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Train `training.rounds` rounds at every value in turn, each from where the last ended; leave a run folder.

    With `resume`, an interrupted dial goes on from its last checkpoint, to the same bits.
    """
    folder = RunFolder(path)
    folder.check(resume)
    method = _method(spec, setting, label)
    _check_values(setting, values)
    _check_one_path(spec, method)
    spec = dataclasses.replace(spec, methods=(method,))
    request = {"setting": setting, "values": list(values)}
    if resume:
        _check_same(folder, request)
        spec = resumed(folder.read_spec(), spec, path)
    tell = say or (lambda text: None)
    federation, problem = build_data(spec.data, spec.training.precision)
    check_training(spec.training, federation.clients)
    _check_rows(federation)
    scores, reason = choose_scores(spec, federation)
    client_loss = build_client_loss(spec.model, federation, problem)
    constants = problem_constants(client_loss, federation)
    rows = float(np.mean(federation.train.counts))
    built = [
        build_method(
            _at(method, setting, value), client_loss, constants, federation.clients, rows, None, federation.names
        )
        for value in values
    ]
    warnings = [*federation.warnings, *_warnings(spec, built, federation.clients)]
    folder.open(resume)
    folder.write_spec(spec)
    folder.write_json(REQUEST, request)
    notes = [*federation.describe(), *federation.notes, *dict.fromkeys(text for ready in built for text in ready.notes)]
    for text in (*notes, reason, *(f"Warning: {text}" for text in warnings)):
        tell(text)
    tried = _train(spec, method, setting, values, built, federation, scores, folder, progress)
    found = find_choice("dial", spec.name, method, setting, tried, federation, scores[0], "last")
    found |= {"score_reason": reason, "notes": notes, "warnings": warnings}
    folder.write_table("dial.parquet", client_rows(found, federation))
    _write_models(spec, folder, method, tried, found["chosen"]["places"], federation)
    folder.write_json("machine.json", machine_facts(spec.evaluation.time_model))
    folder.write_json("dial.json", found)
    folder.finish()
    return found


def _check_same(folder: RunFolder, request: dict[str, Any]) -> None:
    """An interrupted dial goes on with its own setting and values."""
    path = folder.path / REQUEST
    if not path.is_file():
        raise RequestError(f"The folder {folder.path} holds a run that is no dial; resume it with `idiolect run`.")
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored != request:
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
    doubled = next((value for value in values if list(values).count(value) > 1), None)
    if doubled is not None:
        raise RequestError(f"--values names {doubled:g} twice; give every value of {setting} once.")


def _check_one_path(spec: Spec, method: MethodSpec) -> None:
    if spec.training.rounds < 1:
        raise RequestError("training.rounds must be at least 1 for every value of a dial, got 0; give more.")
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
                f"No client has a {split} row to {purpose}. Give [data] {split} a larger share, "
                "or bring more rows per client."
            )


def _at(method: MethodSpec, setting: str, value: float) -> MethodSpec:
    return dataclasses.replace(method, settings=method.settings | {setting: value})


def _warnings(spec: Spec, built: list[Built], clients: int) -> list[str]:
    """What theory has to say about the settings, every sentence once, and about absent clients."""
    absent = dict.fromkeys(
        check_participation(ready.algorithm, participation_of(ready.algorithm, spec.training, clients).chance)
        for ready in built
    )
    return [*dict.fromkeys(text for ready in built for text in ready.warnings), *(text for text in absent if text)]


def _train(
    spec: Spec,
    method: MethodSpec,
    setting: str,
    values: Sequence[float],
    built: list[Built],
    federation: Federation,
    scores: tuple[str, ...],
    folder: RunFolder,
    progress: Progress | None,
) -> list[Tried]:
    """The path: every session goes on after the one before, all seeds as lanes of one program.

    A stretch that a checkpoint holds is read back instead of walked again.
    """
    tried: list[Tried] = []
    session: Session | None = None
    lengths = [0 if _needs_nobody(setting, value) else spec.training.rounds for value in values]
    training = spec.training

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(method.label, done, sum(lengths))

    for place, (value, ready) in enumerate(zip(values, built)):
        training = dataclasses.replace(training, rounds=sum(lengths[: place + 1]))
        lanes = [ready.algorithm] * len(spec.seeds)
        session = Session(lanes, federation, training, list(spec.seeds), scores, None, after=session)
        checkpoint = Checkpoint(folder.path / "checkpoint" / str(place), spec.output.checkpoint_every)
        try:
            runs = session.run(checkpoint, True, report)
        except DivergedError as error:
            raise DivergedError(f"{method.label} at {setting} = {value:g}: {error}") from None
        lost = next((run for run in runs if run.recorder.diverged), None)
        if lost is not None:
            raise DivergedError(
                f"{method.label} at {setting} = {value:g}, seed {lost.seed}: {lost.recorder.diverged}: its parameters "
                "are no longer finite. Use a smaller step size."
            )
        if lengths[place]:
            training = session.training  # what `auto` chose at first holds for the whole path
        for run in runs:
            restore_units(run.recorder, federation)
        tried.append(Tried(value, runs, -value))
    return tried


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
            models = [one.runs[lane].personal_models() for one in tried]
            own = jax.tree.map(lambda *leaves: np.stack(leaves)[chosen, np.arange(federation.clients)], *models)
            folder.write_model(f"{name}/personal", own)
        for one in tried if kept in ("shared", "all") else ():
            at = f"{name}/at-{one.value:g}"
            shared = one.runs[lane].shared_model()
            if shared is not None:
                folder.write_model(f"{at}/shared", shared)
            if kept == "all":
                folder.write_model(f"{at}/personal", one.runs[lane].personal_models())
