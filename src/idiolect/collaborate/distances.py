# SPDX-License-Identifier: Apache-2.0
"""Discrepancies from data, by the distribution distances of appendix A of All-for-all 2022; no model is trained.

Each client sends a summary of its rows once, the server compares all pairs. Empirical distances are too large, as two
samples of one distribution differ too: the expected excess is taken off (`value`), and `upper` bounds the distance
where few rows tell little. Labels are not needed where A.3 applies: compare inputs alone.
"""

from __future__ import annotations

from collections import Counter
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from idiolect.collaborate.exchange import Exchange, Parcel
from idiolect.collaborate.shadows import (
    LEAST_ROWS,
    ROWS_PER_MEAN,
    Shadow,
    count_directions,
    describe,
    refuse_few_rows,
    steps,
)
from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.core.keys import Purpose, host_generator

LIPSCHITZ = 1 + 1 / np.e  # of a logistic gradient in (label x input), appendix A.1 (3)
_QUANTILE = NormalDist().inv_cdf(0.95)  # a pair that is not close passes for it in one case of twenty
SLICES_REVEAL = (
    f"The server sees means over at least {ROWS_PER_MEAN} neighbouring rows of every client along random directions, "
    "at most a quarter as many numbers as its rows hold."
)


class Distances(NamedTuple):
    """(clients, clients), symmetric, zero on the diagonal."""

    value: np.ndarray  # cleared of sampling noise, at least 0
    upper: np.ndarray  # confidence bound: a pair is close only if this is small
    exchange: Exchange


def mean_differences(rows: Rows) -> Distances:
    """Mean estimation: b_ij = |m_i - m_j|^2 / 2, which is exactly f_i(x*_j) - f_i(x*_i), debiased by both variances."""
    squares, doubt, width = _apart(rows, _flat(rows.targets))
    # two means of the same law differ by their noise alone: what is expected of it is taken off
    value = 0.5 * np.maximum(squares - doubt, 0.0)
    upper = 0.5 * (np.sqrt(squares) + _QUANTILE * np.sqrt(doubt)) ** 2
    reveals = "The server sees every client's mean, variance and number of rows; the mean of one row is the row."
    sent = (Parcel("mean, variance and number of rows", (width + 2,), rows.clients),)
    return _distances(value, upper, Exchange(sent, 0, int(rows.counts.min()), reveals))


