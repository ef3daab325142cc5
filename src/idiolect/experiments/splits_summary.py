# SPDX-License-Identifier: Apache-2.0
"""What repeated splits say together: means over splits, who was announced, and every client's verdict."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from idiolect.core.order import natural_key
from idiolect.experiments.announce import is_tied
from idiolect.experiments.trained import over_clients
from idiolect.metrics import SCORES, Estimates, gain_estimates, judge, score_estimates, student_intervals, summarise
from idiolect.metrics.paired import Intervals
from idiolect.metrics.verdicts import VERDICTS
from idiolect.record.reading import read_summary
from idiolect.record.schema import ALONE, MethodSummary, RunSummary
from idiolect.record.splits import EachSplit, SplitsAnnounced, SplitsMean, SplitsMethod, SplitsRow, SplitsSummary

JUDGED = ("score", "gain", "gain_over_one")
_NUMBERS = ("train_rows", "validation_rows", "test_rows", *JUDGED)
_COLUMNS = ("method", "client", "held_out", *_NUMBERS)


@dataclasses.dataclass(frozen=True)
class Splits:
    """Finished splits: their summaries, and their numbers, not-a-number where there is none."""

    folders: list[Path]
    seeds: list[int]
    summaries: list[RunSummary]
    labels: list[str]
    clients: list[str]
    judged: dict[str, np.ndarray]  # each of JUDGED: (methods, splits, clients)
    test_rows: np.ndarray  # (splits, clients)
    fitted_rows: np.ndarray  # rows that the judged models were trained on

    @property
    def name_of_score(self) -> str:
        """The score that the splits are judged by."""
        return self.summaries[0].scores[0]

    @property
    def higher_is_better(self) -> bool:
        """Which way it points."""
        return SCORES[self.name_of_score].higher_is_better

    @property
    def test_over_train(self) -> float:
        """Test rows divided by training rows, all clients and splits together."""
        return float(np.nansum(self.test_rows) / max(np.nansum(self.fitted_rows), 1))

    def line(self, split: int, method: int) -> MethodSummary:
        """A method's entry in a split's summary."""
        return next(one for one in self.summaries[split].methods if one.method == self.labels[method])

    def announced(self, split: int) -> int | None:
        """The place of the method that a split announced."""
        found = self.summaries[split].announced
        return self.labels.index(found.method) if found else None

    def intervals(self, name: str, found: Estimates) -> Intervals:
        """Means over splits of one of JUDGED at 95 %, no end that a score or a difference of two scores cannot be."""
        score = SCORES[self.name_of_score]
        bound = math.inf if score.bound is None else score.bound
        limits = score.limits if name == "score" else (-bound, bound)
        return Intervals(*(np.clip(part, *limits) for part in student_intervals(found)))

    def mean(self, name: str, values: np.ndarray) -> SplitsMean | None:
        """Of one number per split: mean, interval, and how many splits have it; None for none."""
        estimates = score_estimates if name == "score" else gain_estimates
        found = self.intervals(name, estimates(values[None], self.test_over_train))
        mean, low, high = (float(part[0]) for part in found)
        return None if np.isnan(mean) else SplitsMean(mean, low, high, int(np.isfinite(values).sum()))


class JudgedOverSplits(NamedTuple):
    """One method's clients: mean gains over splits with corrected intervals, what to expect, and the verdict."""

    gain: Intervals
    gain_over_one: Intervals
    expected: Intervals
    verdict: np.ndarray


def read_splits(folders: Sequence[Path], seeds: Sequence[int]) -> Splits:
    """Finished run folders of one spec with other splits; a client's number is its mean over training seeds."""
    summaries = [read_summary(folder) for folder in folders]
    tables = list(map(_client_means, folders, summaries))
    labels = [line.method for line in summaries[0].methods]
    clients = sorted({name for table in tables for name in table["client"]}, key=lambda name: (natural_key(name), name))
    numbers = _arranged(tables, labels, clients)
    fitted = numbers["train_rows"][0].copy()
    # a refit learns from validation rows too: they count among the rows that splits have in common
    if all(summary.refit and all(line.tuned for line in summary.methods) for summary in summaries):
        fitted += numbers["validation_rows"][0]
    judged = {name: numbers[name] for name in JUDGED}
    return Splits(list(folders), list(seeds), summaries, labels, clients, judged, numbers["test_rows"][0], fitted)


