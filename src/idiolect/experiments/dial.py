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

import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.algorithms import find
from idiolect.core.checks import DivergedError, RequestError, nearest
from idiolect.data.federation import Federation
from idiolect.engines.cohorts import Participation
from idiolect.engines.door import check_participation, check_training
from idiolect.engines.run import Run
from idiolect.engines.simulate import Session
from idiolect.experiments.build import Built, build_client_loss, build_method, choose_scores, problem_constants
from idiolect.experiments.execute import Progress, Say, is_tuned
from idiolect.experiments.run_folder import SCHEMA, RunFolder, machine_facts
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import MethodSpec, Spec, own_settings
from idiolect.experiments.units import restore_units
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import summarise
from idiolect.objectives import OBJECTIVES

# What can be dialled, and for whom. The largest value of either is the least personal: alpha = 1 is one model for all,
# a large penalty holds every personal model at the shared one.
DIALS = {"personalization": ("flix",), "penalty": ("mx2", "mt2")}
METHODS = {"personalization": "scafflix", "penalty": "acd_pfl"}  # who walks, unless told: exact, steps from theory
MOST = 200  # values; more is almost surely a slip


class Stretch(NamedTuple):
    """One value of the path: the run that reached it, and what it alone cost."""

    value: float
    run: Run
    cost: Ledger


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
    progress: Progress | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Train `training.rounds` rounds at every value in turn, each from where the last ended; leave a run folder."""
    folder = RunFolder(path)
    folder.check(resume=False)
    method = _method(spec, setting, label)
    _check_values(setting, values)
    _check_one_path(spec, method)
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
    warnings = _warnings(spec, built, federation.clients)
    folder.open(resume=False)
    notes = [*federation.describe(), *federation.notes, *dict.fromkeys(text for ready in built for text in ready.notes)]
    for text in (*notes, reason, *(f"Warning: {text}" for text in warnings)):
        tell(text)
    stretches = _train(spec, method, setting, values, built, federation, scores, progress)
    found = _found(spec, method, setting, stretches, federation, scores)
    found |= {"score_reason": reason, "notes": notes, "warnings": warnings}
    folder.write_spec(dataclasses.replace(spec, methods=(method,)))
    folder.write_table("dial.parquet", _client_rows(stretches, found, federation, scores[0]))
    folder.write_json("machine.json", machine_facts(spec.evaluation.time_model))
    folder.write_json("dial.json", found)
    folder.finish()
    return found


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
    fitting = [method for method in asked if setting in _objective_settings(method)]
    if not fitting:
        raise RequestError(
            f"--setting {setting} needs a method on the objective {' or '.join(DIALS[setting])}, and "
            f"{', '.join(method.label for method in asked)} has none; use {METHODS[setting]}, for example."
        )
    if len(fitting) > 1:
        names = ", ".join(method.label for method in fitting)
        raise RequestError(f"A dial walks with one method, and {names} all have {setting}; choose with --method LABEL.")
    return fitting[0]


def _objective_settings(method: MethodSpec) -> list[str]:
    name = method.objective or find(method.algorithm).objective
    return own_settings(OBJECTIVES[name]) if name in OBJECTIVES else []


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
    if len(spec.seeds) > 1:
        raise RequestError(f"A dial walks one path, with one seed, got seeds {list(spec.seeds)}; give one of them.")
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
    chance = Participation(clients, spec.training.cohort or clients, spec.training.dropout).chance
    absent = [check_participation(ready.algorithm, chance) for ready in built[:1]]
    return [*dict.fromkeys(text for ready in built for text in ready.warnings), *(text for text in absent if text)]


def _train(
    spec: Spec,
    method: MethodSpec,
    setting: str,
    values: Sequence[float],
    built: list[Built],
    federation: Federation,
    scores: tuple[str, ...],
    progress: Progress | None,
) -> list[Stretch]:
    """The path: every session goes on after the one before."""
    stretches: list[Stretch] = []
    session: Session | None = None
    lengths = [0 if _needs_nobody(setting, value) else spec.training.rounds for value in values]
    training = spec.training

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(method.label, done, sum(lengths))

    for place, (value, ready) in enumerate(zip(values, built)):
        training = dataclasses.replace(training, rounds=sum(lengths[: place + 1]))
        session = Session([ready.algorithm], federation, training, list(spec.seeds), scores, None, after=session)
        if lengths[place]:
            training = session.training  # what `auto` chose at first holds for the whole path
        try:
            (run,) = session.run(progress=report)
        except DivergedError as error:
            raise DivergedError(f"{method.label} at {setting} = {value:g}: {error}") from None
        restore_units(run.recorder, federation)
        stretches.append(Stretch(value, run, run.ledger))
    return stretches


def _needs_nobody(setting: str, value: float) -> bool:
    """alpha = 0: the personal model is x*_m, whatever the others do, so that no round is spent."""
    return setting == "personalization" and value == 0


def choose(validation: np.ndarray, values: Sequence[float], higher_is_better: bool) -> tuple[np.ndarray, np.ndarray]:
    """(place of each client's value, whether it is the client's own choice) from scores of shape (values, clients).

    Ties go to the least personal value. A client without a score takes the value with the best mean over the others.
    """
    order = np.argsort([-value for value in values], kind="stable")  # least personal first: argmax takes the first
    oriented = (1 if higher_is_better else -1) * np.asarray(validation, float)[order]
    unknown = np.isnan(oriented)
    scored = np.where(unknown, -np.inf, oriented)
    own = ~unknown.all(axis=0)
    common = 0
    if own.any():
        common = int(np.argmax(np.mean(scored[:, own], axis=1)))
    return order[np.where(own, np.argmax(scored, axis=0), common)], own


def _scores(stretches: list[Stretch], split: str, score: str) -> np.ndarray:
    """(values, clients): the personal models after the last round of every stretch."""
    return np.asarray([stretch.run.recorder.last[split]["personal"][score] for stretch in stretches], float)


def _found(
    spec: Spec,
    method: MethodSpec,
    setting: str,
    stretches: list[Stretch],
    federation: Federation,
    scores: tuple[str, ...],
) -> dict[str, Any]:
    """dial.json."""
    score, values = scores[0], [stretch.value for stretch in stretches]
    higher = SCORES[score].higher_is_better
    validation, test = (_scores(stretches, split, score) for split in ("validation", "test"))
    if np.isnan(validation).all():
        raise RequestError(
            f"No value can be chosen: {score} is undefined on every client's validation rows; choose another in "
            "[evaluation] scores, or give [data] validation a larger share."
        )
    chosen, own = choose(validation, values, higher)
    picked = [scored[chosen, np.arange(federation.clients)] for scored in (validation, test)]
    entries: list[dict[str, Any]] = []
    total = Ledger()
    for place, stretch in enumerate(stretches):
        total = total + stretch.cost
        entries.append(
            {
                "value": stretch.value,
                "rounds": stretch.cost.rounds,
                "validation": _summary(validation[place], higher) | {"clients": validation[place].tolist()},
                "test": _summary(test[place], higher) | {"clients": test[place].tolist()},
                "chosen_by": int((chosen == place).sum()),
                "spent": _price(stretch.cost),
                "spent_so_far": _price(total),
            }
        )
    oriented = [(1 if higher else -1) * entry["validation"]["mean"] for entry in entries]
    best = max(range(len(values)), key=lambda place: (_or_least(oriented[place]), values[place]))
    return {
        "schema": SCHEMA,
        "kind": "dial",
        "name": spec.name,
        "method": method.label,
        "algorithm": method.algorithm,
        "objective": method.objective or find(method.algorithm).objective,
        "setting": setting,
        "seed": spec.seeds[0],
        "score": score,
        "higher_is_better": higher,
        "clients": list(federation.names),
        "values": entries,
        "best_fixed": values[best],
        "chosen": {
            "values": [values[place] for place in chosen],
            "own": own.tolist(),
            "validation": _summary(picked[0], higher) | {"clients": picked[0].tolist()},
            "test": _summary(picked[1], higher) | {"clients": picked[1].tolist()},
        },
    }


def _summary(values: np.ndarray, higher_is_better: bool) -> dict[str, float]:
    summary = summarise(values, higher_is_better)
    return {"mean": float(summary.mean), "worst_decile": float(summary.worst_decile)}


def _price(ledger: Ledger) -> dict[str, int]:
    return ledger.to_dict() | {"total_bytes": ledger.total_bytes, "gradients": ledger.gradients}


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _client_rows(
    stretches: list[Stretch], found: dict[str, Any], federation: Federation, score: str
) -> list[dict[str, Any]]:
    """dial.parquet: one row per value and client."""
    validation, test = (_scores(stretches, split, score) for split in ("validation", "test"))
    rows = []
    for place, stretch in enumerate(stretches):
        for client, name in enumerate(federation.names):
            rows.append(
                {
                    "client": name,
                    "value": stretch.value,
                    "chosen": found["chosen"]["values"][client] == stretch.value,
                    "own_choice": found["chosen"]["own"][client],
                    "validation": float(validation[place, client]),
                    "test": float(test[place, client]),
                }
                | {f"{split}_rows": int(getattr(federation, split).counts[client]) for split in _SPLITS}
            )
    return rows


_SPLITS = ("train", "validation", "test")
