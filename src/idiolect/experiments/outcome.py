# SPDX-License-Identifier: Apache-2.0
"""From finished runs to answers: one row per client, one summary per method, who is helped and who is hurt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from idiolect.accounting.ledger import FIELDS, Ledger
from idiolect.accounting.time_model import find_time_model
from idiolect.algorithms import find
from idiolect.core.keys import Purpose, client_keys, host_generator, root_key
from idiolect.data.federation import Federation
from idiolect.engines.evaluate import KINDS
from idiolect.engines.simulate import Run
from idiolect.experiments.measured import mean_personalization
from idiolect.experiments.spec import MethodSpec, Spec
from idiolect.experiments.sweeping import split_label
from idiolect.experiments.tuning import Tuned
from idiolect.experiments.units import in_table_units, unit
from idiolect.metrics.intervals import Intervals, client_gains, verdicts
from idiolect.metrics.resampling import gain_interval
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import PARTS, bootstrap_interval, paired_gain, summarise

LOCAL = "local"  # the method every other is compared with


@dataclasses.dataclass
class Trained:
    """One method's runs, one per seed, and what was said about its settings."""

    method: MethodSpec
    runs: list[Run]
    notes: list[str]
    tuned: str | None = None
    choice: Tuned | None = None  # what was chosen on validation rows, and by what evidence


def history_rows(trained: list[Trained], spec: Spec) -> list[dict[str, Any]]:
    """history.parquet."""
    model = find_time_model(spec.evaluation.time_model)
    rows = []
    for entry in trained:
        for run in entry.runs:
            ledgers = [Ledger(**{name: row[name] for name in FIELDS}) for row in run.history]
            increments = [later - earlier for earlier, later in zip([Ledger(), *ledgers], ledgers)]
            slowest = np.diff([0, *(row["slowest_gradients"] for row in run.history)])
            cohort = run.session.participations[run.lane].cohort
            modelled = np.cumsum(model.history_seconds(increments, cohort, slowest))
            for row, seconds in zip(run.history, modelled):
                rows.append({"method": entry.method.label, "seed": run.seed, **row, "modelled_seconds": float(seconds)})
    return rows


def validation_mean(entry: Trained, score: str) -> float | None:
    """What settings are chosen by in a sweep: the personal models' mean on validation rows, at the selected round."""
    if any(run.recorder.diverged for run in entry.runs):
        return None
    recorded = [run.recorder.selected.get("validation", {}).get("personal", {}) for run in entry.runs]
    return _mean([named.get(score, []) for named in recorded])


def validation_scores(entry: Trained, score: str) -> np.ndarray:
    """Each client's score on validation rows at the selected round, a mean over seeds; not-a-number for none."""
    recorded = [run.recorder.selected.get("validation", {}).get("personal", {}).get(score) for run in entry.runs]
    return np.mean([np.asarray(values, np.float64) for values in recorded if values is not None], axis=0)


Chosen = Mapping[str, bool | None]


def alone_for(entry: Trained, trained: list[Trained], chosen: Chosen) -> Trained | None:
    """Training alone, to compare `entry` with: a sweep's chosen one, else one with the same settings, or the first.

    One that diverged only where all did.
    """
    candidates = [other for other in trained if other.method.algorithm == LOCAL]
    swept = split_label(entry.method.label)[1]
    best = [other for other in candidates if chosen[other.method.label]]
    same = [other for other in candidates if split_label(other.method.label)[1] == swept]
    ranked = sorted([*best, *same, *candidates], key=lambda other: any(run.recorder.diverged for run in other.runs))
    return next(iter(ranked), None)


def client_rows(
    trained: list[Trained], federation: Federation, scores: tuple[str, ...], chosen: Chosen
) -> list[dict[str, Any]]:
    """clients.parquet: every client's scores, its gain over training alone with an interval, and the verdict."""
    rows = []
    for entry in trained:
        reference = alone_for(entry, trained, chosen)
        alone = {} if reference is None else {run.seed: run for run in reference.runs}
        for run in entry.runs:
            rows += _run_rows(entry.method.label, run, alone.get(run.seed), federation, scores)
            rows += _new_client_rows(entry.method.label, run, federation, scores)
    return rows