def _arranged(tables: list[dict[str, Any]], labels: list[str], clients: list[str]) -> dict[str, np.ndarray]:
    """Column -> (methods, splits, clients), not-a-number where a split has no such client."""
    numbers = {name: np.full((len(labels), len(tables), len(clients)), np.nan) for name in _NUMBERS}
    method_at, client_at = ({name: place for place, name in enumerate(names)} for names in (labels, clients))
    for split, table in enumerate(tables):
        places = [method_at[name] for name in table["method"]], split, [client_at[name] for name in table["client"]]
        for name, values in numbers.items():
            values[places] = table[name]
    return numbers


def _client_means(folder: Path, summary: RunSummary) -> dict[str, Any]:
    """Columns with a row per method and client, means over seeds; clients that never train are left out.

    A method that diverged has no score, and nothing has a gain over a reference that did.
    """
    table = pq.read_table(folder / "clients.parquet", columns=list(_COLUMNS))
    table = table.filter(pc.invert(table["held_out"])).group_by(["method", "client"])
    # nulls count: a client that lacks the number in one seed has no mean over seeds
    found = table.aggregate([(name, "mean", pc.ScalarAggregateOptions(skip_nulls=False)) for name in _NUMBERS])
    columns: dict[str, Any] = {name: found[name].to_pylist() for name in ("method", "client")}
    lost = {line.method for line in summary.methods if line.diverged}
    alone = {line.method for line in summary.methods if line.algorithm == ALONE}
    one = {line.gain_over_one.reference for line in summary.methods if line.gain_over_one}
    gone = np.isin(columns["method"], list(lost))
    without = {"gain": alone <= lost, "gain_over_one": not one or bool(one & lost)}
    for name in _NUMBERS:
        values = found[f"{name}_mean"].to_numpy().astype(float)
        values[gone & (name in JUDGED) | without.get(name, False)] = np.nan
        columns[name] = values
    return columns


def summarise_splits(name: str, read: Splits) -> tuple[SplitsSummary, list[JudgedOverSplits]]:
    """splits.json, and what each method does for its clients."""
    judged = [_judge(read, method) for method in range(len(read.labels))]
    each = [_split_line(read, split) for split in range(len(read.folders))]
    methods = [_method_line(read, method, judged[method].verdict, each) for method in range(len(read.labels))]
    first = read.summaries[0]
    ranked = _rank(methods, SCORES[first.choose_by or read.name_of_score].higher_is_better)
    summary = SplitsSummary(
        name=name,
        splits=len(read.folders),
        seeds=tuple(read.seeds),
        score=read.name_of_score,
        higher_is_better=read.higher_is_better,
        score_reason=first.score_reason,
        choose_by=first.choose_by,
        refit=first.refit,
        test_over_train=read.test_over_train,
        all_clients=len(read.clients),
        announced=_announced_line(read, each, ranked[0].method) if ranked and ranked[0].announced else None,
        # the method whose clients are shown: the one announced most, or the first that is not training alone
        personalized=next((line.method for line in ranked if not line.alone), None),
        methods=tuple(methods),
        each=tuple(each),
        warnings=tuple(dict.fromkeys(text for one in read.summaries for text in one.warnings)),
        notes=first.notes,
    )
    return summary, judged


