# SPDX-License-Identifier: Apache-2.0
"""From finished runs to answers: one row per client, one summary per method, who is helped and who is hurt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from idiolect.accounting.ledger import FIELDS, Ledger
from idiolect.accounting.time_model import find_time_model
from idiolect.algorithms import find
from idiolect.data.federation import Federation
from idiolect.engines.evaluate import KINDS
from idiolect.engines.simulate import Run
from idiolect.experiments.gains import Against, Judged
from idiolect.experiments.measured import mean_personalization, mean_routing
from idiolect.experiments.spec import Spec
from idiolect.experiments.trained import Trained, answer, mean_answer
from idiolect.experiments.units import in_table_units
from idiolect.metrics.paired import Intervals
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import PARTS, gains, paired_gain, student_interval, summarise
from idiolect.metrics.summary import Gain as PairedGain
from idiolect.metrics.verdicts import VERDICTS
from idiolect.record.schema import (
    Flops,
    Gain,
    MethodSummary,
    NewClients,
    OtherScore,
    Scores,
    Storage,
    Unscored,
)

__all__ = ["Trained", "client_rows", "history_rows", "mean_interval", "method_summary", "unscored", "validation_mean"]

NAMED = 10  # clients without a score that are named; more are counted


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
    """The personal models' mean of a score on validation rows, at the selected round."""
    if any(run.recorder.diverged for run in entry.runs):
        return None
    recorded = [run.recorder.selected.get("validation", {}).get("personal", {}) for run in entry.runs]
    return _mean([named.get(score, []) for named in recorded])


def validation_scores(entry: Trained, score: str) -> np.ndarray:
    """Each client's score on validation rows at the selected round, a mean over seeds; not-a-number for none."""
    recorded = [run.recorder.selected.get("validation", {}).get("personal", {}).get(score) for run in entry.runs]
    return np.mean([np.asarray(values, np.float64) for values in recorded if values is not None], axis=0)


def client_rows(
    trained: list[Trained], federation: Federation, scores: tuple[str, ...], judged: Mapping[str, Judged]
) -> list[dict[str, Any]]:
    """clients.parquet: every client's scores, its gains over both references, and the verdict.

    `gain` and `gain_over_one` are those of the row's seed; intervals, the expected gain and the verdict are those of
    the client's mean over seeds, the same in the rows of all its seeds.
    """
    rows = []
    for entry in trained:
        common = _judged_columns(judged[entry.method.label], federation.clients)
        for run in entry.runs:
            rows += _run_rows(entry.method.label, run, judged[entry.method.label], common, federation, scores)
            rows += _new_client_rows(entry.method.label, run, federation, scores)
    return rows


def _judged_columns(judged: Judged, clients: int) -> list[dict[str, Any]]:
    """Per client, the columns that all its seeds share."""
    parts: dict[str, Intervals | None] = {
        "gain": judged.alone and judged.alone.gain,
        "gain_over_one": judged.one and judged.one.gain,
        "gain_expected": judged.expected,
    }
    columns: dict[str, Any] = {}
    for name, found in parts.items():
        ends = [None, None, None] if found is None else [*found]
        columns |= {f"{name}_low": ends[1], f"{name}_high": ends[2]}
    columns["gain_expected"] = None if judged.expected is None else judged.expected.value
    rows: list[dict[str, Any]] = [
        {name: None if values is None else float(values[client]) for name, values in columns.items()}
        for client in range(clients)
    ]
    for client, row in enumerate(rows):
        row["verdict"] = None if judged.verdict is None else str(judged.verdict[client]) or None
    return rows


def _run_rows(
    label: str,
    run: Run,
    judged: Judged,
    common: list[dict[str, Any]],
    federation: Federation,
    scores: tuple[str, ...],
) -> list[dict[str, Any]]:
    score = answer(run, scores[0])
    named = {"score": score}
    for name, gain, against in (
        ("local_score", "gain", judged.alone),
        ("one_score", "gain_over_one", judged.one),
    ):
        reference = _of_seed(against, run.seed, scores[0], len(score))
        named |= {name: reference, gain: gains(score, reference, SCORES[scores[0]].higher_is_better)}
    rows = []
    for client, name in enumerate(federation.names):
        row: dict[str, Any] = {"method": label, "seed": run.seed, "client": name, "held_out": False}
        row |= {f"{split}_rows": int(getattr(federation, split).counts[client]) for split in _SPLITS}
        row |= {column: float(values[client]) for column, values in named.items()} | common[client]
        row["traffic_bytes"] = run.recorder.client_bytes[client] if run.recorder.client_bytes else None
        for when, recorded in (("last", run.recorder.last), ("selected", run.recorder.selected)):
            for split, models in recorded.items():
                for model, by_score in models.items():
                    row |= {f"{split}_{model}_{key}_{when}": values[client] for key, values in by_score.items()}
        rows.append(row)
    return rows


