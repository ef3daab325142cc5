# SPDX-License-Identifier: Apache-2.0
"""Which method a run announces, by validation rows alone, and which are level with it within noise.

The clients are those that there are, not a sample of others: noise is that of their rows, as folds show it. A client
of two rows says little about a method, and by luck much: clients are weighted as in a random-effects meta-analysis
(Hedges and Vevea 1998), between equal weights, where methods suit clients differently, and weights by rows, where what
differs is noise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats

from idiolect.experiments.trained import Trained, over_clients
from idiolect.metrics import SCORES, gains, paired_difference
from idiolect.metrics.client_weights import client_weights, overlap
from idiolect.record.schema import Announced

LEVEL = 2.0  # standard errors within which two methods are level


def announce(
    trained: list[Trained], score: str, chosen: Mapping[str, bool | None], rows: np.ndarray
) -> Announced | None:
    """The announced method, its mean, and the methods tied with it; None where nothing was validated.

    `rows` are each client's validation rows. Of a sweep's settings only the chosen ones stand for election.
    """
    able = [entry for entry in trained if chosen[entry.method.label] is not False and entry.diverged is None]
    standing, scores = _on_validation_rows(able, score)
    if not standing:
        return None
    weights = client_weights(scores, rows)
    over_folds = over_clients(np.moveaxis(scores, 1, -1))
    best = int(np.nanargmax(over_clients(over_folds, weights=weights)))
    level = [abs(ahead) <= LEVEL * error for ahead, error in (difference(scores[best], own, weights) for own in scores)]
    tied = tuple(one.method.label for place, one in enumerate(standing) if level[place] and place != best)
    mean = float(np.nanmean(standing[best].scores(score, "validation").mean(axis=0)))  # in the table's units
    return Announced(standing[best].method.label, score, mean, tied)


def _on_validation_rows(able: list[Trained], score: str) -> tuple[list[Trained], np.ndarray]:
    """The methods that have a score there, and (methods, folds, clients) of what they have, larger is better."""
    folds = [getattr(entry.choice, "folds", []) for entry in able]
    # fold by fold the same rows judge every method, and what they have in common cancels in the difference
    by_fold = len(set(map(len, folds))) == 1 and len(folds[0]) > 0
    judged = folds if by_fold else [entry.scores(score, "validation").mean(axis=0)[None] for entry in able]
    standing = [(entry, own) for entry, own in zip(able, judged) if not np.isnan(own).all()]
    sign = 1 if SCORES[score].higher_is_better else -1
    return [entry for entry, _ in standing], sign * np.array([own for _, own in standing], np.float64)


def difference(candidate: np.ndarray, reference: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """(how far ahead the candidate is, the standard error of that), from (folds, clients) scores of both.

    The error is that of each client's mean over folds; with a single fold, that of the mean over clients.
    """
    if len(candidate) < 2:
        ahead, error, clients = paired_difference(candidate[0], reference[0], True, weights)
        return ahead, error if clients > 1 else float("inf")
    ahead_by = gains(candidate, reference, True)
    known = np.isfinite(ahead_by).all(axis=0)
    if not known.any():
        return float("nan"), float("inf")
    cells, parts = ahead_by[:, known], weights[known] / weights[known].sum()
    variance = cells.var(axis=0, ddof=1) * overlap(len(cells))
    return float(cells.mean(axis=0) @ parts), float(np.sqrt(parts**2 @ variance))


def is_tied(best: np.ndarray, other: np.ndarray, higher: bool) -> bool:
    """Whether the mean of the clients' paired differences may be 0, by Student's t over clients."""
    ahead, error, clients = paired_difference(best, other, higher)
    return clients < 2 or ahead <= float(stats.t.ppf(0.975, clients - 1)) * error
