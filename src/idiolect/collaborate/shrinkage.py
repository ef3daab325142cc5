# SPDX-License-Identifier: Apache-2.0
"""What clients gain, each drawn towards the others as far as they are alike; outlying ones may be themselves.

The prior is a mixture of normal laws around b_0 + b_1/n_i with many spreads, from none to beyond the largest gain
seen (adaptive shrinkage, Stephens 2017): a client far from all others is believed, where one normal law for all
would call it noise. Spreads are the same for all, or grow as 1/n_i, or with the spread of a client's own rows: a
model that serves a client badly misses its rows by large and by small amounts. Weights of the mixture and the
centre are fitted to all clients by expectation maximization.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr, softmax

_ENOUGH = 8  # clients from which on gains may depend on their size
_MOST_FITTED = 5_000  # clients that the prior is fitted to; more would not change it
_AT_ONCE = 20_000  # clients whose posterior is held in memory
_ITERATIONS = 200
_PRIOR_AGENTS = 2.0  # spread evenly over the laws: few clients cannot rule out that one of them is far from all
_GRID = 2.0  # ratio of one spread to the next
_SMALLEST = 0.1  # spread, in units of the noise; or of the spread of a client's own rows
_ROW_SCALES = 5  # up to 1.6 times that of the rows: a squared miss spreads by no less than its mean
_BISECTIONS = 40
_FURTHEST = 1.0  # that a client's gain is moved, in standard errors of its own


class Shrunk(NamedTuple):
    """One entry per client and gain."""

    expected: np.ndarray  # (clients, gains)
    low: np.ndarray  # (clients, gains) 95 % interval
    high: np.ndarray
    ahead: np.ndarray  # (clients, 1 + gains, 1 + gains) chance that one way is no worse than another; way 0 gains 0


class Prior(NamedTuple):
    """Centre and mixture, in units of the noise."""

    coefficients: np.ndarray  # (features, gains) of the centre
    uncertainty: np.ndarray  # (features x gains, features x gains) covariance of the coefficients
    weights: np.ndarray  # (laws,)
    shapes: np.ndarray  # (laws, gains, gains) covariances
    by_size: np.ndarray  # (laws,) whether the spread grows as 1/n_i
    by_rows: np.ndarray  # (more laws,) times the spread of a client's own rows

    def spreads(self, sizes: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """(clients, laws, gains, gains) covariances."""
        factor = np.where(self.by_size, sizes[:, None] ** 2, 1.0)
        same = factor[:, :, None, None] * self.shapes
        rows = noise / sizes[:, None, None]
        return np.concatenate([same, self.by_rows[:, None, None] ** 2 * rows[:, None]], axis=1)


def shrink(measured: np.ndarray, noise: np.ndarray, counts: np.ndarray, luck: np.ndarray | None = None) -> Shrunk:
    """Posterior of (clients, gains) means with (clients, gains, gains) noise, the prior fitted to all clients.

    `luck` (clients,) times the noise is the variance of what is wanted around those means: no other client tells
    anything of it. It widens intervals; which way is ahead is asked of the means, before luck.
    """
    luck = np.zeros(len(counts)) if luck is None else luck
    unit = np.sqrt(np.einsum("aii->ai", noise).mean(axis=0))  # one gain may be far noisier than the other
    spread = np.abs(measured - np.median(measured, axis=0)).mean(axis=0)
    # where all rows of every client agree there is no noise, and nothing to divide by
    unit = np.where(unit > 1e-6 * spread, unit, np.where(spread > 0, 1e-6 * spread, 1.0))
    scaled, scaled_noise = measured / unit, noise / unit[:, None] / unit
    # gains that rise and fall together have a singular covariance, and it is inverted below
    scaled_noise = scaled_noise + 1e-9 * np.eye(len(unit))
    sizes = 1 / np.maximum(counts, 1)
    typical_size = 1 / float(sizes.mean())
    sizes = sizes * typical_size
    # what the centre may depend on
    terms = 2 if len(sizes) >= _ENOUGH and np.ptp(sizes) > 1e-12 else 1
    features = np.stack([np.ones(len(sizes)), sizes], axis=1)[:, :terms]
    prior = fit_prior(scaled, scaled_noise, sizes, features, typical_size)
    parts = []
    for first in range(0, len(measured), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        parts.append(_posterior(prior, scaled[some], scaled_noise[some], sizes[some], features[some], luck[some]))
    expected, low, high, ahead = (np.concatenate(part) for part in zip(*parts))
    return Shrunk(expected * unit, low * unit, high * unit, ahead)


def _laws(measured: np.ndarray, by_size: bool) -> tuple[np.ndarray, np.ndarray]:
    """Covariances of the mixture's laws and which of them grow with 1/n_i: shapes times spreads, and none at all."""
    gains = measured.shape[1]
    centred = measured - np.median(measured, axis=0)
    seen = centred.T @ centred / max(len(centred), 1) + 1e-12 * np.eye(gains)
    # one gain at a time, both alike, and both as the clients themselves show: as in adaptive shrinkage, a grid of
    # spreads stands for any law that is symmetric around the centre
    shapes = [*(np.diag(row) for row in np.eye(gains)), np.eye(gains), seen * gains / np.trace(seen)]
    largest = max(2 * float(np.abs(centred).max(initial=0.0)), 4 * _SMALLEST)
    amount = int(np.ceil(np.log(largest / _SMALLEST) / np.log(_GRID))) + 1
    scales = _SMALLEST * _GRID ** np.arange(min(amount, 30))
    spreads = np.array([scale**2 * shape for shape in shapes for scale in scales])
    none = np.zeros((1, gains, gains))
    if not by_size:
        return np.concatenate([none, spreads]), np.zeros(1 + len(spreads), bool)
    marks = np.repeat([False, False, True], [1, len(spreads), len(spreads)])
    return np.concatenate([none, spreads, spreads]), marks


