# SPDX-License-Identifier: Apache-2.0
"""Each client's paired gain from its own test rows: an estimate, its standard error, and Student's t."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from idiolect.core.checks import RequestError
from idiolect.metrics.summary import LEVEL
from idiolect.metrics.variances import moderate

# n rows that all agree are a sign test with p = 2 / 2^n, above 5 % below 6: fewer rows prove nothing by themselves.
MINIMUM_ROWS = 6
_ROUNDING = 1e-5  # of float32 scores and of pseudo-values made from them
_MOST_SKEW = 3.0  # no correction beyond this: there an average of few rows tells nothing


class Intervals(NamedTuple):
    """One value and its interval per client, not-a-number where the client has none."""

    value: np.ndarray  # (clients,)
    low: np.ndarray
    high: np.ndarray


class Estimates(NamedTuple):
    """One estimate per client; `error` is not-a-number where the rows cannot tell it."""

    value: np.ndarray  # (clients,)
    error: np.ndarray  # standard error
    freedom: np.ndarray  # degrees of freedom of the error
    observations: np.ndarray  # that the value is a mean of
    skew: np.ndarray  # skewness of an observation, which clients have in common; 0: not corrected for


def paired_estimates(
    differences: ArrayLike,
    mask: ArrayLike,
    groups: ArrayLike | None = None,
    bound: float | None = None,
    weights: ArrayLike | None = None,
) -> Estimates:
    """Mean over a client's rows of (clients, rows) differences, with the standard error of that mean.

    Rows of one client with equal numbers in `groups` are one observation: their differences are summed. With S_g the
    sum of group g, n_g its rows and n all rows: gain = sum S_g / n, error^2 = G/(G-1) sum (S_g - gain n_g)^2 / n^2,
    G - 1 degrees of freedom. One row per group makes this the usual standard error of a mean.

    Observations that all agree have no spread to measure: then one more observation on each side is added, at -bound
    and +bound where a row's difference has a bound (accuracy: 1), otherwise at 0 and at twice the gain. Skewness is
    corrected for where there is no bound.

    With weights w (clients, rows) the mean is the weighted one and error^2 = n/(n-1) sum w^2 (d - gain)^2 / (sum w)^2;
    observations and degrees of freedom are those of as many rows of one weight, (sum w)^2 / sum w^2 (Kish).
    """
    every, real = _checked(differences, mask)
    factor = None
    if weights is not None:
        real, factor = _scaled(real, np.asarray(weights, float))
        every = np.where(real, every * factor, 0.0)
    count = real.sum(axis=1)
    known = np.where(count > 0, count, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(real, every, 0.0).sum(axis=1) / known
        middle = value[:, None] if factor is None else value[:, None] * factor
        residual = np.where(real, every - middle, 0.0)
        residual, number = (residual, count) if groups is None else _summed(residual, real, np.asarray(groups))
        variance = (residual**2).sum(axis=1) / (number - 1.0)
        error = np.where(number > 1, np.sqrt(variance * number), np.nan) / known
        # scores come in float32: what differs by its rounding alone is no spread, and would make any gain certain
        level = np.abs(residual).max(axis=1, initial=0.0) <= _ROUNDING * np.maximum(np.abs(value), bound or 0.0)
    skew = 0.0 if bound is not None else _common_skew(residual, variance, number)
    if factor is not None:
        number = _as_many(factor if groups is None else _summed(factor, real, np.asarray(groups))[0])
    found = Estimates(value, error, number - 1.0, number, np.where(level, 0.0, skew))
    return _without_spread(found, level, bound)


def _scaled(real: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that count, and their weights with mean 1 over them, 0 elsewhere."""
    real = real & (weights > 0)
    weights = np.where(real, weights, 0.0)
    total, number = weights.sum(axis=1, keepdims=True), real.sum(axis=1, keepdims=True)
    return real, weights * np.divide(number, total, out=np.zeros_like(total), where=total > 0)


def _as_many(weights: np.ndarray) -> np.ndarray:
    """(clients,) the number of rows of one weight that tell as much as these, (sum w)^2 / sum w^2; 0 without a row."""
    squares = (weights**2).sum(axis=1)
    return np.divide(weights.sum(axis=1) ** 2, squares, out=np.zeros_like(squares), where=squares > 0)


