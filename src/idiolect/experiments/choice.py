# SPDX-License-Identifier: Apache-2.0
"""Each client's own choice among settings, on its validation rows: what a dial (one warm path) and a sweep share.

Test rows only judge. With several seeds a client chooses by its mean over them.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.algorithms import find
from idiolect.core.checks import RequestError
from idiolect.data.federation import Federation
from idiolect.engines.run import Run
from idiolect.experiments.outcome import summarise_seeds
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.spec import MethodSpec, own_settings
from idiolect.experiments.trained import Trained, mean_ledger, recorded
from idiolect.metrics.scores import SCORES
from idiolect.record.choices import Choice, ChoiceRow, Choices, ChoiceScores, OwnChoice, Spent, Value, ValueTried

# The largest value is the least personal: alpha = 1 is one model for all, a large penalty holds every personal model at
# the shared one, mixing is the shared model's share.
LESS_PERSONAL = ("personalization", "penalty", "mixing")
WHEN = {"dial": "last", "sweep": "selected"}  # the round that counts


class Tried(NamedTuple):
    """One setting to choose from: its run for every seed; the smallest rank is the least personal."""

    value: Value
    runs: list[Run]
    rank: float
    again: Sequence[Run] = ()  # of a second fit, with validation rows: these are judged by test rows, and handed over

    @property
    def handed_over(self) -> Sequence[Run]:
        """The runs whose models clients get."""
        return self.again or self.runs

    @property
    def cost(self) -> Ledger:
        """What it cost, a mean over seeds in whole units; both fits where there are two."""
        return sum((mean_ledger(runs) for runs in (self.runs, self.again) if runs), Ledger())

    def scores(self, split: str, score: str, when: str) -> np.ndarray:
        """(seeds, clients): the personal models' scores, not-a-number where a run diverged."""
        runs = self.handed_over if split == "test" else self.runs
        found = recorded(runs, score, split, "personal", when)
        found[[run.recorder.diverged is not None for run in runs]] = np.nan
        return found

    def client_bytes(self) -> list[float] | None:
        """Bytes to and from each client, a mean over seeds; None where the method alone knows."""
        known = [run.recorder.client_bytes for run in (*self.runs, *self.again)]
        return (np.sum(known, axis=0) / len(self.runs)).tolist() if all(known) else None


def choose(validation: np.ndarray, ranks: Sequence[float], higher_is_better: bool) -> tuple[np.ndarray, np.ndarray]:
    """(place of each client's value, whether it is the client's own choice) from scores of shape (values, clients).

    Ties go to the smallest rank. A client without a score takes the value with the best mean over the others.
    """
    order = np.argsort(ranks, kind="stable")  # argmax takes the first
    oriented = (1 if higher_is_better else -1) * np.asarray(validation, float)[order]
    own = ~np.isnan(oriented).all(axis=0)
    scored = np.where(np.isnan(oriented), -np.inf, oriented)
    common = np.argmax(np.mean(scored[:, own], axis=1)) if own.any() else 0
    return order[np.where(own, np.argmax(scored, axis=0), common)], own


def find_choice(
    kind: str, name: str, method: MethodSpec, setting: str, tried: list[Tried], federation: Federation, score: str
) -> Choice:
    """dial.json, or one entry of choices.json; `kind` is one of WHEN."""
    higher, when = SCORES[score].higher_is_better, WHEN[kind]
    # (values, seeds, clients)
    validation, test = (np.stack([one.scores(split, score, when) for one in tried]) for split in ("validation", "test"))
    mean = validation.mean(axis=1)
    if np.isnan(mean).all():
        raise RequestError(
            f"No value can be chosen: {score} is undefined on every client's validation rows; choose another in "
            "[evaluation] scores, or give [data] validation a larger fraction."
        )
    ranks = [one.rank for one in tried]
    chosen, own = choose(mean, ranks, higher)
    entries = _values_tried(tried, validation, test, chosen, score)
    of_validation, of_test = (
        _summary(scores[chosen, :, np.arange(federation.clients)].T, score) for scores in (validation, test)
    )
    # the fixed value with the best mean on validation rows, the least personal of those
    means = np.array([entry.validation.mean for entry in entries], float)
    merit = np.where(np.isnan(means), -np.inf, means if higher else -means)
    best = max(range(len(entries)), key=lambda place: (merit[place], -ranks[place]))
    return Choice(
        kind=kind,
        name=name,
        method=method.label,
        algorithm=method.algorithm,
        objective=method.objective or find(method.algorithm).objective,
        setting=setting,
        seeds=tuple(run.seed for run in tried[0].runs),
        score=score,
        higher_is_better=higher,
        clients=tuple(federation.names),
        values=tuple(entries),
        best_fixed=entries[best].value,
        chosen=OwnChoice(
            values=tuple(tried[place].value for place in chosen),
            places=tuple(chosen.tolist()),
            own=tuple(own.tolist()),
            validation=of_validation,
            test=of_test,
        ),
    )