def moment_differences(rows: Rows, diameter: float, labelled: bool = True) -> Distances:
    """Least squares: b_ij = D^2 |E_i(aa', ba') - E_j(aa', ba')|, D the diameter of the models that are considered.

    |grad f_i - grad f_j| <= D |difference| (A.1 (2)), and proposition 1 multiplies by D* <= D once more.
    Without labels only E aa' is compared.
    """
    inputs = _flat(rows.inputs)
    refuse_few_rows(rows.counts, least_rows_of_moments(inputs.shape[1]))
    parts = [(inputs[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)]
    if labelled:
        goals = _flat(rows.targets)
        parts.append((goals[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1))
    squares, doubt, width = _apart(rows, np.hstack(parts))
    value = diameter**2 * np.sqrt(np.maximum(squares - doubt, 0.0))
    upper = diameter**2 * (np.sqrt(squares) + _QUANTILE * np.sqrt(doubt))
    features = inputs.shape[1]
    numbers = features * (features + 1) // 2 + width - features**2 + 2
    reveals = "The server sees every client's first and second moments, the sufficient statistics of least squares."
    sent = (Parcel("first and second moments, spread and number of rows", (numbers,), rows.clients),)
    return _distances(value, upper, Exchange(sent, 0, int(rows.counts.min()), reveals))


def least_rows_of_moments(features: int) -> int:
    """Rows of which moments are no more than half as many numbers: fewer lie in a plane that the moments tell."""
    return max(LEAST_ROWS, features + 2)


def wasserstein_distances(rows: Rows, diameter: float = 1.0, directions: int = 32, labelled: bool = True) -> Distances:
    """Logistic regression: b_ij = D (1 + 1/e) W_1 between the laws of (label -1/+1) x input, or of the inputs alone.

    W_1 is sliced: the mean over random directions of the distance along them, from means of neighbouring rows
    (`shadows`), times sqrt(features) as a unit vector's shadow is that much shorter. One feature: exact up to the
    steps. Small clients make the steps coarser and the directions fewer.
    """
    sent = slice_rows(rows, directions, labelled)
    described = np.stack([steps(one.means) for one in sent])
    scale = diameter * LIPSCHITZ * np.sqrt(np.prod(rows.inputs.shape[1:]))
    apart = np.stack([np.abs(described - one).mean(axis=1) for one in described])
    # halves of one client differ by noise alone, as two clients of n/2 rows each would
    noise = np.array([one.halves for one in sent]) ** 2 / 4  # (c_i^2 / n_i with halves = c_i sqrt(4/n_i))
    doubt = noise[:, None] + noise
    value = scale * np.sqrt(np.maximum(apart**2 - doubt, 0.0))
    upper = scale * (apart + _QUANTILE * np.sqrt(doubt))
    sizes = sorted(Counter(one.numbers for one in sent).items())
    parcels = tuple(Parcel("means along directions, noise and number of rows", (size,), many) for size, many in sizes)
    return _distances(value, upper, Exchange(parcels, 0, ROWS_PER_MEAN, SLICES_REVEAL))


def slice_rows(rows: Rows, directions: int = 32, labelled: bool = True, seed: int = 0) -> list[Shadow]:
    """What each client sends for `wasserstein_distances`."""
    refuse_few_rows(rows.counts, LEAST_ROWS)
    inputs = _flat(rows.inputs)
    points = inputs * _signs(rows)[:, None] if labelled else inputs
    draws = host_generator(seed, Purpose.PARTITION, points.shape[1])
    wanted = count_directions(rows.counts, points.shape[1], directions)
    return describe(rows, points @ common_axes(points.shape[1], wanted, draws), draws)


def common_axes(features: int, directions: int, draws: np.random.Generator) -> np.ndarray:
    """(features, directions) unit vectors that all clients know."""
    axes = draws.normal(size=(features, directions)) if features > 1 else np.ones((1, 1))
    return axes / np.linalg.norm(axes, axis=0)


def exact_wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """W_1 between two empirical laws, a linear programme: for some hundred rows."""
    from scipy.stats import wasserstein_distance, wasserstein_distance_nd

    one, other = _flat(first), _flat(second)
    if one.shape[1] == 1:
        return float(wasserstein_distance(one[:, 0], other[:, 0]))
    return float(wasserstein_distance_nd(one, other))


def _flat(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(len(values), -1)


def _signs(rows: Rows) -> np.ndarray:
    labels = _flat(rows.targets)
    if labels.shape[1] != 1 or not np.isin(labels, (0, 1)).all():
        raise RequestError(
            "wasserstein_distances needs targets 0 or 1, one per row, for label x input; "
            "compare inputs alone with labelled=False."
        )
    return 2 * labels[:, 0] - 1


def _apart(rows: Rows, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """(clients, clients) squared distance of mean values and the noise in it, from tr(covariance)/n; how many values.

    One row borrows the others' covariance.
    """
    counts = rows.counts
    if counts.min(initial=1) == 0:
        raise RequestError(f"Client {int(counts.argmin())} has no rows to compare; leave it out.")
    means = np.stack([values[a:b].mean(axis=0) for a, b in zip(rows.offsets[:-1], rows.offsets[1:])])
    centred = values - np.repeat(means, counts, axis=0)
    squares = np.bincount(np.repeat(np.arange(rows.clients), counts), (centred**2).sum(axis=1), rows.clients)
    pooled = squares.sum() / max(float((counts - 1).sum()), 1.0)
    spread = (squares + pooled) / counts  # one row's worth of all clients, so that chance agreement is not certainty
    noise = spread / counts
    # differences first: exactly zero for equal means
    return cdist(means, means, "sqeuclidean"), noise[:, None] + noise, means.shape[1]


def _distances(value: np.ndarray, upper: np.ndarray, sent: Exchange) -> Distances:
    """Of all pairs, each compared once."""
    for matrix in (value, upper):
        np.fill_diagonal(matrix, 0.0)
    return Distances(value, upper, sent._replace(pairs=len(value) * (len(value) - 1) // 2))
