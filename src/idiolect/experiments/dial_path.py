# SPDX-License-Identifier: Apache-2.0
"""What a dial takes where nothing is asked: values, rounds to the optimum, a ridge; and test scores after a refit."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.collaborate.quadratic import Sample, make_sample, optimum, score_own
from idiolect.collaborate.threads import one_thread
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.core.data import join_rows
from idiolect.data.federation import Federation
from idiolect.engines.run import Run
from idiolect.experiments.build import choose_scores
from idiolect.experiments.choice import Tried
from idiolect.experiments.collaboration import plain_loss
from idiolect.experiments.sources import build_data, refuse_weights
from idiolect.experiments.spec import Spec

if TYPE_CHECKING:
    import pyarrow as pa

# Paths from one model for all to every client alone. Data are scaled, so that curvatures are of the order of 1: a
# penalty of 30 holds personal models at the shared one, one of 0.003 lets them go.
DEFAULT_VALUES = {
    "personalization": (1.0, 0.5, 0.2, 0.1, 0.0),
    "penalty": (30.0, 5.0, 1.0, 0.2, 0.03, 0.003),
}
PLAIN_ROUNDS = 30  # where theory does not say how many are enough
MOST_ROUNDS = 1_000
ACCURACY = 1e-4  # what is left of the squared distance to the optimum after each value's rounds
RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
_MOST_TRIED = 300  # clients on which the ridge is chosen


class Refitted(Tried):
    """A value whose validation scores are those of the path, and whose models were trained once more on all rows."""

    again: list[Run]

    @classmethod
    def join(cls, path: Tried, again: Tried) -> Refitted:
        """Both paths' runs at one value."""
        one = cls(*path)
        one.again = again.runs
        return one

    @property
    def refit(self) -> Tried:
        """The second path at this value."""
        return Tried(self.value, self.again, self.rank)

    @property
    def cost(self) -> Ledger:
        """Of both paths."""
        return Tried(*self).cost + self.refit.cost

    def scores(self, split: str, score: str, when: str) -> np.ndarray:
        """Validation rows judged the path before they were trained on; test rows judge the refit."""
        one = self.refit if split == "test" else Tried(*self)
        return one.scores(split, score, when)

    def client_bytes(self) -> list[float] | None:
        """Of both paths."""
        parts = [Tried(*self).client_bytes(), self.refit.client_bytes()]
        known = [part for part in parts if part is not None]
        return np.sum(known, axis=0).tolist() if len(known) == len(parts) else None


def with_all_rows(federation: Federation) -> Federation:
    """Validation rows train, too; they stay where they are so that scores can be computed as before."""
    train, order = join_rows(federation.train, federation.validation)
    groups = federation.groups
    if groups is not None:
        groups = np.concatenate(groups[:2])[order], groups[1], groups[2]
    # rows were prepared, and that was billed, on the first path
    return dataclasses.replace(federation, train=train, groups=groups, preparation=None)


def enough_rounds(algorithm: Algorithm) -> int:
    """Rounds after which theory promises the optimum to ACCURACY; PLAIN_ROUNDS where it promises nothing."""
    chance = getattr(algorithm, "communication_probability", None)
    if chance is not None:  # ProxSkip's rate: 1 - p^2 an iteration, 1/p of them a round
        return _bounded(-math.log(ACCURACY) / float(np.min(chance)))
    steps: Any = getattr(algorithm, "coefficients", None)
    if steps is not None and float(np.min(steps.momentum)) > 0:
        return _bounded(-math.log(ACCURACY) * float(np.max(steps.shared_probability)) / float(np.min(steps.momentum)))
    return PLAIN_ROUNDS


def _bounded(rounds: float) -> int:
    return max(PLAIN_ROUNDS, min(math.ceil(rounds), MOST_ROUNDS))


def loss_scores(spec: Spec, federation: Federation) -> tuple[tuple[str, ...], str]:
    """The loss decides, as in `advise`: a few validation rows tell losses apart, but hardly accuracies."""
    scores, reason = choose_scores(spec, federation)
    if spec.evaluation.scores or federation.train.targets.ndim > 1:
        return scores, reason
    loss = "squared_error" if federation.task.kind == "regression" else "log_loss"
    asked = "--set 'evaluation.scores = [\"accuracy\"]'" if loss == "log_loss" else "--set 'evaluation.scores = [...]'"
    reason = f"Scored by {loss.replace('_', ' ')} (lower is better), as `advise` does; {asked} takes another score."
    return (loss, *(name for name in scores if name != loss)), reason


def choose_ridge(spec: Spec, rows: pa.Table | None = None) -> tuple[float, str]:
    """The l2 with the least validation loss, mean of every client alone and of one model for all; and a sentence."""
    refuse_weights(spec.data, "dial")
    federation, _ = build_data(spec.data, "float64", rows)
    if federation.train.inputs.dtype.kind != "f":
        raise RequestError("dial needs numeric inputs or a table; this data set holds tokens: choose another.")
    kept = np.linspace(0, federation.clients - 1, min(federation.clients, _MOST_TRIED)).astype(int)
    loss = plain_loss(federation)
    train, judged = (make_sample(loss, part.select(kept), 2) for part in (federation.train, federation.validation))
    if not len(judged.owner):
        return 0.01, "The ridge is l2 = 0.01: there are no validation rows to choose it on (--l2 sets it)."
    with one_thread():
        losses = [_ridge_loss(train, judged, ridge) for ridge in RIDGES]
    best = RIDGES[int(np.argmin(losses))]
    return best, f"The ridge l2 = {best:g} has the least validation loss of {len(RIDGES)} tried (--l2 sets it)."


def _ridge_loss(train: Sample, judged: Sample, ridge: float) -> float:
    """Of clients alone and of one model for all, each with `ridge` times its rows as penalty."""
    together = optimum(train, np.ones(train.agents), ridge * len(train.owner), np.zeros(train.size))
    own = np.stack(
        [
            optimum(train.some_agents(np.array([client])), np.ones(1), ridge * rows, together)
            for client, rows in enumerate(train.counts)
        ]
    )
    tested = judged.counts > 0
    every = np.tile(together, (train.agents, 1))
    return float(np.mean([judged.means(score_own(judged, models))[tested].mean() for models in (own, every)]))
