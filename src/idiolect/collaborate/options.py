# SPDX-License-Identifier: Apache-2.0
"""Three ways to learn - alone, with all clients, with neighbours - solved to their optimum and judged row by row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.collaborate.batched import NUMBERS_AT_ONCE
from idiolect.collaborate.blocks import Neighbourhoods, listed
from idiolect.collaborate.leave_out import Fitted, is_quick, left_out_losses
from idiolect.collaborate.many import Report, learn_many
from idiolect.collaborate.quadratic import (
    FEW_COEFFICIENTS,
    Sample,
    common_model,
    optimum,
    own_optima,
    row_weights,
    score_own,
)
from idiolect.collaborate.weights import QUICK, THOROUGH, Learned, exchange_of, learn_weights
from idiolect.core.checks import RequestError

OPTIONS = ("alone", "everybody", "neighbours")
PENALTIES = (100.0, 10.0, 1.0, 0.1)  # in rows: (penalty/2) |V|^2 beside the sum of losses; strongest first
MOST_PAIRS = 400  # clients of which every pair is judged; more are sorted into blocks first
MOST_THOROUGH = 4_000  # clients for which every candidate is tried inside blocks


class Options(NamedTuple):
    """What the three ways cost on rows that they had not seen, and how they would be fitted on all rows."""

    losses: np.ndarray  # (rows, 3) held-out loss of every row of the sample
    penalties: dict[str, float]  # chosen on held-out rows, one per way
    neighbours: Neighbourhoods  # Lambda of the neighbours, and the blocks within which pairs were judged
    mixture: dict[str, float]  # what each candidate contributes
    held_out: dict[str, float]  # mean held-out loss of each candidate
    models: np.ndarray | None = None  # (clients, size) of the neighbours, where blocks have made them
    least: int = 1  # clients with fewer rows have sent nothing

    @property
    def all_pairs(self) -> bool:
        """Whether every pair of clients was judged."""
        return len(self.neighbours.blocks) == 1


def try_options(
    sample: Sample,
    penalties: tuple[float, ...] = PENALTIES,
    *,
    most_pairs: int | None = None,
    least: int = 1,
    report: Report = lambda label, done, total: None,
) -> Options:
    """Every row's loss under models that were chosen and fitted without its fold.

    Clients with fewer than `least` rows send nothing: the others learn without them, and they judge what was learnt.
    """
    heard = sample.heard(least)
    if not len(heard.owner):
        raise RequestError(
            f"Sums of fewer than {least} rows would give the rows away, and no client has so many: the largest has "
            f"{sample.counts.max(initial=0)}; bring more rows, or fewer and larger clients."
        )
    found = _try_heard(heard, penalties, MOST_PAIRS if most_pairs is None else most_pairs, report)._replace(least=least)
    if len(heard.owner) == len(sample.owner):
        return found
    listening = sample.counts[sample.owner] < least
    losses = np.empty((len(sample.owner), 3))
    losses[~listening] = found.losses
    losses[listening] = _overheard(sample.take(listening), heard, found)
    return found._replace(losses=losses)


def _overheard(sample: Sample, heard: Sample, found: Options) -> np.ndarray:
    """(rows, 3) losses of clients whose rows no other client has learnt from."""
    models = fit_options(heard, found)
    own = _fit_alone(sample, found.penalties["alone"], models["everybody"])
    alone = left_out_losses(sample, own, found.penalties["alone"])
    return np.stack([alone, *(score_own(sample, models[way]) for way in OPTIONS[1:])], axis=1)


def _try_heard(sample: Sample, penalties: tuple[float, ...], most_pairs: int, report: Report) -> Options:
    """The three ways of clients that all send."""
    chosen, losses = {}, np.empty((len(sample.owner), 3))
    by_row = is_quick(sample)
    for place, way in enumerate(OPTIONS[:2]):
        tried = (_by_rows if by_row else _by_folds)(sample, way, penalties)
        best = int(np.argmin(sample.means(tried).mean(axis=0)))
        chosen[way], losses[:, place] = penalties[best], tried[:, best]
        report("ways", place + 1, 2)
    penalty = chosen["neighbours"] = chosen["alone"]  # it says how large coefficients are, the same for all
    if sample.agents > most_pairs:
        effort = THOROUGH if sample.agents <= MOST_THOROUGH else QUICK
        found = learn_many(sample, penalty, effort, report)
        losses[:, 2] = found.losses
        return Options(losses, chosen, found.neighbours, found.mixture, found.held_out, found.models)
    learned = learn_weights(sample, penalty)
    losses[:, 2] = _held_out(sample, learned, penalty)
    lists = listed([(np.arange(sample.agents), learned.shares)], sample.agents, exchange_of(sample))
    return Options(losses, chosen, lists, learned.mixture, learned.held_out)


def _held_out(sample: Sample, learned: Learned, penalty: float) -> np.ndarray:
    """(rows,) loss of every row under its client's neighbours' model; weights were found without the row's fold."""
    losses, by_row = np.empty(len(sample.owner)), is_quick(sample)
    for fold in range(sample.folds):
        training, judged = sample.without(fold), sample.only(fold)
        if by_row:  # of the others' rows none is missing, of its own only the one that judges
            weights = _counted(row_weights(learned.fold_shares[fold], sample.counts))
            models = fit(sample, weights, penalty)
            fitted = Fitted(_hessians(sample, weights, models), np.diagonal(weights))
            losses[sample.fold == fold] = left_out_losses(sample, models, penalty, fitted)[sample.fold == fold]
        else:
            models = fit(training, row_weights(learned.fold_shares[fold], training.counts), penalty)
            losses[sample.fold == fold] = score_own(judged, models)
    return losses


