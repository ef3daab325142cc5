# SPDX-License-Identifier: Apache-2.0
"""Many clients judge better than one: variances and gains, each moved toward those of the other clients.

Variances: Smyth's (2004) moderated variance. Gains: empirical Bayes for means with errors of known size, under a
heavy-tailed population (Student's t), so that a client far from the others is hardly moved. The population's mean and
spread are not plugged in but averaged over, so that few clients do not make a narrow interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special, stats

from idiolect.metrics.paired import Estimates, Intervals, student_intervals
from idiolect.metrics.variances import FEWEST, moderate

_LOOSE = 3.0  # times the median error: a client whose error is larger counts less in the mean gain
_TAILS = 6.0  # degrees of freedom of the population of gains
_MOST = 2000  # clients that the population is fitted to; more change nothing
_SPREADS = 24
_CENTRES = np.linspace(-2.5, 2.5, 5)  # in standard errors of the population's mean
_NOISE_NODES = (np.arange(4) + 0.5) / 4
_CHUNK = 2_000_000  # numbers at once


def moderated(found: Estimates) -> Estimates:
    """The same estimates with errors that borrow from the other clients'; see `moderate`.

    With few rows a variance that is small by chance would otherwise call any gain certain.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        variance, freedom = moderate(found.error**2 * found.observations, found.freedom)
        error = np.where(np.isfinite(found.value), np.sqrt(variance / found.observations), np.nan)
    return found._replace(error=error, freedom=freedom)


def expected_gains(found: Estimates) -> Intervals:
    """What each client can expect: its gain moved toward the mean gain as far as its error asks, 95 % interval.

    No gain is moved by more than its error (Efron and Morris's limited translation, 1972), and where that limit is met
    the interval is as wide as the error. With fewer than `FEWEST` clients nothing is moved: Student's interval of each.
    """
    with np.errstate(invalid="ignore"):
        used = np.isfinite(found.value) & np.isfinite(found.error) & (found.error > 0)
    own = student_intervals(found)
    if used.sum() < FEWEST:
        return own
    # the error that makes Student's interval as wide as the one corrected for skewness
    error = (own.high - own.low) / (2 * stats.t.ppf(0.975, np.where(found.freedom > 0, found.freedom, np.nan)))
    known = (found.value[used], error[used] ** 2, found.freedom[used])
    # evenly thinned, without a draw: the same scores give the same answer
    sample = np.unique(np.linspace(0, used.sum() - 1, min(used.sum(), _MOST)).astype(int))
    population = _fit_population(*(part[sample] for part in known))
    at_once = max(1, _CHUNK // (population.weight.size * len(_TAIL_SQUARES) * len(_NOISE_NODES)))
    chunks = [slice(start, start + at_once) for start in range(0, len(known[0]), at_once)]
    found_parts = [_posterior(population, *(part[chunk] for part in known)) for chunk in chunks]
    mean, spread = (np.concatenate(parts) for parts in zip(*found_parts))
    moved = np.clip(mean - known[0], -error[used], error[used])
    wide = np.where(moved == mean - known[0], spread, np.maximum(spread, error[used]))
    half = stats.t.ppf(0.975, found.freedom[used]) * wide
    value, low, high = (part.copy() for part in own)
    value[used], low[used], high[used] = (known[0] + moved + sign * half for sign in (0, -1, 1))
    return Intervals(value, low, high)


class _Population(NamedTuple):
    """Possible centres and spreads of the gains over clients, with their posterior weights."""

    centre: np.ndarray
    spread: np.ndarray
    weight: np.ndarray


def _tails() -> tuple[np.ndarray, np.ndarray]:
    """Student's t as a mixture of normals: squared scales and their weights, far into the tails."""
    edges = 2.0 ** np.array([-np.inf, -0.75, -0.25, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, np.inf])
    scales = 2.0 ** np.array([-1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4])
    with np.errstate(divide="ignore"):
        weights = np.diff(stats.chi2.sf(_TAILS / edges**2, _TAILS))
    return scales**2, weights


_TAIL_SQUARES, _TAIL_WEIGHTS = _tails()


def _noise(variance: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """(clients, nodes): Student's t noise as an even mixture of normal variances."""
    return variance[:, None] * freedom[:, None] / stats.chi2.ppf(_NOISE_NODES, freedom[:, None])


def _log_marginal(
    centre: np.ndarray, spread: np.ndarray, value: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log weights (points, clients, tails, nodes) of the parts of each client's marginal density, and its variances."""
    total = spread[:, None, None, None] ** 2 * _TAIL_SQUARES[:, None] + noise[:, None, :]
    away = (value[:, None, None] - centre[:, None, None, None]) ** 2
    return np.log(_TAIL_WEIGHTS)[:, None] - 0.5 * (np.log(total) + away / total), total


def _fit_population(value: np.ndarray, variance: np.ndarray, freedom: np.ndarray) -> _Population:
    """The posterior of centre and spread on a grid.

    The centre is the mean gain with its own error: a mean that weighs all clients by their errors is biased where
    gains are skewed, since then a small gain has a small error. Only a client whose error is out of all proportion, as
    that of a single row, counts less: it would move what everybody can expect. The spread has a flat prior.
    """
    scale = float(np.sqrt(np.median(variance)))
    share = np.minimum(1.0, (_LOOSE * scale) ** 2 / variance)
    share /= share.sum()
    largest = max(4 * float(np.std(value)), 2 * scale)
    spreads = np.concatenate([[0.0], np.geomspace(0.05 * scale, largest, _SPREADS - 1)])
    few = float(stats.t.ppf(0.975, len(value) - 1) / stats.norm.ppf(0.975))  # few clients hardly know their spread
    middle = float(share @ value)
    error = few * float(np.sqrt(share**2 @ (value - middle) ** 2 * len(value) / (len(value) - 1)))
    noise = _noise(variance, freedom)
    likelihood = np.empty(len(spreads))
    for place in range(len(spreads)):
        parts, _ = _log_marginal(np.array([middle]), spreads[place : place + 1], value, noise)
        likelihood[place] = special.logsumexp(parts, axis=(2, 3)).sum()
    # times the width of each cell: the grid is finer near 0, and must not count for more there
    of_spread = np.gradient(spreads) * np.exp(likelihood - likelihood.max())
    of_centre = np.exp(-0.5 * _CENTRES**2)
    weight = (of_spread[:, None] * of_centre).reshape(-1)
    kept = weight > 1e-4 * weight.max()
    centre, spread = np.tile(middle + error * _CENTRES, len(spreads)), np.repeat(spreads, len(_CENTRES))
    return _Population(centre[kept], spread[kept], weight[kept] / weight[kept].sum())


def _posterior(
    population: _Population, value: np.ndarray, variance: np.ndarray, freedom: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each client's true gain."""
    noise = _noise(variance, freedom)
    # in logarithms: over thousands of clients a likelihood is far below the smallest number
    parts, total = _log_marginal(population.centre, population.spread, value, noise)
    parts += np.log(population.weight)[:, None, None, None] - special.logsumexp(parts, axis=(2, 3), keepdims=True)
    chance = np.exp(parts)  # of the client's parts, within each point of the population, times the point's weight
    kept = 1 - noise[:, None, :] / total  # how much of its distance from the centre the gain keeps
    centre = population.centre[:, None, None, None]
    mean = centre + kept * (value[:, None, None] - centre)
    first = (chance * mean).sum(axis=(0, 2, 3))
    second = (chance * (mean**2 + kept * noise[:, None, :])).sum(axis=(0, 2, 3))
    return first, np.sqrt(np.maximum(second - first**2, 0.0))