def _judge(read: Splits, method: int) -> JudgedOverSplits:
    """Every client of one method, by the rule that a single run uses; the evidence is splits, not rows."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = np.nansum(read.test_rows, axis=0), np.nansum(read.fitted_rows, axis=0)
        ratio = np.where(rows[1] > 0, rows[0] / rows[1], np.nan)
    alone, one = (gain_estimates(read.judged[name][method].T, ratio) for name in ("gain", "gain_over_one"))
    return JudgedOverSplits(read.intervals("gain", alone), read.intervals("gain_over_one", one), *judge(alone))


def _over_clients(values: np.ndarray) -> np.ndarray:
    """An infinite loss is none: the mean over splits is of the others."""
    return over_clients(values, np.isfinite(values))


def _method_line(read: Splits, method: int, verdict: np.ndarray, each: list[EachSplit]) -> SplitsMethod:
    lines = [read.line(split, method) for split in range(len(read.folders))]
    sound = [line for line in lines if not line.diverged]
    worst = [summarise(values, read.higher_is_better).worst_decile for values in read.judged["score"][method]]
    alone = lines[0].algorithm == ALONE
    one = all(line.gain_over_one is None for line in lines)  # itself, or there is no such method
    means = {name: read.mean(name, _over_clients(values[method])) for name, values in read.judged.items()}
    return SplitsMethod(
        method=read.labels[method],
        algorithm=lines[0].algorithm,
        choosing_mean=_known_mean([line.choosing_mean for line in sound]),
        score=means["score"],
        worst_decile=read.mean("score", np.array(worst)),
        gain=None if alone else means["gain"],
        gain_over_one=None if one else means["gain_over_one"],
        **_verdict_counts(verdict, alone),
        announced=sum(line.announced == read.labels[method] for line in each),
        best=sum(read.labels[method] in line.best for line in each),
        diverged=len(lines) - len(sound),
        unconverged=sum(line.converged is False for line in sound),
        rounds=_known_mean([line.rounds for line in sound]),
        traffic_bytes=_known_mean([line.traffic_bytes for line in sound]),
    )


def _verdict_counts(verdict: np.ndarray, alone: bool) -> dict[str, Any]:
    """Clients by verdict, and those that have one; none of training alone, which is what others are judged by."""
    known = verdict[verdict != ""]
    counts = {word: int((known == word).sum()) if known.size and not alone else None for word in VERDICTS}
    return counts | {"compared": None if alone else int(known.size)}


def _known_mean(values: Sequence[float | None]) -> float | None:
    """The mean over the splits that have the number."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _split_line(read: Splits, split: int) -> EachSplit:
    """One split: who was announced, who was best on test rows, and whether the two are one within noise."""
    scores, announced = read.judged["score"][:, split], read.announced(split)
    means = _over_clients(scores)
    stands = [read.line(split, place).chosen is not False for place in range(len(read.labels))]
    merit = np.where(np.isfinite(means) & stands, means if read.higher_is_better else -means, -np.inf)
    first = int(merit.argmax())
    # methods that coincide, such as one that chose to train alone and training alone, are best together
    best = np.flatnonzero(np.isfinite(merit) & np.isclose(merit, merit[first], 1e-6, 1e-9))
    tied = None
    if announced is not None and best.size:
        tied = bool(announced in best or is_tied(scores[first], scores[announced], read.higher_is_better))
    return EachSplit(
        folder=read.folders[split].name,
        seed=read.seeds[split],
        announced=None if announced is None else read.labels[announced],
        best=tuple(read.labels[place] for place in best),
        best_or_tied=tied,
        means=dict(zip(read.labels, map(float, means))),
    )


def _announced_line(read: Splits, each: list[EachSplit], most: str) -> SplitsAnnounced:
    """The announced method of each split, whichever it was: what following the announcements gives on average."""
    places = [read.announced(split) for split in range(len(each))]

    def of_announced(values: np.ndarray) -> np.ndarray:
        means = _over_clients(values)
        return np.array([np.nan if place is None else means[place, split] for split, place in enumerate(places)])

    return SplitsAnnounced(
        most=most,
        splits=sum(place is not None for place in places),
        **{name: read.mean(name, of_announced(values)) for name, values in read.judged.items()},
        best=sum(line.announced in line.best for line in each),
        best_or_tied=sum(line.best_or_tied is True for line in each),
    )


def _rank(methods: list[SplitsMethod], higher: bool) -> list[SplitsMethod]:
    """Most often announced first; of equals the better mean on validation rows: test rows never choose."""
    sign = 1 if higher else -1

    def key(line: SplitsMethod) -> tuple[int, float]:
        mean = line.choosing_mean
        return -line.announced, math.inf if mean is None else -sign * mean

    return sorted((line for line in methods if line.score is not None), key=key)


def client_rows(read: Splits, judged: list[JudgedOverSplits]) -> list[SplitsRow]:
    """splits.parquet: one row per method and client."""
    rows = []
    for (method, found), (place, client) in itertools.product(enumerate(judged), enumerate(read.clients)):
        gains = {
            f"{name}{end}": float(values[place])
            for name, part in zip(("gain", "gain_over_one", "gain_expected"), found)
            for end, values in zip(("", "_low", "_high"), part)
        }
        scores = read.judged["score"][method, :, place]
        rows.append(
            SplitsRow(
                method=read.labels[method],
                client=client,
                splits=int(np.isfinite(scores).sum()),
                train_rows=float(_over_clients(read.fitted_rows[:, place])),
                test_rows=float(_over_clients(read.test_rows[:, place])),
                score=float(_over_clients(scores)),
                **gains,
                verdict=str(found.verdict[place]) or None,
            )
        )
    return rows
