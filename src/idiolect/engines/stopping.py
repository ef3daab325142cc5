# SPDX-License-Identifier: Apache-2.0
"""When a run has converged: the last third of its rounds no longer improved its score on validation rows."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

LEAST_RECORDS = 12  # before which nothing is said
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
