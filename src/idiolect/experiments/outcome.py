# SPDX-License-Identifier: Apache-2.0
"""From finished runs to answers: one row per client, one summary per method, who is helped and who is hurt."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect.accounting.ledger import FIELDS, Ledger
from idiolect.accounting.time_model import find_time_model
from idiolect.algorithms import find
from idiolect.core import Algorithm, Objective
from idiolect.data.federation import Federation
from idiolect.engines.evaluate import KINDS
from idiolect.engines.simulate import Run
from idiolect.experiments.announce import announce
from idiolect.experiments.gains import Judged
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.trained import Trained, mean_ledger, overall_mean
from idiolect.experiments.units import in_table_units
from idiolect.metrics import routing
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import PARTS, gains, paired_gain, student_interval, summarise
from idiolect.metrics.verdicts import VERDICTS
from idiolect.record import schema as record
from idiolect.record.codec import from_json, to_json
from idiolect.record.words import counted

NAMED = 10  # clients without a score that are named; more are counted
SPLITS = ("train", "validation", "test")
Row = dict[str, Any]  # of a table: column -> value


def write_tables(
    folder: RunFolder,
    prepared: Prepared,
    trained: list[Trained],
    chosen: Mapping[str, bool | None],
    judged: Mapping[str, Judged],
    flops: bool,
) -> record.RunSummary:
    """Write history.parquet and clients.parquet; what summary.json says of the same. `flops` are counted on request."""
    federation, scores, choose_by = prepared.federation, prepared.scores, prepared.choose_by
    folder.write_table("history.parquet", _history_rows(trained, prepared.spec.evaluation.time_model))
    folder.write_table("clients.parquet", _client_rows(trained, federation, scores, judged))
    methods = [
        dataclasses.replace(
            method_summary(entry, judged[entry.method.label], federation, scores, flops),
            choosing_mean=validation_mean(entry, choose_by),
            chosen=chosen[entry.method.label],
        )
        for entry in trained
    ]
    return record.RunSummary(
        name=prepared.spec.name,
        scores=scores,
        higher_is_better={name: SCORES[name].higher_is_better for name in scores},
        score_reason=prepared.reason,
        choose_by=choose_by,
        refit=prepared.spec.tuning.refit,
        announced=announce(trained, choose_by, chosen, federation.validation.counts),
        notes=(*prepared.notes(), *(note for entry in trained for note in entry.built.notes)),
        warnings=federation.warnings,
        unscored=unscored(trained, federation, scores),
        methods=tuple(methods),
    )


def _history_rows(trained: list[Trained], time_model: str) -> list[Row]:
    model = find_time_model(time_model)
    rows = []
    for entry in trained:
        for run in entry.runs:
            # a final fit may have cost less than the one before by which settings were chosen: never less than nothing
            steps = list(itertools.pairwise([dict.fromkeys((*FIELDS, "slowest_gradients"), 0), *run.history]))
            increments = [Ledger(**{name: max(0, row[name] - last[name]) for name in FIELDS}) for last, row in steps]
            slowest = [max(0, row["slowest_gradients"] - last["slowest_gradients"]) for last, row in steps]
            cohort = run.plan.participations[run.lane].cohort
            modelled = np.cumsum(model.history_seconds(increments, cohort, slowest))
            for row, seconds in zip(run.history, modelled):
                rows.append({"method": entry.method.label, "seed": run.seed, **row, "modelled_seconds": float(seconds)})
    return rows


def validation_mean(entry: Trained, score: str) -> float | None:
    """The personal models' mean of a score on validation rows, at the selected round."""
    return None if entry.diverged else overall_mean(entry.scores(score, "validation"))


