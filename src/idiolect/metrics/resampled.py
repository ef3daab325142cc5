# SPDX-License-Identifier: Apache-2.0
"""Means over repeated random splits, with intervals that know that the splits share rows.

Nadeau and Bengio (2003): splits overlap, so J of them tell less than J independent ones. The variance of their mean is
s^2 (1/J + test rows / training rows), not s^2 / J; Student's t with J - 1 degrees of freedom.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.metrics.paired import Estimates, paired_estimates


def gain_estimates(gains: ArrayLike, test_over_train: ArrayLike) -> Estimates:
    """Mean over splits of each row of (things, splits) gains; not-a-number is a split without this gain.

    `test_over_train`: test rows divided by training rows, one number or one per thing. Gains that are the same in all
    splits have no spread to measure; then the rule of `paired_estimates` adds one split at 0 and one at twice the gain.
    """
    values = np.asarray(gains, float)
    known = np.isfinite(values)
    found = paired_estimates(np.where(known, values, 0.0), known)
    with np.errstate(invalid="ignore", divide="ignore"):
        # J splits that overlap tell as much as that many independent ones
        independent = 1 / (1 / found.observations + np.asarray(test_over_train, float))
        error = found.error * np.sqrt(found.observations / independent)
    # the skew of overlapping splits is not known, and a wrong one would shift the interval: none
    return found._replace(error=error, observations=independent, skew=np.zeros_like(found.value))


def score_estimates(scores: ArrayLike, test_over_train: ArrayLike) -> Estimates:
    """The same for scores, of which 0 is no special value: without spread there is no error."""
    values = np.asarray(scores, float)
    known = np.isfinite(values)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0.0).sum(axis=1) / np.where(count > 0, count, np.nan)
    # around their mean, so that the rule against too small a spread does not pull scores towards 0
    around = gain_estimates(np.where(known, values - mean[:, None], np.nan), test_over_train)
    return around._replace(value=mean, error=np.where(count > 1, around.error, np.nan))


def with_folds(found: Estimates, gains: np.ndarray, rows: np.ndarray, scored: np.ndarray) -> Estimates:
    """Estimates whose error has seen the spread of (folds, clients) gains on the folds' validation rows, too.

    Few test rows that happen to agree promise too much, and say nothing of what other training rows would have led to;
    folds differ by both. A fold's gain is a mean over `rows` rows, the estimate one over `scored` test rows: its
    variance is rows / scored times that between folds. Both variances count by their degrees of freedom.
    """
    folds = len(gains)
    with np.errstate(invalid="ignore", divide="ignore"):
        # a variance is that of a mean over so many rows: brought to the number of test rows before it is compared
        between = gains.var(axis=0, ddof=1) * rows / scored if folds > 1 else np.full(len(rows), np.nan)
        told = np.isfinite(between) & (rows > 0) & np.isfinite(found.value)
        # pooled as variances are, by degrees of freedom; an error that is not known has none
        own = np.where(np.isfinite(found.error), np.maximum(found.freedom, 0.0), 0.0)
        other = np.where(told, folds - 1.0, 0.0)
        variance = (own * np.nan_to_num(found.error) ** 2 + other * np.where(told, between, 0.0)) / (own + other)
    return found._replace(
        error=np.where(told, np.sqrt(variance), found.error), freedom=np.where(told, own + other, found.freedom)
    )


def one_split(found: Estimates, test_over_train: ArrayLike) -> Estimates:
    """Estimates from the test rows of a single split, with an error that counts training rows as drawn by chance too.

    Test rows tell how a gain varies for the models that were trained; the split is one of many, so by the same rule the
    variance grows by 1 + test rows / training rows, one number or one per client.
    """
    with np.errstate(invalid="ignore"):
        return found._replace(error=found.error * np.sqrt(1 + np.asarray(test_over_train, float)))