def _without_spread(found: Estimates, level: np.ndarray, bound: float | None) -> Estimates:
    """The same with an error for clients whose observations all agree, by one more observation on each side."""
    known = level & (found.observations >= (2 if bound is None else 1))  # one loss tells nothing about the next one
    total = found.observations + 2.0
    with np.errstate(invalid="ignore", divide="ignore"):
        if bound is None:  # n observations at v, one at 0 and one at 2v
            spread = 2 * found.value**2 / total
        else:  # n at v, one at -b and one at b
            spread = (found.observations * found.value**2 + 2 * bound**2) / total
            spread = spread - (found.observations * found.value / total) ** 2
        error = np.sqrt(spread / (total - 1)) * total / found.observations
    error = np.where(level, np.where(known, error, np.nan), found.error)
    return found._replace(error=error, freedom=np.where(known, total - 1, found.freedom))


def _common_skew(residual: np.ndarray, variance: np.ndarray, number: np.ndarray) -> float:
    """Skewness of an observation: the mean over clients of the unbiased third moment, each in its own scale.

    One client's few rows cannot tell its skewness; those of all together can.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        third = (residual**3).sum(axis=1) * number / ((number - 1.0) * (number - 2.0))
        # by variances that borrow from each other: a small one to the power 1.5 in the denominator would be the whole
        # mean
        steadied, _ = moderate(np.where(number > 1, variance, np.nan), number - 1.0)
        scaled = third / steadied**1.5
    used = np.isfinite(scaled) & (number > 2)
    if not used.any():
        return 0.0
    return float(np.clip(np.average(scaled[used], weights=number[used]), -_MOST_SKEW, _MOST_SKEW))


def _summed(residual: np.ndarray, real: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Residuals added up within (client, group), padded with zeros, and the number of groups of each client."""
    client, row = np.nonzero(real)
    pairs, place = np.unique(np.stack([client, groups[client, row]]), axis=1, return_inverse=True)
    number = np.bincount(pairs[0], minlength=len(real))
    sums = np.bincount(place.reshape(-1), residual[client, row], minlength=pairs.shape[1])
    padded = np.zeros((len(real), max(int(number.max(initial=0)), 1)))
    first = np.cumsum(number) - number
    padded[pairs[0], np.arange(pairs.shape[1]) - first[pairs[0]]] = sums
    return padded, number


def student_intervals(found: Estimates) -> Intervals:
    """95 % by Student's t, corrected for skewness by Hall's (1992) cubic: value - error g^-1(+-t) for each client.

    With a = skew / sqrt(n): g(x) = x + a (x^2/3 + 1/6) + a^2 x^3 / 27, g^-1(y) = 3 ((1 + a (y - a/6))^(1/3) - 1) / a.
    Without skewness this is value +- t error.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        quantile = stats.t.ppf(0.5 + LEVEL / 2, np.where(found.freedom > 0, found.freedom, np.nan))
        bend = found.skew / np.sqrt(found.observations)
        low, high = (found.value - found.error * _unbent(sign * quantile, bend) for sign in (1, -1))
    exact = found.error == 0  # the same answers to every row: no gain, without a doubt
    return Intervals(found.value, np.where(exact, found.value, low), np.where(exact, found.value, high))


def within(found: Intervals, bound: float) -> Intervals:
    """The intervals cut to -bound .. bound, beyond which no gain can be."""
    return found._replace(low=np.clip(found.low, -bound, bound), high=np.clip(found.high, -bound, bound))


def _unbent(values: np.ndarray, bend: np.ndarray) -> np.ndarray:
    # the cubic divides by the bend: without skewness it is the identity in the limit
    straight = np.abs(bend) < 1e-6
    safe = np.where(straight, 1.0, bend)
    return np.where(straight, values, 3 * (np.cbrt(1 + safe * (values - safe / 6)) - 1) / safe)


def two_sided(found: Estimates) -> np.ndarray:
    """P-value of each client for a true gain of 0, by the same rule; not-a-number without an error, 1 for no gain."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio, bend = found.value / found.error, found.skew / np.sqrt(found.observations)
        bent = ratio + bend * (ratio**2 / 3 + 1 / 6) + bend**2 * ratio**3 / 27
        p_value = 2 * stats.t.sf(np.abs(bent), np.where(found.freedom > 0, found.freedom, np.nan))
    return np.where(found.value == 0, 1.0, p_value)


def _checked(differences: ArrayLike, mask: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    every, real = np.asarray(differences, float), np.asarray(mask).astype(bool)
    if every.ndim != 2 or every.shape != real.shape:
        raise RequestError(
            f"Paired differences need a (clients, rows) array and a mask of one shape, got {every.shape} and "
            f"{real.shape}. Pad every client to the same number of rows."
        )
    return every, real