def _client_rows(
    trained: list[Trained], federation: Federation, scores: tuple[str, ...], judged: Mapping[str, Judged]
) -> list[Row]:
    """clients.parquet: every client's scores, its gains over both references, and the verdict.

    `gain` and `gain_over_one` are those of the row's seed; intervals, the expected gain and the verdict are those of
    the client's mean over seeds, the same in the rows of all its seeds.
    """
    rows = []
    for entry in trained:
        own = judged[entry.method.label]
        for place, run in enumerate(entry.runs):
            columns = _gain_columns(entry, place, own, scores[0])
            columns["traffic_bytes"] = run.recorder.client_bytes or [None] * federation.clients
            for when in ("last", "selected"):
                columns |= _score_columns(getattr(run.recorder, when), when)
            rows += _rows(entry.method.label, run, federation, columns, held_out=False)
            if federation.held_out is not None:
                found = in_table_units(run.new_clients(), federation)
                columns = {"score": found["test"]["personal"][scores[0]], **_score_columns(found, "selected")}
                rows += _rows(entry.method.label, run, federation.held_out, columns, held_out=True)
    return rows


def _rows(label: str, run: Run, clients: Federation, columns: Mapping[str, Any], held_out: bool) -> list[Row]:
    """One row per client, of columns with an entry for each."""
    counts = {f"{split}_rows": getattr(clients, split).counts for split in SPLITS}
    every = {column: np.asarray(values).tolist() for column, values in (counts | dict(columns)).items()}
    return [
        {"method": label, "seed": run.seed, "client": name, "held_out": held_out}
        | {column: values[client] for column, values in every.items()}
        for client, name in enumerate(clients.names)
    ]


def _score_columns(recorded: Mapping[str, Any], when: str) -> dict[str, Any]:
    return {
        f"{split}_{model}_{score}_{when}": values
        for split, models in recorded.items()
        for model, named in models.items()
        for score, values in named.items()
    }


def _gain_columns(entry: Trained, place: int, judged: Judged, score: str) -> dict[str, Any]:
    """Scores and gains of one seed, not-a-number where there is no reference; then what all seeds of a client share."""
    own, alone, one = entry.scores(score)[place], judged.alone, judged.one
    columns, nothing = {"score": own}, [None] * len(own)
    for name, gain, against in (("local_score", "gain", alone), ("one_score", "gain_over_one", one)):
        # paired by seed: both saw the same draws, and what these do to both is no gain
        reference = np.full(len(own), np.nan) if against is None else against.reference.scores(score)[place]
        columns |= {name: reference, gain: gains(own, reference, SCORES[score].higher_is_better)}
    parts = {"gain": alone and alone.gain, "gain_over_one": one and one.gain, "gain_expected": judged.expected}
    return columns | {
        **{f"{name}_{end}": getattr(part, end, nothing) for name, part in parts.items() for end in ("low", "high")},
        "gain_expected": getattr(judged.expected, "value", nothing),
        "verdict": nothing if judged.verdict is None else [str(word) or None for word in judged.verdict],
    }


def method_summary(
    entry: Trained, judged: Judged, federation: Federation, scores: tuple[str, ...], flops: bool
) -> record.MethodSummary:
    """One method's line in summary.json. Means are over clients, then over seeds."""
    primary, first, method, choice = scores[0], entry.runs[0], entry.method, entry.choice
    known, means = find(method.algorithm), _means(entry)
    shown, *others = (summarise_seeds(entry.scores(name), name) for name in scores)
    further = [record.OtherScore(one.score.mean, one.score.worst_decile, one.clients, one.missing) for one in others]
    return record.MethodSummary(
        method=method.label,
        algorithm=method.algorithm,
        objective=method.objective or known.objective or "?",
        summary=known.summary,
        reference=known.reference,
        seeds=tuple(run.seed for run in entry.runs),
        settings=_plain_fields(first.algorithm.objective) | _plain_fields(first.algorithm),
        swept=method.swept,
        tuned=getattr(choice, "sentence", None),
        converged=getattr(choice, "converged", None),
        diverged=entry.diverged,
        other_scores=dict(zip(scores[1:], further)),
        validation_mean=validation_mean(entry, primary),
        shared_mean=overall_mean(entry.scores(primary, model="shared")),
        last_mean=overall_mean(entry.scores(primary, when="last")),
        selected_rounds=tuple(run.recorder.selected_round for run in entry.runs),
        seconds=means.pop("seconds"),
        new_clients=None if federation.held_out is None else _new_clients_mean(entry, primary, federation),
        personalization=mean_personalization([run.personalization() for run in entry.runs]),
        routing=mean_routing([run.routing() for run in entry.runs]),
        storage=first.storage(),
        flops=first.flops() if flops else None,
        **shown._asdict(),
        **means,
        **_gains(entry, judged, primary),
    )


