# SPDX-License-Identifier: Apache-2.0
"""A method after training, and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from idiolect.accounting.ledger import FIELDS, Ledger

if TYPE_CHECKING:
    from idiolect.engines.simulate import Run
    from idiolect.experiments.build import Built
    from idiolect.experiments.spec import MethodSpec
    from idiolect.experiments.tuning import Tuned
    from idiolect.record.divergence import Divergence


@dataclasses.dataclass
class Trained:
    """One method's runs, one per seed."""

    built: Built
    runs: list[Run]
    choice: Tuned | None = None  # what was chosen on validation rows, and by what evidence

    @property
    def method(self) -> MethodSpec:
        """As the spec has it."""
        return self.built.method

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


def mean_ledger(runs: Sequence[Run]) -> Ledger:
    """What runs cost on average, in whole units."""
    return Ledger(**{name: round(np.mean([getattr(run.ledger, name) for run in runs])) for name in FIELDS})


def over_clients(values: np.ndarray, known: np.ndarray | None = None, weights: np.ndarray | float = 1.0) -> np.ndarray:
    """(..., clients) -> the mean over clients that have the number (default: it is one); not-a-number for none."""
    known = ~np.isnan(values) if known is None else known
    total = np.where(known, weights, 0.0).sum(axis=-1)
    return np.asarray(np.where(known, values * weights, 0.0).sum(axis=-1) / np.where(total > 0, total, np.nan))


def overall_mean(scores: np.ndarray) -> float | None:
    """Of (seeds, clients): the mean over clients that have a score, then over seeds; None where a seed has none."""
    mean = float(over_clients(scores).mean())
    return None if np.isnan(mean) else mean
