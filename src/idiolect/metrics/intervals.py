# SPDX-License-Identifier: Apache-2.0
"""What one client's few rows can tell: an interval per client, and helped / hurt / unclear."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.keys import Purpose, host_generator
from idiolect.metrics.summary import bootstrap_interval, gains

# Resampling fewer rows proves nothing: n rows that all agree are a sign test with p = 2 / 2^n > 5 % below 6.
MINIMUM_ROWS = 6


class Intervals(NamedTuple):
    """One value and its interval per client, not-a-number where the client has none."""

    value: np.ndarray  # (clients,)
    low: np.ndarray
    high: np.ndarray


def client_intervals(scores: Any, rows: Any, level: float = 0.95) -> Intervals:
    """Wilson score interval per client for a score that is a share of rows (accuracy).

    With p the score, n the rows and z the normal quantile: centre (p + z^2/2n) / (1 + z^2/n), half-width
    z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n). Wilson (1927).
    """
    share, number = _score_and_rows(scores, rows)
    outside = share[(share < 0) | (share > 1)]
    if outside.size:
        raise RequestError(
            f"client_intervals needs shares between 0 and 1, got {outside[0]:g}. "
            "For losses and AUC resample rows instead: client_gains or gain_interval."
        )
    quantile = _quantile(level)
    shrink = 1 + quantile**2 / number
    centre = (share + quantile**2 / (2 * number)) / shrink
    half = quantile * np.sqrt(share * (1 - share) / number + quantile**2 / (4 * number**2)) / shrink
    # At p = 0 and p = 1 an end equals the score: rounding must push neither out of the other's place.
    return Intervals(share, np.clip(centre - half, 0, share), np.clip(centre + half, share, 1))


def gains_from_scores(candidate: Any, reference: Any, rows: Any, level: float = 0.95) -> Intervals:
    """Interval of candidate - reference per client when only two shares of rows are known, not the rows.

    Newcombe's (1998) square-and-add of two Wilson intervals. It ignores that both models saw the same rows,
    so it is too wide (never too sure) when the models tend to err on the same rows; prefer `client_gains`.
    """
    ours, theirs = client_intervals(candidate, rows, level), client_intervals(reference, rows, level)
    gain = ours.value - theirs.value
    low = gain - np.hypot(ours.value - ours.low, theirs.high - theirs.value)
    high = gain + np.hypot(ours.high - ours.value, theirs.value - theirs.low)
    return Intervals(gain, low, high)


def client_gains(
    candidate: Any,
    reference: Any,
    mask: Any,
    higher_is_better: bool,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> Intervals:
    """Paired gain per client from what both models did on the same rows: (clients, rows) arrays and a mask.

    Booleans (row answered correctly) give Agresti and Min's interval, which needs no resampling and holds for
    few rows; numbers (losses per row) give a percentile bootstrap over the client's rows, not-a-number under
    `MINIMUM_ROWS` of them. A client's draws depend on (seed, its position) only.
    """
    ours, theirs, real = (np.asarray(values) for values in (candidate, reference, mask))
    if ours.ndim != 2 or ours.shape != theirs.shape or ours.shape != real.shape:
        raise RequestError(
            f"client_gains needs three (clients, rows) arrays of one shape, got {ours.shape}, {theirs.shape} "
            f"and {real.shape}. Pad every client to the same number of rows."
        )
    real = real.astype(bool)
    if ours.dtype == bool and theirs.dtype == bool:
        wins, losses = (ours & ~theirs & real).sum(1), (~ours & theirs & real).sum(1)
        if not higher_is_better:
            wins, losses = losses, wins
        return _matched_shares(wins, losses, real.sum(1), level)
    better = gains(np.where(real, ours, 0), np.where(real, theirs, 0), higher_is_better)
    value, low, high = (np.full(len(better), np.nan) for _ in range(3))
    with np.errstate(invalid="ignore"):
        for client in np.flatnonzero(real.any(axis=1)):
            present = better[client, real[client]]
            value[client] = present.mean()
            if present.size >= MINIMUM_ROWS and not np.isnan(value[client]):
                generator = host_generator(seed, Purpose.BOOTSTRAP, int(client))
                low[client], high[client] = bootstrap_interval(present, generator, resamples, level)
    return Intervals(value, low, high)


def verdicts(intervals: Intervals) -> np.ndarray:
    """'helped' where the whole interval of the gain is above 0, 'hurt' where below, 'unclear' elsewhere."""
    # Comparisons with not-a-number are false, so a client without an interval is unclear.
    return np.where(intervals.low > 0, "helped", np.where(intervals.high < 0, "hurt", "unclear"))


def _matched_shares(wins: np.ndarray, losses: np.ndarray, rows: np.ndarray, level: float) -> Intervals:
    """Agresti and Min (2005): Wald interval of a difference of matched shares, 1/2 added to each cell.

    With N = n + 2, d = wins - losses: centre d / N, variance (wins + losses + 1 - d^2 / N) / N^2.
    """
    net, total = (wins - losses).astype(float), rows + 2.0
    half = _quantile(level) * np.sqrt(wins + losses + 1 - net**2 / total) / total
    number = np.where(rows > 0, rows, np.nan)
    bounds = (np.clip(net / total + sign * half, -1, 1) + 0 * number for sign in (-1, 1))
    return Intervals(net / number, *bounds)


def _score_and_rows(scores: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    share = np.asarray(scores, float)
    number = np.broadcast_to(np.asarray(rows, float), share.shape)
    return share, np.where(number > 0, number, np.nan)


def _quantile(level: float) -> float:
    if not 0 < level < 1:
        raise RequestError(f"level must be above 0 and below 1, got {level:g}. The usual level is 0.95.")
    return NormalDist().inv_cdf(0.5 + level / 2)
