# SPDX-License-Identifier: Apache-2.0
"""What one client's few rows can tell: an interval of its score, and of its gain."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from idiolect.core.checks import RequestError
from idiolect.metrics.paired import Intervals, paired_estimates, student_intervals
from idiolect.metrics.summary import gains

# n rows that all agree are a sign test with p = 2 / 2^n, above 5 % below 6: fewer rows prove nothing by themselves.
MINIMUM_ROWS = 6


def client_intervals(scores: ArrayLike, rows: ArrayLike, level: float = 0.95) -> Intervals:
    """Wilson score interval per client for a score that is a fraction of rows (accuracy).

    With p the score, n the rows and z the normal quantile: centre (p + z^2/2n) / (1 + z^2/n), half-width
    z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n). Wilson (1927).
    """
    fraction, number = _score_and_rows(scores, rows)
    outside = fraction[(fraction < 0) | (fraction > 1)]
    if outside.size:
        raise RequestError(
            f"client_intervals needs fractions between 0 and 1, got {outside[0]:g}. "
            "For gains in any score use client_gains."
        )
    quantile = _quantile(level)
    shrink = 1 + quantile**2 / number
    centre = (fraction + quantile**2 / (2 * number)) / shrink
    half = quantile * np.sqrt(fraction * (1 - fraction) / number + quantile**2 / (4 * number**2)) / shrink
    # At p = 0 and p = 1 an end equals the score: rounding must push neither out of the other's place.
    return Intervals(fraction, np.clip(centre - half, 0, fraction), np.clip(centre + half, fraction, 1))


def gains_from_scores(candidate: ArrayLike, reference: ArrayLike, rows: ArrayLike, level: float = 0.95) -> Intervals:
    """Interval of candidate - reference per client when only two fractions of rows are known, not the rows.

    Newcombe's (1998) square-and-add of two Wilson intervals. It ignores that both models saw the same rows,
    so it is too wide (never too sure) when the models tend to err on the same rows; prefer `client_gains`.
    """
    ours, theirs = client_intervals(candidate, rows, level), client_intervals(reference, rows, level)
    gain = ours.value - theirs.value
    low = gain - np.hypot(ours.value - ours.low, theirs.high - theirs.value)
    high = gain + np.hypot(ours.high - ours.value, theirs.value - theirs.low)
    return Intervals(gain, low, high)


def client_gains(
    candidate: ArrayLike,
    reference: ArrayLike,
    mask: ArrayLike,
    higher_is_better: bool,
    groups: ArrayLike | None = None,
    level: float = 0.95,
) -> Intervals:
    """Paired gain per client from what both models did on the same rows: (clients, rows) arrays and a mask.

    Student's t on the rows' differences, see `paired_estimates`; booleans (row answered correctly) differ by at most 1.
    """
    ours, theirs, real = (np.asarray(values) for values in (candidate, reference, mask))
    if ours.ndim != 2 or ours.shape != theirs.shape or ours.shape != real.shape:
        raise RequestError(
            f"client_gains needs three (clients, rows) arrays of one shape, got {ours.shape}, {theirs.shape} "
            f"and {real.shape}. Pad every client to the same number of rows."
        )
    real = real.astype(bool)
    better = gains(np.where(real, ours, 0), np.where(real, theirs, 0), higher_is_better)
    bound = 1.0 if ours.dtype == bool and theirs.dtype == bool else None
    found = student_intervals(paired_estimates(better, real, groups, bound), level)
    return found if bound is None else within(found, bound)


def within(found: Intervals, bound: float) -> Intervals:
    """The intervals cut to -bound .. bound, beyond which no gain can be."""
    return found._replace(low=np.clip(found.low, -bound, bound), high=np.clip(found.high, -bound, bound))


def _score_and_rows(scores: ArrayLike, rows: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    fraction = np.asarray(scores, float)
    number = np.broadcast_to(np.asarray(rows, float), fraction.shape)
    return fraction, np.where(number > 0, number, np.nan)


def _quantile(level: float) -> float:
    if not 0 < level < 1:
        raise RequestError(f"level must be above 0 and below 1, got {level:g}. The usual level is 0.95.")
    return NormalDist().inv_cdf(0.5 + level / 2)