def _of_seed(against: Against | None, seed: int, score: str, clients: int) -> np.ndarray:
    """The reference's scores with the same seed; not-a-number where there is none."""
    runs = [] if against is None else [run for run in against.reference.runs if run.seed == seed]
    return answer(runs[0], score) if runs else np.full(clients, np.nan)


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


def method_summary(
    entry: Trained, judged: Judged, federation: Federation, scores: tuple[str, ...], flops: bool
) -> MethodSummary:
    """One method's line in summary.json. Means are over clients, then over seeds; `flops` are counted on request."""
    primary = scores[0]
    higher = SCORES[primary].higher_is_better
    answers = [answer(run, primary) for run in entry.runs]
    summaries = [summarise(answer, higher)._asdict() for answer in answers]
    seed_means = [float(summary["mean"]) for summary in summaries]
    first, method = entry.runs[0], entry.method
    return MethodSummary(
        method=method.label,
        algorithm=method.algorithm,
        objective=method.objective or find(method.algorithm).objective or "?",
        summary=find(method.algorithm).summary,
        reference=find(method.algorithm).reference,
        seeds=tuple(run.seed for run in entry.runs),
        settings=_settings(first.algorithm),
        swept=method.swept,
        tuned=entry.tuned,
        converged=None if entry.choice is None else entry.choice.converged,
        diverged=entry.diverged,
        score=Scores(**{part: float(np.mean([summary[part] for summary in summaries])) for part in PARTS}),
        seed_means=tuple(seed_means),
        clients=int(summaries[0]["clients"]),
        missing=int(summaries[0]["missing"]),
        interval=tuple(mean_interval(np.array(answers), primary)),
        other_scores={name: _other_score(entry, name) for name in scores[1:]},
        validation_mean=validation_mean(entry, primary),
        shared_mean=_mean([run.recorder.selected["test"].get("shared", {}).get(primary, []) for run in entry.runs]),
        last_mean=_mean([run.recorder.last["test"]["personal"][primary] for run in entry.runs]),
        selected_rounds=tuple(run.recorder.selected_round for run in entry.runs),
        seconds=float(np.mean([run.history[-1]["seconds"] for run in entry.runs])),
        new_clients=_new_clients_mean(entry, primary, federation),
        personalization=mean_personalization([run.personalization() for run in entry.runs]),
        routing=mean_routing([run.routing() for run in entry.runs]),
        storage=Storage(**first.storage()._asdict()),
        flops=Flops(**first.flops()._asdict()) if flops else None,
        train_loss=_final(entry, "train_loss"),
        suboptimality=_final(entry, "suboptimality"),
        distance_to_optimum=_final(entry, "distance_to_optimum"),
        **_costs(entry),
        **_verdict_percents(entry, judged, primary),
        gain=_gain(entry, judged.alone if judged.verdict is not None else None, primary),
        gain_over_one=_gain(entry, judged.one, primary),
    )


def _costs(entry: Trained) -> dict[str, Any]:
    """The ledger's totals, means in whole units; rounds are those of the first seed."""
    ledgers = [run.ledger for run in entry.runs]
    means = {name: round(np.mean([getattr(ledger, name) for ledger in ledgers])) for name in FIELDS}
    return means | {"rounds": ledgers[0].rounds}


def _final(entry: Trained, name: str) -> float | None:
    """The mean over seeds of what the last record says; None where it was not measured."""
    values = [run.history[-1][name] for run in entry.runs if name in run.history[-1]]
    return float(np.mean(values)) if values else None