def _run_rows(
    label: str, run: Run, alone: Run | None, federation: Federation, scores: tuple[str, ...]
) -> list[dict[str, Any]]:
    score = _answer(run, scores[0])
    local = _answer(alone, scores[0]) if alone is not None else np.full(len(score), np.nan)
    gain = _gains(run, alone, federation, scores[0]) if alone is not None else None
    verdict = [""] * len(score) if gain is None else _verdicts(gain)
    rows = []
    for client, name in enumerate(federation.names):
        row: dict[str, Any] = {"method": label, "seed": run.seed, "client": name, "held_out": False}
        row |= {f"{split}_rows": int(getattr(federation, split).counts[client]) for split in _SPLITS}
        row |= {"score": float(score[client]), "local_score": float(local[client])}
        for part in ("value", "low", "high"):
            column = "gain" if part == "value" else f"gain_{part}"
            row[column] = None if gain is None else float(getattr(gain, part)[client])
        row["verdict"] = verdict[client] or None
        row["traffic_bytes"] = run.recorder.client_bytes[client] if run.recorder.client_bytes else None
        for when, recorded in (("last", run.recorder.last), ("selected", run.recorder.selected)):
            for split, models in recorded.items():
                for model, named in models.items():
                    row |= {f"{split}_{model}_{key}_{when}": values[client] for key, values in named.items()}
        rows.append(row)
    return rows


_SPLITS = ("train", "validation", "test")


def _new_client_rows(label: str, run: Run, federation: Federation, scores: tuple[str, ...]) -> list[dict[str, Any]]:
    held_out = federation.held_out
    recorded = in_table_units(run.new_clients(), federation)
    if held_out is None or not recorded:
        return []
    rows = []
    for client, name in enumerate(held_out.names):
        row: dict[str, Any] = {"method": label, "seed": run.seed, "client": name, "held_out": True}
        row |= {f"{split}_rows": int(getattr(held_out, split).counts[client]) for split in _SPLITS}
        row["score"] = recorded["test"]["personal"][scores[0]][client]
        for split, models in recorded.items():
            for model, named in models.items():
                row |= {f"{split}_{model}_{key}_selected": values[client] for key, values in named.items()}
        rows.append(row)
    return rows


def _answer(run: Run, score: str) -> np.ndarray:
    """What a method gives each client: its personal model at the selected round, on test rows."""
    return np.asarray(run.recorder.selected["test"]["personal"][score], np.float64)


def _gains(run: Run, alone: Run, federation: Federation, name: str) -> Intervals:
    """Per client: gain over training alone, with an interval over the client's own test rows, which both models saw."""
    found = _recorded_gains(run, alone, federation, name)
    return Intervals(*(unit(name, federation) * part for part in found))


def _recorded_gains(run: Run, alone: Run, federation: Federation, name: str) -> Intervals:
    score, test = SCORES[name], federation.test
    ours = run.outputs(run.selected)["personal"]
    theirs = alone.outputs(alone.selected)["personal"]
    padded = test.pad(np.arange(test.clients), ours.shape[1])
    targets = jnp.asarray(padded.targets)
    mask = np.arange(ours.shape[1]) < padded.count[:, None]
    if score.per_row is not None:
        per_row = jax.vmap(score.per_row)
        candidate, reference = (np.asarray(per_row(jnp.asarray(answer), targets, mask)) for answer in (ours, theirs))
        return client_gains(candidate, reference, mask, score.higher_is_better, seed=run.seed)
    keys = client_keys(root_key(run.seed), Purpose.BOOTSTRAP, 0, jnp.arange(test.clients))

    def one(key: Any, a: Any, b: Any, targets: Any, real: Any) -> Any:
        return gain_interval(key, score.function, score.higher_is_better, a, b, targets, real)

    found = jax.jit(jax.vmap(one))(keys, ours, theirs, targets, jnp.asarray(mask))
    return Intervals(*(np.asarray(part, np.float64) for part in found))


def _verdicts(gain: Intervals) -> list[str]:
    plain = verdicts(gain)
    return ["same" if value == 0 and word == "unclear" else str(word) for value, word in zip(gain.value, plain)]