def fit_prior(
    measured: np.ndarray, noise: np.ndarray, sizes: np.ndarray, features: np.ndarray, typical_size: float
) -> Prior:
    """Expectation maximization over the laws' weights and the centre; many clients are thinned out evenly.

    `sizes` are 1/n_i over their mean, which is `1 / typical_size`.
    """
    # every so-manieth client, without a draw: the same federation has the same prior
    step = -(-len(measured) // _MOST_FITTED)
    measured, noise, sizes, features = measured[::step], noise[::step], sizes[::step], features[::step]
    shapes, by_size = _laws(measured, features.shape[1] > 1)
    by_rows = _SMALLEST * _GRID ** np.arange(_ROW_SCALES) * np.sqrt(typical_size)
    laws, gains = len(shapes) + len(by_rows), measured.shape[1]
    start = np.zeros((features.shape[1], gains)), np.zeros((0, 0)), np.full(laws, 1 / laws)
    prior = Prior(*start, shapes, by_size, by_rows)
    # the laws stay as they are while their weights and the centre are fitted: inverted once, not in every iteration
    total = noise[:, None] + prior.spreads(sizes, noise)
    precision, normalizer = np.linalg.inv(total), -0.5 * np.linalg.slogdet(total)[1]
    coefficients = np.zeros((features.shape[1], gains))
    # from the median, which a few clients far away do not move; the iterations end at a local optimum
    coefficients[0] = np.median(measured, axis=0)
    weights, before = prior.weights, -np.inf
    for _ in range(_ITERATIONS):
        residual = measured - features @ coefficients
        fit = normalizer - 0.5 * np.einsum("ai,alij,aj->al", residual, precision, residual, optimize=True)
        fit = np.log(np.maximum(weights, 1e-300)) + fit
        belief, value = softmax(fit, axis=1), float(logsumexp(fit, axis=1).sum())
        weights = (belief.sum(axis=0) + _PRIOR_AGENTS / laws) / (len(measured) + _PRIOR_AGENTS)
        trust = np.einsum("al,alij->aij", belief, precision)
        matrix = np.einsum("af,ag,aij->figj", features, features, trust).reshape(features.shape[1] * gains, -1)
        wanted = np.einsum("af,aij,aj->fi", features, trust, measured).reshape(-1)
        # clients of one size cannot tell the two terms of the centre apart: the smallest solution then
        inverse = np.linalg.pinv(matrix, hermitian=True)
        coefficients = (inverse @ wanted).reshape(features.shape[1], gains)
        if value - before < 1e-6 * len(measured):
            break
        before = value
    return prior._replace(coefficients=coefficients, uncertainty=inverse, weights=weights)


def _posterior(
    prior: Prior, measured: np.ndarray, noise: np.ndarray, sizes: np.ndarray, features: np.ndarray, luck: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(expected, low, high, ahead) of some clients: mixtures of normal laws, one per law of the prior."""
    gains = measured.shape[1]
    spreads = prior.spreads(sizes, noise)
    total = noise[:, None] + spreads
    inverse = np.linalg.inv(total)
    centre = features @ prior.coefficients
    residual = measured - centre
    fit = -0.5 * (np.linalg.slogdet(total)[1] + np.einsum("ai,alij,aj->al", residual, inverse, residual, optimize=True))
    belief = softmax(np.log(np.maximum(prior.weights, 1e-300)) + fit, axis=1)
    keep = spreads @ inverse
    means = centre[:, None] + np.einsum("alij,aj->ali", keep, residual)
    # the centre is uncertain itself, and every client leans on it as far as it is not believed
    shaped = prior.uncertainty.reshape(features.shape[1], gains, features.shape[1], gains)
    lean = np.einsum("af,figj,ag->aij", features, shaped, features)
    left = np.eye(gains) - keep
    covariance = spreads - keep @ spreads + left @ lean[:, None] @ left.swapaxes(-1, -2)
    expected = np.einsum("al,ali->ai", belief, means)
    wide = covariance + (luck[:, None, None] * noise)[:, None]
    deviation = np.sqrt(np.maximum(np.einsum("alii->ali", wide), 1e-24))
    low, high = (_quantile(belief, means, deviation, level) for level in (0.025, 0.975))
    # limited translation (Efron and Morris 1972): the others may move no client further than its own noise would
    reach = _FURTHEST * np.sqrt(np.einsum("aii->ai", noise))
    shift = np.clip(expected, measured - reach, measured + reach) - expected
    return expected + shift, low + shift, high + shift, _ahead(belief, means + shift[:, None], covariance)


def _quantile(belief: np.ndarray, means: np.ndarray, deviation: np.ndarray, level: float) -> np.ndarray:
    """(clients, gains) quantile of every mixture, by bisection."""
    # a mixture has no quantile in closed form; ten deviations beyond the outermost law there is nothing
    low, high = (means - 10 * deviation).min(axis=1), (means + 10 * deviation).max(axis=1)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = np.einsum("al,ali->ai", belief, ndtr((middle[:, None] - means) / deviation))
        low, high = np.where(below < level, middle, low), np.where(below < level, high, middle)
    return (low + high) / 2


def _ahead(belief: np.ndarray, means: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """(clients, ways, ways) chance that way a gains at least what way b does; way 0 gains nothing for sure."""
    agents, _, gains = means.shape
    contrasts = np.vstack([np.zeros(gains), np.eye(gains)])
    found = np.ones((agents, gains + 1, gains + 1))
    for one, other in itertools.permutations(range(gains + 1), 2):
        along = contrasts[one] - contrasts[other]
        scale = np.sqrt(np.maximum(np.einsum("i,alij,j->al", along, covariance, along), 1e-24))
        found[:, one, other] = (belief * ndtr(means @ along / scale)).sum(axis=1)
    return found
