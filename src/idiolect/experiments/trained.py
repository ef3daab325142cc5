# SPDX-License-Identifier: Apache-2.0
"""A method after training, and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from idiolect.engines.simulate import Run
    from idiolect.experiments.protection import RowSpending, Spending
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


def over_clients(values: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """(..., clients) -> the mean over clients that have the number (default: it is one); not-a-number for none."""
    known = ~np.isnan(values) if known is None else known
    count = known.sum(axis=-1)
    return np.asarray(np.where(known, values, 0.0).sum(axis=-1) / np.where(count > 0, count, np.nan))


def overall_mean(scores: np.ndarray) -> float | None:
    """Of (seeds, clients): the mean over clients that have a score, then over seeds; None where a seed has none."""
    mean = float(over_clients(scores).mean())
    return None if np.isnan(mean) else mean
