# SPDX-License-Identifier: Apache-2.0
"""Which method a run announces, by validation rows alone, and which are level with it within noise.

The clients are those that there are, not a sample of others: noise is that of their rows, as folds show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import stats

from idiolect.experiments.outcome import validation_scores
from idiolect.experiments.trained import Trained
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import gains, paired_difference
from idiolect.record.schema import Announced

LEVEL = 2.0  # standard errors within which two methods are level


class Candidate(NamedTuple):
    """A method that stands for election."""

    entry: Trained
    scores: np.ndarray  # (folds, clients) on validation rows
    mean: float


def announce(trained: list[Trained], score: str, chosen: Mapping[str, bool | None]) -> Announced | None:
    """The announced method, its mean, and the methods tied with it; None where nothing was validated.

    Of a sweep's settings only the chosen ones stand for election.
    """
    higher = SCORES[score].higher_is_better
    able = [entry for entry in trained if chosen[entry.method.label] is not False and entry.diverged is None]
    standing = [one for one in _candidates(able, score) if not np.isnan(one.mean)]
    if not standing:
        return None
    sign = 1 if higher else -1
    winner = max(standing, key=lambda one: sign * one.mean)
    tied = [one.entry.method.label for one in standing if one is not winner and _level(winner, one, higher)]
    mean = float(np.nanmean(validation_scores(winner.entry, score)))  # in the table's units
    return Announced(winner.entry.method.label, score, mean, tuple(tied))


def _candidates(trained: list[Trained], score: str) -> list[Candidate]:
    """With scores fold by fold where the same folds decided about all of them, else with one mean per client."""
    folds = [[] if entry.choice is None else entry.choice.folds for entry in trained]
    if len({len(own) for own in folds}) == 1 and folds[0]:
        scores = [np.asarray(own, np.float64) for own in folds]
    else:
        scores = [validation_scores(entry, score)[None] for entry in trained]
    means = [float("nan") if np.isnan(own).all() else float(np.nanmean(own)) for own in scores]
    return [Candidate(*one) for one in zip(trained, scores, means)]


def _level(winner: Candidate, other: Candidate, higher: bool) -> bool:
    ahead, error = difference(winner.scores, other.scores, higher)
    return abs(ahead) <= LEVEL * error


def difference(candidate: np.ndarray, reference: np.ndarray, higher: bool) -> tuple[float, float]:
    """(how far ahead the candidate is, the standard error of that), from (folds, clients) scores of both.

    The error is that of each client's mean over folds, whose training rows overlap (Nadeau and Bengio 2003); with a
    single fold, that of the mean over clients.
    """
    if len(candidate) < 2:
        ahead, error, clients = paired_difference(candidate[0], reference[0], higher)
        return ahead, error if clients > 1 else float("inf")
    ahead_by = gains(candidate, reference, higher)
    known = np.isfinite(ahead_by).all(axis=0)
    if not known.any():
        return float("nan"), float("inf")
    cells = ahead_by[:, known]
    folds = len(cells)
    variance = cells.var(axis=0, ddof=1) * (1 / folds + 1 / (folds - 1))
    return float(cells.mean()), float(np.sqrt(variance.sum()) / cells.shape[1])


def is_tied(best: np.ndarray, other: np.ndarray, higher: bool) -> bool:
    """Whether the mean of the clients' paired differences may be 0, by Student's t over clients."""
    ahead, error, clients = paired_difference(best, other, higher)
    return clients < 2 or ahead <= float(stats.t.ppf(0.975, clients - 1)) * error