def _values_tried(
    tried: list[Tried], validation: np.ndarray, test: np.ndarray, chosen: np.ndarray, score: str
) -> list[ValueTried]:
    """Each value: scores, who chose it, its price and the price so far."""
    entries, total = [], Ledger()
    for place, one in enumerate(tried):
        cost, paid = one.cost, one.client_bytes()
        total = total + cost
        entries.append(
            ValueTried(
                value=one.value,
                rounds=cost.rounds,
                validation=_summary(validation[place], score),
                test=_summary(test[place], score),
                chosen_by=int((chosen == place).sum()),
                spent=_price(cost),
                spent_so_far=_price(total),
                client_bytes=None if paid is None else tuple(paid),
                diverged=next((run.recorder.diverged for run in one.runs if run.recorder.diverged), None),
            )
        )
    return entries


def _summary(scores: np.ndarray, score: str) -> ChoiceScores:
    """Of (seeds, clients): means over clients, then over seeds, with 95 % over clients where every seed has a mean."""
    found = summarise_seeds(scores, score)
    interval = () if any(map(math.isnan, found.seed_means)) else found.interval
    clients = tuple(scores.mean(axis=0).tolist())
    return ChoiceScores(found.score.mean, found.score.worst_decile, found.seed_means, interval, clients)


def _price(ledger: Ledger) -> Spent:
    return Spent(ledger.total_bytes, ledger.gradients, **ledger.to_dict())


def client_rows(found: Choice, federation: Federation) -> list[ChoiceRow]:
    """dial.parquet and choices.parquet: one row per value and client, means over seeds."""
    counts = {f"{split}_rows": getattr(federation, split).counts.tolist() for split in ("train", "validation", "test")}
    return [
        ChoiceRow(
            method=found.method,
            client=name,
            value=entry.value,
            chosen=found.chosen.places[client] == place,
            own_choice=found.chosen.own[client],
            validation=entry.validation.clients[client],
            test=entry.test.clients[client],
            traffic_bytes=None if entry.client_bytes is None else entry.client_bytes[client],
            **{column: rows[client] for column, rows in counts.items()},
        )
        for place, entry in enumerate(found.values)
        for client, name in enumerate(federation.names)
    ]


def write_choices(folder: RunFolder, name: str, trained: list[Trained], federation: Federation, score: str) -> None:
    """choices.json and choices.parquet of a sweep: every method whose objective's settings were swept.

    The selected round counts. Without validation rows there is no choice, and nothing is written.
    """
    groups = collections.defaultdict(list)
    for entry in trained:
        if entry.method.swept is not None:
            groups[entry.method.base].append(entry)
    choices = (_choice_of(name, base, own, federation, score) for base, own in groups.items())
    found = [one for one in choices if one is not None]
    if found:
        folder.write_table("choices.parquet", _table_rows(found, federation))
        folder.write_json("choices.json", Choices(tuple(found)))


def _table_rows(found: list[Choice], federation: Federation) -> list[dict[str, object]]:
    """Values of several kinds, numbers beside names, become texts: a column of a table has one type."""
    rows = [row for one in found for row in client_rows(one, federation)]
    if len({type(row.value) for row in rows}) > 1:
        rows = [dataclasses.replace(row, value=str(row.value)) for row in rows]
    return [vars(row) for row in rows]


def _choice_of(name: str, base: str, entries: list[Trained], federation: Federation, score: str) -> Choice | None:
    """Among the combinations of one method; None where no setting of its objective varies, or nothing can choose."""
    every = [entry.method.settings for entry in entries]
    swept = [axis for axis in every[0] if len({repr(settings.get(axis)) for settings in every}) > 1]
    if not set(swept) & set(own_settings(entries[0].method.minimised)):
        return None
    tried = [_tried(entry, swept) for entry in entries]
    if not any(np.isfinite(one.scores("validation", score, "selected")).any() for one in tried):
        return None
    method = dataclasses.replace(entries[0].method, label=base)
    return find_choice("sweep", name, method, ", ".join(swept), tried, federation, score)


def _tried(entry: Trained, swept: list[str]) -> Tried:
    """One combination: its number where one number was swept, else its text; less personal ones rank first."""
    values = [entry.method.settings[axis] for axis in swept]
    value: Value = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)
    if len(values) == 1 and type(values[0]) in (int, float):
        value = float(values[0])
    towards = [np.mean(one) for axis, one in zip(swept, values) if axis in LESS_PERSONAL]
    return Tried(value, entry.runs, -float(sum(towards)))
