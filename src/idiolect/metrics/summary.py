# SPDX-License-Identifier: Apache-2.0
"""One number per client, summarised: centre, spread, the worst tenth, percentiles, and who was helped.

Not-a-number means that a client has no such score: it is left out of every summary and counted in `missing`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from idiolect.core.checks import RequestError

ROUNDING = 1e-6  # of a score, relative: eight units in the last place of float32
LEVEL = 0.95  # of every interval
_NAN = float("nan")
_DRAWS_AT_ONCE = 4_000_000  # bounds the memory of a bootstrap: 32 MB of row numbers


class Summary(NamedTuple):
    """A score over clients; every number is not-a-number when no client has the score."""

    mean: float
    spread: float  # standard deviation over clients (the population's: divided by their number)
    worst_decile: float  # mean over the worst tenth of clients, at least one of them
    p10: float
    p20: float
    p25: float
    p30: float
    p40: float
    p50: float
    p60: float
    p70: float
    p75: float
    p80: float
    p90: float
    clients: int  # clients that have the score
    missing: int  # clients that have none

    @property
    def deciles(self) -> tuple[float, ...]:
        """p10, p20, .. p90."""
        return tuple(float(getattr(self, f"p{percent}")) for percent in range(10, 100, 10))


PERCENTS = (10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90)  # deciles and quartiles
PARTS = ("mean", "spread", "worst_decile", *(f"p{percent}" for percent in PERCENTS))


class Gain(NamedTuple):
    """How much better the candidate is than the reference, paired by client; positive is better."""

    mean: float
    low: float  # 95 % interval of the mean over clients, Student's t
    high: float
    better: float  # percent of clients whose gain is above 0, whatever its interval
    worse: float
    equal: float
    clients: int
    missing: int


def summarise(values: ArrayLike, higher_is_better: bool) -> Summary:
    """Summarise one number per client."""
    scores = np.asarray(values, float)
    if scores.ndim != 1:
        raise RequestError(
            f"values must hold one number per client, got shape {scores.shape}. Pass a (clients,) array."
        )
    present = np.sort(scores[~np.isnan(scores)])
    missing = scores.size - present.size
    if present.size == 0:
        return Summary._make((*(_NAN,) * len(PARTS), 0, missing))
    tenth = max(1, present.size // 10)
    worst = present[:tenth] if higher_is_better else present[-tenth:]
    shown = map(float, percentiles(present, PERCENTS))
    with np.errstate(invalid="ignore"):  # an infinite loss has an infinite mean and no spread
        mean, spread, worst_decile = float(present.mean()), float(present.std()), float(worst.mean())
    return Summary._make((mean, spread, worst_decile, *shown, present.size, missing))


def paired_gain(candidate: ArrayLike, reference: ArrayLike, higher_is_better: bool) -> Gain:
    """Gain of the candidate over the reference, client by client, with an interval of its mean over clients."""
    every = gains(candidate, reference, higher_is_better)
    present = every[~np.isnan(every)]
    missing = every.size - present.size
    if present.size == 0:
        return Gain(_NAN, _NAN, _NAN, _NAN, _NAN, _NAN, 0, missing)
    low, high = student_interval(present)
    signs = (present > 0, present < 0, present == 0)
    better, worse, equal = (100.0 * int(sign.sum()) / present.size for sign in signs)
    with np.errstate(invalid="ignore"):
        mean = float(present.mean())
    return Gain(mean, low, high, better, worse, equal, present.size, missing)


def paired_difference(
    candidate: ArrayLike, reference: ArrayLike, higher_is_better: bool, weights: ArrayLike | None = None
) -> tuple[float, float, int]:
    """Mean over clients of how much better the candidate is, its standard error, and the clients that have both.

    With weights w the error is that of a weighted mean: n/(n-1) sum w^2 (gain - mean)^2 / (sum w)^2. Methods whose mean
    differs from the best one's by less than two errors are level with it.
    """
    every = gains(candidate, reference, higher_is_better)
    weight = np.ones(every.shape) if weights is None else np.asarray(weights, float)
    used = np.isfinite(every) & (weight > 0)
    if not used.any():
        return _NAN, _NAN, 0
    present, weight = every[used], weight[used] / weight[used].sum()
    mean, number = float(weight @ present), int(used.sum())
    if number == 1:
        return mean, _NAN, 1
    return mean, float(np.sqrt(number / (number - 1) * (weight**2) @ (present - mean) ** 2)), number


def student_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean over clients by Student's t; not-a-number for fewer than two values, or infinite ones.

    A bootstrap over few clients is too narrow: of 4 clients its 95 % interval holds the mean in 80 % of cases.
    """
    if values.size < 2 or not np.isfinite(values).all():
        return _NAN, _NAN
    half = float(stats.t.ppf(0.5 + LEVEL / 2, values.size - 1)) * float(np.std(values, ddof=1)) / values.size**0.5
    return float(values.mean()) - half, float(values.mean()) + half


def gains(candidate: ArrayLike, reference: ArrayLike, higher_is_better: bool) -> np.ndarray:
    """Entry by entry, how much better the candidate is (positive); not-a-number where either is missing.

    Scores are taken to the precision of float32: what they differ by beyond, after a mean over seeds say, is nothing.
    """
    ours, theirs = np.asarray(candidate, float), np.asarray(reference, float)
    if ours.shape != theirs.shape:
        raise RequestError(
            f"candidate and reference must have the same shape, got {ours.shape} and {theirs.shape}. "
            "Score both models on the same clients and rows."
        )
    with np.errstate(invalid="ignore"):
        better = ours - theirs if higher_is_better else theirs - ours
        level = np.isfinite(better) & (np.abs(better) <= ROUNDING * np.maximum(np.abs(ours), np.abs(theirs)))
    return np.where(level | (ours == theirs), 0.0, better)  # two infinite losses are the same, not undefined


def bootstrap_interval(
    values: np.ndarray, generator: np.random.Generator, resamples: int = 2000
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean of `values`; not-a-number for fewer than two values."""
    if resamples < 1:
        raise RequestError(f"resamples must be at least 1, got {resamples}. The usual number is 2000.")
    if values.size < 2:
        return _NAN, _NAN
    with np.errstate(invalid="ignore"):
        found = stats.bootstrap(
            (values,),
            np.mean,
            n_resamples=resamples,
            batch=max(1, _DRAWS_AT_ONCE // values.size),
            method="percentile",
            random_state=generator,
        )
    means = np.sort(found.bootstrap_distribution)  # not scipy's own interval: gains may be infinite
    if np.isnan(means[-1]):  # infinite gains of both signs: the mean has no interval
        return _NAN, _NAN
    low, high = percentiles(means, (50 * (1 - LEVEL), 50 * (1 + LEVEL)))
    return float(low), float(high)


def percentiles(ordered: np.ndarray, percents: tuple[float, ...]) -> np.ndarray:
    """Linearly interpolated percentiles of sorted values, which may be infinite."""
    position = np.asarray(percents, float) / 100 * (ordered.size - 1)
    below = np.floor(position).astype(int)
    left, right = ordered[below], ordered[np.minimum(below + 1, ordered.size - 1)]
    with np.errstate(invalid="ignore"):
        inside = left + (position - below) * (right - left)
    # Between two equal infinities, or exactly on an entry next to one, the formula has no value but the entry
    # does.
    return np.where((left == right) | (position == below), left, inside)
