# SPDX-License-Identifier: Apache-2.0
"""Which method a run announces: the best on validation rows, with those that are level with it within noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from idiolect.experiments.outcome import validation_scores
from idiolect.experiments.trained import Trained
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import paired_difference

LEVEL = 0.95  # of the interval that must hold a difference of 0 for a tie


def announce(trained: list[Trained], score: str, chosen: Mapping[str, bool | None]) -> dict[str, Any] | None:
    """The announced method, its mean, and the methods tied with it; None where nothing was validated.

    Of a sweep's settings only the chosen ones stand for election. Test rows are not read.
    """
    higher = SCORES[score].higher_is_better
    found = {
        entry.method.label: validation_scores(entry, score)
        for entry in trained
        if chosen[entry.method.label] is not False and entry.diverged is None
    }
    means = {label: float(np.nanmean(values)) for label, values in found.items() if not np.isnan(values).all()}
    if not means:
        return None
    best = (max if higher else min)(means, key=lambda label: means[label])
    tied = [label for label in means if label != best and is_tied(found[best], found[label], higher)]
    return {"method": best, "score": score, "validation_mean": means[best], "tied": tied}


def is_tied(best: np.ndarray, other: np.ndarray, higher: bool) -> bool:
    """Whether the mean of the clients' paired differences may be 0, by Student's t over clients."""
    ahead, error, clients = paired_difference(best, other, higher)
    return clients < 2 or ahead <= float(stats.t.ppf(0.5 + LEVEL / 2, clients - 1)) * error