def method_summary(
    entry: Trained, alone: Trained | None, federation: Federation, scores: tuple[str, ...], objective: str
) -> dict[str, Any]:
    """One method's line in summary.json. Means are over clients, then over seeds."""
    primary = scores[0]
    higher = SCORES[primary].higher_is_better
    answers = [_answer(run, primary) for run in entry.runs]
    summaries = [summarise(answer, higher)._asdict() for answer in answers]
    seed_means = [float(summary["mean"]) for summary in summaries]
    ledgers = [run.ledger for run in entry.runs]
    line: dict[str, Any] = {
        "method": entry.method.label,
        "algorithm": entry.method.algorithm,
        "objective": objective,
        "summary": find(entry.method.algorithm).summary,
        "reference": find(entry.method.algorithm).reference,
        "seeds": [run.seed for run in entry.runs],
        "settings": _settings(entry.runs[0].algorithm),
        "score": {part: float(np.mean([summary[part] for summary in summaries])) for part in PARTS},
        "seed_means": seed_means,
        "interval": mean_interval(seed_means, answers[0], entry.runs[0].seed),
        "validation_mean": validation_mean(entry, primary),
        "shared_mean": _mean([run.recorder.selected["test"].get("shared", {}).get(primary, []) for run in entry.runs]),
        "last_mean": _mean([run.recorder.last["test"]["personal"][primary] for run in entry.runs]),
        **{name: _final(entry, name) for name in ("train_loss", "suboptimality", "distance_to_optimum")},
        "selected_rounds": [run.recorder.selected_round for run in entry.runs],
        "rounds": ledgers[0].rounds,
        "seconds": float(np.mean([run.history[-1]["seconds"] for run in entry.runs])),
        "new_clients": _new_clients_mean(entry, primary, federation),
        "diverged": next((run.recorder.diverged for run in entry.runs if run.recorder.diverged), None),
        "tuned": entry.tuned,
    }
    for name in FIELDS:
        if name != "rounds":
            line[name] = round(np.mean([getattr(ledger, name) for ledger in ledgers]))
    return line | _against_alone(entry, alone, answers, primary)


def _final(entry: Trained, name: str) -> float | None:
    """The mean over seeds of what the last record says; None where it was not measured."""
    values = [run.history[-1][name] for run in entry.runs if name in run.history[-1]]
    return float(np.mean(values)) if values else None


def _against_alone(entry: Trained, alone: Trained | None, answers: list[np.ndarray], primary: str) -> dict[str, Any]:
    if alone is None or alone is entry:
        return {"helped": None, "hurt": None, "same": None, "gain": None}
    # a client's seeds are not independent witnesses: its mean over seeds is one
    ours = np.mean(answers, axis=0)
    reference = np.mean([_answer(run, primary) for run in alone.runs], axis=0)
    gain = paired_gain(ours, reference, SCORES[primary].higher_is_better, seed=entry.runs[0].seed)
    return {
        "helped": float(gain.helped),
        "hurt": float(gain.hurt),
        "same": float(gain.same),
        "gain": {"mean": float(gain.mean), "low": float(gain.low), "high": float(gain.high)},
    }


def mean_interval(seed_means: list[float], answer: np.ndarray, seed: int) -> list[float]:
    """95 %: over seeds when there are several (Student's t), else a bootstrap over clients."""
    if len(seed_means) > 1:
        quantile = float(stats.t.ppf(0.975, len(seed_means) - 1))
        half = quantile * float(np.std(seed_means, ddof=1)) / len(seed_means) ** 0.5
        return [float(np.mean(seed_means)) - half, float(np.mean(seed_means)) + half]
    present = answer[~np.isnan(answer)]
    if present.size == 0:
        return []
    return [float(end) for end in bootstrap_interval(present, host_generator(seed, Purpose.BOOTSTRAP), 2000, 0.95)]


def _mean(answers: list[list[float]]) -> float | None:
    """Mean over the clients that have a score, then over seeds; None where no client has one."""
    known = [[value for value in answer if not np.isnan(value)] for answer in answers]
    return float(np.mean([np.mean(values) for values in known])) if all(known) else None


def _new_clients_mean(entry: Trained, primary: str, federation: Federation) -> dict[str, Any] | None:
    """Of clients that never trained: both models' mean score, and before against after adaptation."""
    recorded = [in_table_units(run.new_clients(), federation).get("test", {}) for run in entry.runs]
    means = {kind: _mean([scores.get(kind, {}).get(primary, []) for scores in recorded]) for kind in KINDS}
    if means["personal"] is None:
        return None
    adapted = mean_personalization([run.personalization("new_clients") for run in entry.runs])
    return {"mean": means["personal"], "shared_mean": means["shared"], "personalization": adapted}


def _settings(algorithm: Any) -> dict[str, Any]:
    settings = {}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if field.name == "objective" or value is None:
            continue
        if hasattr(value, "dtype"):
            settings[field.name] = float(f"{float(value):.7g}") if np.ndim(value) == 0 else np.asarray(value).tolist()
        elif isinstance(value, int | float | str | bool):
            settings[field.name] = value
        elif isinstance(value, tuple) and all(isinstance(part, int | float | str) for part in value):
            settings[field.name] = list(value)
    return settings
