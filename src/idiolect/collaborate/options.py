# SPDX-License-Identifier: Apache-2.0
"""Three ways to learn - alone, with everybody, with neighbours - solved to their optimum and judged row by row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.collaborate.quadratic import Sample, optimum, row_weights, score_own
from idiolect.collaborate.weights import Learned, alone, learn_weights, together

OPTIONS = ("alone", "everybody", "neighbours")
PENALTIES = (100.0, 10.0, 1.0, 0.1)  # in rows: (penalty/2) |V|^2 beside the sum of losses; strongest first


class Options(NamedTuple):
    """What the three ways cost on rows that they had not seen, and how they would be fitted on all rows."""

    losses: np.ndarray  # (rows, 3) held-out loss of every row of the sample
    penalties: dict[str, float]  # chosen on held-out rows, one per way
    learned: Learned  # Lambda of the neighbours

    def shares(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Lambda of every way."""
        return {
            "alone": alone(len(counts)),
            "everybody": together(counts),
            "neighbours": self.learned.shares,
        }


def try_options(sample: Sample, penalties: tuple[float, ...] = PENALTIES) -> Options:
    """Every row's loss under models that were chosen and fitted without its fold."""
    chosen, losses = {}, np.empty((len(sample.owner), 3))
    everybody = np.ones((1, sample.agents))
    chosen["alone"], losses[:, 0] = _choose_penalty(sample, alone(sample.agents), penalties)
    chosen["everybody"], losses[:, 1] = _choose_penalty(sample, everybody, penalties)
    chosen["neighbours"] = chosen["alone"]  # it says how large coefficients are, which is the same for all
    learned = learn_weights(sample, chosen["neighbours"])
    for fold in range(sample.folds):
        training, judged = sample.without(fold), sample.only(fold)
        weights = row_weights(learned.fold_shares[fold], training.counts)
        models = fit(training, weights, chosen["neighbours"])
        losses[sample.fold == fold, 2] = score_own(judged, models)
    return Options(losses, chosen, learned)


def fit(sample: Sample, weights: np.ndarray, penalty: float, start: np.ndarray | None = None) -> np.ndarray:
    """(models, size) optima for every row of `weights`, what one row of agent j counts; equal rows are solved once.

    The models of few agents start from everybody's optimum, where every agent's search is short.
    """
    if start is None:
        common = optimum(sample, np.ones(sample.agents), penalty, np.zeros(sample.size))
        start = np.tile(common, (len(weights), 1))
    found = np.empty((len(weights), sample.size))
    solved: dict[bytes, int] = {}
    for place, row in enumerate(weights):
        # a share below a thousandth of the largest changes nothing that rows could tell, and costs time
        kept = np.where(row > 1e-3 * row.max(initial=0.0), row, 0.0)
        earlier = solved.setdefault(kept.tobytes(), place)
        found[place] = found[earlier] if earlier != place else optimum(sample, kept, penalty, start[place])
    return found


def fit_options(sample: Sample, options: Options) -> dict[str, np.ndarray]:
    """(agents, size) models of every way, on all rows of the sample."""
    return {
        name: fit(sample, row_weights(shares, sample.counts), options.penalties[name])
        for name, shares in options.shares(sample.counts).items()
    }


def _choose_penalty(sample: Sample, weights: np.ndarray, penalties: tuple[float, ...]) -> tuple[float, np.ndarray]:
    """The penalty with the least held-out loss, mean over agents, and the losses of all rows under it."""
    losses = np.empty((len(sample.owner), len(penalties)))
    for fold in range(sample.folds):
        training, judged = sample.without(fold), sample.only(fold)
        models: np.ndarray | None = None
        for place, penalty in enumerate(penalties):
            models = fit(training, weights, penalty, models)
            every = models if len(models) == sample.agents else np.repeat(models, sample.agents, axis=0)
            losses[sample.fold == fold, place] = score_own(judged, every)
    best = int(np.argmin(sample.means(losses).mean(axis=0)))
    return penalties[best], losses[:, best]
