# SPDX-License-Identifier: Apache-2.0
"""When a run has converged: the last third of its rounds no longer improved its score on validation rows."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

LEAST_RECORDS = 12  # before which no run is ended
TOLERANCE = 0.001  # an improvement by less than this part of the best score is none


def has_converged(rounds: Sequence[int], scores: Sequence[float], tolerance: float = TOLERANCE) -> bool:
    """Whether the best score of the last third of the rounds betters that of the rounds before by less than a part.

    `scores` are larger for better models. The longer a run has trained, the longer it must stand still: a slow method
    is not cut off for being slow.
    """
    if len(rounds) < LEAST_RECORDS or not math.isfinite(scores[-1]):
        return False
    early = bisect.bisect_right(rounds, 2 * rounds[-1] / 3)
    before, after = (
        max((score for score in part if not math.isnan(score)), default=math.nan) for part in (scores[:early], scores)
    )
    return after - before <= tolerance * abs(after)


def needs_no_more(rounds: Sequence[int], scores: Sequence[float]) -> bool:
    """Whether a run that was ended had no use for more rounds: it has converged, or its last third brought nothing.

    Few records cannot end a run, but where the best of them was long passed when the rounds were over, as round 0 is by
    a method that does harm, there was nothing left to wait for.
    """
    known = [(score, -number) for score, number in zip(scores, rounds) if math.isfinite(score)]
    if not known or not rounds[-1]:
        return False
    _, best = max(known)  # the earliest of those that are equal
    return -best <= 2 * rounds[-1] / 3 or has_converged(rounds, scores)