def _counted(weights: np.ndarray) -> np.ndarray:
    """A weight below a thousandth of the largest changes nothing that rows could tell, and costs time."""
    return np.where(weights > 1e-3 * weights.max(axis=1, keepdims=True, initial=0.0), weights, 0.0)


def fit(sample: Sample, weights: np.ndarray, penalty: float) -> np.ndarray:
    """(models, size) optima for every row of `weights`, what one row of client j counts.

    All start from the optimum of all rows, where every client's search is short.
    """
    start = np.tile(common_model(sample, penalty), (len(weights), 1))
    kept = _counted(weights)
    if _small(sample):
        return sample.for_models(kept).optima(sample.ridge(penalty), start)
    return np.stack([optimum(sample, row, penalty, one) for row, one in zip(kept, start)])


def _small(sample: Sample) -> bool:
    """Whether all models are quicker at once than one by one."""
    held = len(sample.owner) * sample.size**2
    return sample.size <= FEW_COEFFICIENTS and held <= NUMBERS_AT_ONCE and not sample.loss.diagonal


def _hessians(sample: Sample, weights: np.ndarray, models: np.ndarray) -> np.ndarray:
    """(models, size, size) of the weighted losses."""
    if _small(sample):
        return sample.for_models(weights).hessians(models)
    shaped = models.reshape(-1, *sample.loss.shape)
    return np.stack([sample.loss.hessian(sample.for_model(row), model) for row, model in zip(weights, shaped)])


def fit_options(sample: Sample, options: Options) -> dict[str, np.ndarray]:
    """(clients, size) models of every way, on all rows of clients that send; alone, on a client's own."""
    neighbours, heard = options.models, sample.heard(options.least)
    if neighbours is None:
        weights = row_weights(options.neighbours.dense(), heard.counts)
        neighbours = fit(heard, weights, options.penalties["neighbours"])
    return {
        "alone": _fit_alone(sample, options.penalties["alone"], None),
        "everybody": _fit_together(heard, options.penalties["everybody"], None),
        "neighbours": neighbours,
    }


def _fit_alone(sample: Sample, penalty: float, start: np.ndarray | None) -> np.ndarray:
    if start is None:
        start = np.tile(common_model(sample, penalty), (sample.agents, 1))
    return own_optima(sample, penalty, start)


def _fit_together(sample: Sample, penalty: float, start: np.ndarray | None) -> np.ndarray:
    first = np.zeros(sample.size) if start is None else start[0]
    return np.tile(optimum(sample, np.ones(sample.agents), penalty, first), (sample.agents, 1))


_SOLVERS = {"alone": _fit_alone, "everybody": _fit_together}


def _by_rows(sample: Sample, way: str, penalties: tuple[float, ...]) -> np.ndarray:
    """(rows, penalties) losses of training alone or with all, every row left out in turn."""
    losses, models, fitted = np.empty((len(sample.owner), len(penalties))), None, None
    loss, rows = sample.loss, sample.for_model(np.ones(sample.agents))
    for place, penalty in enumerate(penalties):
        models = _SOLVERS[way](sample, penalty, models)
        if way == "everybody":
            whole = loss.hessian(rows, models[0].reshape(loss.shape))
            fitted = Fitted(np.broadcast_to(whole, (sample.agents, *whole.shape)), np.ones(sample.agents))
        losses[:, place] = left_out_losses(sample, models, penalty, fitted)
    return losses


def _by_folds(sample: Sample, way: str, penalties: tuple[float, ...]) -> np.ndarray:
    """(rows, penalties) losses of every row under models fitted without its fold."""
    losses = np.empty((len(sample.owner), len(penalties)))
    for fold in range(sample.folds):
        training, judged = sample.without(fold), sample.only(fold)
        models: np.ndarray | None = None
        for place, penalty in enumerate(penalties):
            models = _SOLVERS[way](training, penalty, models)
            losses[sample.fold == fold, place] = score_own(judged, models)
    return losses
