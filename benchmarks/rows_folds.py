# SPDX-License-Identifier: Apache-2.0
"""Attack on `advise` and `[collaboration] source = "models"`: rows from sums of gradients and Hessians over folds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from benchmarks.rows_sliced import fraction_recovered
from idiolect.collaborate.quadratic import (
    Sample,
    common_model,
    expand,
    fold_rows,
    make_sample,
    quick_models,
    score,
)
from idiolect.collaborate.threads import one_thread
from idiolect.core.data import Rows
from idiolect.theory.convex import ConvexLoss

FEATURES, OTHERS, PENALTY = 3, 12, 1.0
CRITERIA = ("squared", "logistic")


class Seen(NamedTuple):
    """What the server sees of one fold of the attacked client, in single precision as it is sent."""

    rows: np.ndarray  # (rows, features), to be recovered
    points: np.ndarray  # (points, size) where sums were taken
    gradients: np.ndarray  # (points, size)
    hessians: np.ndarray  # (points, size, size)
    models: np.ndarray  # (models, size) that the client judged; none where it has several folds
    losses: np.ndarray  # (models,) their mean losses


def attack_folds(count: int, criterion: str, guarded: bool, starts: int) -> float | None:
    """Part of the attacked client's rows recovered, over its smallest fold; None where it sends nothing.

    Guarded: as it is done; otherwise folds of any size and, for log losses, sums at a point per fold.
    """
    loss = ConvexLoss(criterion, FEATURES, 0, bias=True, diagonal=False, l2=0.0)
    least = fold_rows(loss) if guarded else 1
    sample = make_sample(loss, _rows(count, criterion), least=least).heard(least)
    if sample.counts[0] == 0:
        return None
    seen = _smallest_fold(sample, guarded)
    return fraction_recovered(_fitted(seen, criterion, starts), seen.rows)


def _smallest_fold(sample: Sample, guarded: bool) -> Seen:
    sizes = np.bincount(sample.fold[sample.owner == 0], minlength=sample.folds)
    fold = int(np.where(sizes > 0, sizes, len(sample.owner)).argmin())
    several = [sample] if guarded else [sample, *(sample.without(f) for f in range(sample.folds) if f != fold)]
    expansions = [expand(one, common_model(one, PENALTY)) for one in several]
    models = quick_models(sample, expansions[0], np.eye(sample.agents), PENALTY)[1:]
    here = (sample.owner == 0) & (sample.fold == fold)
    losses = score(sample.take(here), models).mean(axis=0)
    if (sizes > 0).sum() > 1:  # it judges by all of its rows, not by those of one fold
        models, losses = models[:0], losses[:0]
    gradients, hessians = (np.stack([getattr(one, name)[0, fold] for one in expansions]) for name in Seen._fields[2:4])
    points = np.stack([one.point for one in expansions])
    sent = (part.astype(np.float32).astype(float) for part in (points, gradients, hessians, models, losses))
    return Seen(sample.design[here, :-1], *sent)


def _fitted(seen: Seen, criterion: str, starts: int) -> np.ndarray:
    """Rows whose sums and losses are those seen, by least squares from random starts; the best fit."""
    count, draws = len(seen.rows), np.random.default_rng(0)
    wanted = _numbers(seen.gradients, seen.hessians, seen.losses)
    missing = _mismatch(seen, criterion, wanted)
    best, least = np.zeros((0, FEATURES)), np.inf
    for _ in range(starts):
        with one_thread():
            found = least_squares(missing, draws.normal(size=count * (FEATURES + 1)), max_nfev=100)
        if found.cost < least:
            best, least = found.x.reshape(count, FEATURES + 1)[:, :-1], found.cost
        if least < 1e-14 * float(wanted @ wanted):
            break
    return best


def _mismatch(seen: Seen, criterion: str, wanted: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def missing(unknown: np.ndarray) -> np.ndarray:
        table = unknown.reshape(-1, FEATURES + 1)
        design, goals = np.hstack([table[:, :-1], np.ones((len(table), 1))]), table[:, -1]
        answers = design @ seen.points.T  # (rows, points)
        chances = _sigmoid(answers) if criterion == "logistic" else answers
        curved = chances * (1 - chances) if criterion == "logistic" else np.ones_like(answers)
        gradients = (chances - goals[:, None]).T @ design
        hessians = np.einsum("rp,rc,rd->pcd", curved, design, design)
        judged = design @ seen.models.T
        if criterion == "logistic":
            losses = (np.logaddexp(0, judged) - goals[:, None] * judged).mean(axis=0)
        else:
            losses = 0.5 * ((judged - goals[:, None]) ** 2).mean(axis=0)
        return _numbers(gradients, hessians, losses) - wanted

    return missing


def _numbers(gradients: np.ndarray, hessians: np.ndarray, losses: np.ndarray) -> np.ndarray:
    above = np.triu_indices(hessians.shape[1])
    return np.concatenate([gradients.reshape(-1), hessians[:, above[0], above[1]].reshape(-1), losses])


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(values, -50, 50)))


def _rows(count: int, criterion: str) -> Rows:
    """The attacked client and others of 60 rows each, all with coefficients of their own."""
    draws = np.random.default_rng(count)
    counts = np.array([count] + [60] * OTHERS)
    inputs = draws.normal(size=(counts.sum(), FEATURES))
    answers = (inputs * np.repeat(1 + 0.5 * draws.normal(size=(OTHERS + 1, FEATURES)), counts, axis=0)).sum(axis=1)
    noisy = answers + draws.logistic(size=len(answers))
    targets = (noisy > 0).astype(np.int64) if criterion == "logistic" else noisy
    return Rows(inputs, targets, np.concatenate([[0], np.cumsum(counts)]))
