# SPDX-License-Identifier: Apache-2.0
"""A method after training, and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from idiolect.engines.simulate import Run
from idiolect.experiments.protection import Spending
from idiolect.experiments.row_protection import RowSpending
from idiolect.experiments.spec import MethodSpec
from idiolect.experiments.tuning import Tuned
from idiolect.record.divergence import Divergence


@dataclasses.dataclass
class Trained:
    """One method's runs, one per seed, and what was said about its settings."""

    method: MethodSpec
    runs: list[Run]
    notes: list[str]
    choice: Tuned | None = None  # what was chosen on validation rows, and by what evidence
    protected: tuple[str, ...] = ()  # what protections were around it, in words
    spending: Spending | RowSpending | None = None  # what its rounds spent of a privacy budget

    @property
    def diverged(self) -> Divergence | None:
        """Where the first seed that did left the finite numbers."""
        return next((run.recorder.diverged for run in self.runs if run.recorder.diverged), None)

    def scores(self, score: str, split: str = "test", model: str = "personal", when: str = "selected") -> np.ndarray:
        """(seeds, clients): what the models score on a split; no client where a run has not recorded it."""
        return recorded(self.runs, score, split, model, when)


def recorded(runs: Sequence[Run], score: str, split: str, model: str, when: str) -> np.ndarray:
    """(runs, clients): a score as it was recorded at the "selected" or "last" round; (runs, 0) where it was not."""
    found = [getattr(run.recorder, when).get(split, {}).get(model, {}).get(score, ()) for run in runs]
    return np.asarray(found, np.float64)


def mean_answer(entry: Trained, score: str) -> np.ndarray:
    """What a method gives each client on test rows: its mean over seeds, which are not independent witnesses."""
    return np.asarray(entry.scores(score).mean(axis=0))


def over_clients(scores: np.ndarray) -> float | None:
    """Of (seeds, clients): the mean over the clients that have a score, then over seeds; None where a seed has none."""
    known = ~np.isnan(scores)
    if not known.any(axis=-1).all():
        return None
    return float((np.where(known, scores, 0.0).sum(axis=-1) / known.sum(axis=-1)).mean())
