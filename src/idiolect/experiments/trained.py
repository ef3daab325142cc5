# SPDX-License-Identifier: Apache-2.0
"""A method after training, what it answers, and scores in the units of the user's table.

A numeric target is scaled for training, never for the reader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from idiolect.accounting.ledger import FIELDS, Ledger
from idiolect.data.federation import Federation
from idiolect.engines.recording import ClientScores, Recorder
from idiolect.metrics.scores import SCORES

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


def unit(score: str, federation: Federation) -> float:
    """What 1 of a recorded score is worth in the table's own units. Several scaled targets have no common unit: 1."""
    scales = federation.preprocessing.target.scales if federation.preprocessing is not None else ()
    return float(scales[0] ** SCORES[score].power) if len(scales) == 1 else 1.0


def unit_sentence(score: str, federation: Federation) -> str:
    """Which units the errors are in, where a target was scaled; otherwise nothing."""
    power = SCORES[score].power
    if not power or federation.preprocessing is None:
        return ""
    names = federation.preprocessing.target.names
    own = f"Errors are in {'squared ' if power == 2 else ''}units of {names[0]!r} as the table has it."
    return own if len(names) == 1 else "Errors are summed over the targets, each divided by its standard deviation."


def in_table_units(scores: ClientScores, federation: Federation) -> ClientScores:
    """Per-client scores in the table's own units."""
    return {
        split: {
            model: {name: [unit(name, federation) * value for value in values] for name, values in named.items()}
            for model, named in models.items()
        }
        for split, models in scores.items()
    }


def restore_units(recorder: Recorder, federation: Federation) -> None:
    """Put a finished record into the table's own units."""
    recorder.last, recorder.selected = (
        in_table_units(scores, federation) for scores in (recorder.last, recorder.selected)
    )
    units = {
        f"validation_{model}_{name}_{part}": unit(name, federation)
        for model in ("shared", "personal")
        for name in recorder.scores
        for part in ("mean", "worst_decile", "spread")
    }
    recorder.history = [
        {key: value * units[key] if key in units else value for key, value in row.items()} for row in recorder.history
    ]
