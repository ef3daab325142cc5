# SPDX-License-Identifier: Apache-2.0
"""A method after training, and what it answers."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.engines.simulate import Run
from idiolect.experiments.spec import MethodSpec
from idiolect.experiments.tuning import Tuned
from idiolect.record.divergence import Divergence


@dataclasses.dataclass
class Trained:
    """One method's runs, one per seed, and what was said about its settings."""

    method: MethodSpec
    runs: list[Run]
    notes: list[str]
    tuned: str | None = None
    choice: Tuned | None = None  # what was chosen on validation rows, and by what evidence

    @property
    def diverged(self) -> Divergence | None:
        """Where the first seed that did left the finite numbers."""
        return next((run.recorder.diverged for run in self.runs if run.recorder.diverged), None)


def answer(run: Run, score: str) -> np.ndarray:
    """What a method gives each client: its personal model at the selected round, on test rows."""
    return np.asarray(run.recorder.selected["test"]["personal"][score], np.float64)


def mean_answer(entry: Trained, score: str) -> np.ndarray:
    """One number per client: its mean over seeds, which are not independent witnesses."""
    return np.asarray(np.mean([answer(run, score) for run in entry.runs], axis=0))