class SeedSummary(NamedTuple):
    """A score on test rows as summary.json has it: over clients, each part a mean over seeds."""

    score: record.Scores
    seed_means: tuple[float, ...]
    clients: int  # with the score, of the first seed
    missing: int
    interval: tuple[float, ...]  # 95 %, no end that the score cannot be; empty: no client has the score


def summarise_seeds(answers: np.ndarray, score: str) -> SeedSummary:
    """Of (seeds, clients). The interval is Student's t over clients, whose means over seeds are one witness each.

    Seeds say how much training draws, which may be nothing.
    """
    found = [summarise(own, SCORES[score].higher_is_better) for own in answers]
    parts = {part: float(np.mean([getattr(one, part) for one in found])) for part in PARTS}
    clients = np.mean(answers, axis=0)
    present = clients[~np.isnan(clients)]
    ends = np.clip(student_interval(present) if present.size else (), *SCORES[score].limits)
    means = tuple(float(one.mean) for one in found)
    return SeedSummary(record.Scores(**parts), means, found[0].clients, found[0].missing, tuple(map(float, ends)))


def _means(entry: Trained) -> dict[str, Any]:
    """Over seeds: what training cost, in whole units, and the last record's distance to an optimum where measured."""
    costs = mean_ledger(entry.runs).to_dict() | {"rounds": entry.runs[0].ledger.rounds}
    names = ("seconds", "train_loss", "suboptimality", "distance_to_optimum")
    last = {name: [run.history[-1][name] for run in entry.runs if name in run.history[-1]] for name in names}
    return costs | {name: float(np.mean(values)) for name, values in last.items() if values}


def _gains(entry: Trained, judged: Judged, score: str) -> dict[str, Any]:
    """Mean gains over clients, and percents of clients against training alone; nothing against a method itself."""
    found, verdict = dict[str, Any](), judged.verdict
    for name, against in (("gain", judged.alone), ("gain_over_one", judged.one)):
        if against is None or against.reference is entry:
            continue
        ours, theirs = (one.scores(score).mean(axis=0) for one in (entry, against.reference))
        gain = paired_gain(ours, theirs, SCORES[score].higher_is_better)
        ends = float(gain.mean), float(gain.low), float(gain.high)
        found[name] = record.Gain(*ends, gain.clients, against.reference.method.label)
        if name == "gain":
            found |= {"better": float(gain.better), "worse": float(gain.worse)}
            # the scores alone make the gain; verdicts need rows, which stay at the sites of a deployment
            found |= {} if verdict is None else _percents(verdict)
    return found


def _percents(verdict: np.ndarray) -> dict[str, float | None]:
    """Of the clients with a verdict, the percent with each."""
    known = verdict[verdict != ""]
    return {word: 100 * float(np.mean(known == word)) if known.size else None for word in VERDICTS}


def unscored(trained: list[Trained], federation: Federation, scores: tuple[str, ...]) -> record.Unscored | None:
    """Clients without the first score on test rows: how many, who, why; None where all have it."""
    entry = next((one for one in trained if one.diverged is None), trained[0])
    absent = np.flatnonzero(np.isnan(entry.scores(scores[0]).mean(axis=0)))
    if not absent.size:
        return None
    why, one = _why_unscored(federation.test.counts[absent] == 0, scores[0]), absent.size == 1
    tested = federation.test.counts > 0
    all_have = (name for name in scores[1:] if not np.isnan(entry.scores(name).mean(axis=0)[tested]).any())
    beside = _rank_by(trained, next(all_have, None))
    names = [federation.names[client] for client in absent[:NAMED]]
    shown = ", ".join(names) + (f" and {absent.size - NAMED} more" if absent.size > NAMED else "")
    return record.Unscored(
        score=scores[0],
        clients=tuple(names),
        count=int(absent.size),
        reason=why,
        sentence=(
            f"{absent.size:,} of {counted(federation.clients, 'client')} {'has' if one else 'have'} no "
            f"{scores[0]} ({shown}): {why}. Means are over the other {federation.clients - absent.size:,}.{beside}"
        ),
    )