def _other_score(entry: Trained, name: str) -> OtherScore:
    """A further score of the same models and rows, over the clients that have it."""
    found = [summarise(answer(run, name), SCORES[name].higher_is_better) for run in entry.runs]
    mean, worst = (float(np.mean([getattr(one, part) for one in found])) for part in ("mean", "worst_decile"))
    return OtherScore(mean, worst, found[0].clients, found[0].missing)


def _verdict_percents(entry: Trained, judged: Judged, primary: str) -> dict[str, Any]:
    """Against training alone: percent of clients by verdict, and by the sign of the gain."""
    if judged.alone is None or judged.verdict is None or judged.alone.reference is entry:
        return {}
    gain = _paired(entry, judged.alone, primary)
    known = judged.verdict[judged.verdict != ""]
    percents = {word: 100 * float(np.mean(known == word)) if known.size else None for word in VERDICTS}
    return percents | {sign: float(getattr(gain, sign)) for sign in ("better", "worse")}


def _gain(entry: Trained, against: Against | None, primary: str) -> Gain | None:
    """The mean gain over clients; None of a reference itself."""
    if against is None or against.reference is entry:
        return None
    gain = _paired(entry, against, primary)
    return Gain(float(gain.mean), float(gain.low), float(gain.high), gain.clients, against.reference.method.label)


def _paired(entry: Trained, against: Against, primary: str) -> PairedGain:
    reference = mean_answer(against.reference, primary)
    return paired_gain(mean_answer(entry, primary), reference, SCORES[primary].higher_is_better)


def unscored(trained: list[Trained], federation: Federation, scores: tuple[str, ...]) -> Unscored | None:
    """Clients without the first score on test rows: how many, who, why; None where all have it."""
    entry = next((one for one in trained if one.diverged is None), trained[0])
    absent = np.flatnonzero(np.isnan(mean_answer(entry, scores[0])))
    if not absent.size:
        return None
    empty = federation.test.counts[absent] == 0
    reasons = [f"{int(empty.sum())} have no test row"] if empty.any() else []
    if not empty.all():
        reasons.append(f"the test rows of {int((~empty).sum())} {_WHY.get(scores[0], 'do not define it')}")
    all_have = [name for name in scores[1:] if not np.isnan(mean_answer(entry, name)[federation.test.counts > 0]).any()]
    beside = f" {all_have[0]}, which every client with a test row has, stands beside it." if all_have else ""
    names = [federation.names[client] for client in absent[:NAMED]]
    shown = ", ".join(names) + (f" and {absent.size - NAMED} more" if absent.size > NAMED else "")
    return Unscored(
        score=scores[0],
        clients=tuple(names),
        count=int(absent.size),
        reason="; ".join(reasons),
        sentence=(
            f"{absent.size} of {federation.clients} clients have no {scores[0]} ({shown}): {'; '.join(reasons)}. Means "
            f"are over the other {federation.clients - absent.size}.{beside}"
        ),
    )


_WHY = {"auc": "hold one class only", "r2": "all have the same target"}


def mean_interval(answers: np.ndarray, score: str) -> list[float]:
    """95 % by Student's t over clients, of (seeds, clients) scores; no end that the score cannot be.

    A client's mean over seeds is one witness, as for gains: seeds say how much training draws, which may be nothing.
    """
    clients = np.mean(answers, axis=0)
    present = clients[~np.isnan(clients)]
    ends = student_interval(present) if present.size else ()
    return [float(end) for end in np.clip(ends, *SCORES[score].limits)]


def _mean(answers: list[list[float]]) -> float | None:
    """Mean over the clients that have a score, then over seeds; None where no client has one."""
    known = [[value for value in answer if not np.isnan(value)] for answer in answers]
    return float(np.mean([np.mean(values) for values in known])) if all(known) else None


def _new_clients_mean(entry: Trained, primary: str, federation: Federation) -> NewClients | None:
    """Of clients that never trained: both models' mean score, and before against after adaptation."""
    recorded = [in_table_units(run.new_clients(), federation).get("test", {}) for run in entry.runs]
    means = {kind: _mean([scores.get(kind, {}).get(primary, []) for scores in recorded]) for kind in KINDS}
    if means["personal"] is None:
        return None
    adapted = mean_personalization([run.personalization("new_clients") for run in entry.runs])
    return NewClients(means["personal"], means["shared"], adapted)


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