def _why_unscored(empty: np.ndarray, score: str) -> str:
    """Why clients, some of them `empty` of test rows, have no such score."""
    one, undefined = empty.size == 1, _WHY.get(score, "do not define it")
    reasons = {
        "it has no test row" if one else counted(int(empty.sum()), "has no test row", "have no test row"): empty.any(),
        f"{'its test rows' if one else f'the test rows of {(~empty).sum():,}'} {undefined}": not empty.all(),
    }
    return "; ".join(text for text, holds in reasons.items() if holds)


_WHY = {"auc": "hold one class only", "r2": "all have the same target"}


def _rank_by(trained: list[Trained], score: str | None) -> str:
    """The methods by a score that all tested clients have, best first; nothing where there is none."""
    if score is None:
        return ""
    found = {entry.method.label: overall_mean(entry.scores(score)) for entry in trained if entry.diverged is None}
    means = {label: mean for label, mean in found.items() if mean is not None}
    ranked = sorted(means, key=means.__getitem__, reverse=SCORES[score].higher_is_better)
    shown = ", ".join(f"{label} {means[label]:.3g}" for label in ranked[:NAMED])
    words = score.replace("_", " ")
    return f" By {words}, which every client with a test row has, best first: {shown}." if ranked else ""


def _new_clients_mean(entry: Trained, primary: str, federation: Federation) -> record.NewClients | None:
    """Of clients that never trained: both models' mean score, and before against after adaptation."""
    found = [in_table_units(run.new_clients(), federation).get("test", {}) for run in entry.runs]
    means = {
        kind: overall_mean(np.asarray([scores.get(kind, {}).get(primary, ()) for scores in found], float))
        for kind in KINDS
    }
    if means["personal"] is None:
        return None
    adapted = mean_personalization([run.personalization("new_clients") for run in entry.runs])
    return record.NewClients(means["personal"], means["shared"], adapted)


def mean_personalization(found: list[record.Personalization | None]) -> record.Personalization | None:
    """The mean over seeds, entry by entry."""
    known = [to_json(one) for one in found if one is not None]
    return from_json(record.Personalization, _mean_tree(known), "personalization") if known else None


def mean_routing(found: list[routing.Routing | None]) -> record.Routing | None:
    """The mean over seeds of the fractions; rows are added up."""
    known = [to_json(one._asdict()) for one in found if one is not None]
    if not known:
        return None
    rows = {category: sum(one["rows"][category] for one in known) for category in known[0]["rows"]}
    return from_json(record.Routing, _mean_tree(known) | {"rows": rows}, "routing")


def _mean_tree(values: list[Any]) -> Any:
    """The mean of lists and dictionaries of one form, number by number; a seed without one does not count."""

    def mean(*leaves: Any) -> Any:
        known = [leaf for leaf in leaves if leaf is not None]
        same = known and isinstance(known[0], int | str) and len(set(known)) == 1  # a name, or as many in all
        return known[0] if same else float(np.mean(known)) if known else None

    return jax.tree.map(mean, *values, is_leaf=lambda leaf: leaf is None)


def _plain_fields(owner: Algorithm | Objective) -> dict[str, Any]:
    """Settings of an algorithm or of its objective as it was trained with them, whoever gave them."""
    settings: dict[str, Any] = {}
    for field in dataclasses.fields(owner):  # type: ignore[arg-type]
        value = getattr(owner, field.name)
        if hasattr(value, "dtype"):
            settings[field.name] = float(f"{float(value):.7g}") if np.ndim(value) == 0 else np.asarray(value).tolist()
        elif isinstance(value, int | float | str | bool):
            settings[field.name] = value
        elif isinstance(value, tuple) and all(isinstance(part, int | float | str) for part in value):
            settings[field.name] = list(value)
    return settings
