# SPDX-License-Identifier: Apache-2.0
"""Small mean-estimation and regression problems for everything about who learns with whom."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.collaborate.quadratic import make_sample
from idiolect.core.data import Rows
from idiolect.theory.convex import ConvexLoss

MEAN = ConvexLoss("squared", 1, 0, bias=False, diagonal=True, l2=0.0)


def rows_of(parts):
    """Rows from one (inputs, targets) pair per agent."""
    offsets = np.concatenate([[0], np.cumsum([len(targets) for _, targets in parts])])
    return Rows(np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts]), offsets)


def tosses(values):
    """Mean estimation of the given (agents, samples) numbers."""
    return rows_of([(np.ones((len(one), 1)), np.asarray(one, float)[:, None]) for one in values])


def lines(slopes, rows, noise=0.5, seed=0):
    """Least squares with one slope vector per agent."""
    draws = np.random.default_rng(seed)
    parts = []
    for slope, amount in zip(slopes, rows):
        inputs = draws.normal(size=(amount, len(slope)))
        parts.append((inputs, inputs @ slope + noise * draws.normal(size=amount)))
    return rows_of(parts)


@pytest.fixture(scope="session")
def bench():
    def mean_sample(values, folds=5, seed=0):
        return make_sample(MEAN, tosses(values), folds, seed)

    def line_sample(rows, folds=5, seed=0):
        loss = ConvexLoss("squared", rows.inputs.shape[1], 0, bias=True, diagonal=False, l2=0.0)
        return make_sample(loss, rows, folds, seed)

    return SimpleNamespace(
        mean=MEAN, tosses=tosses, lines=lines, mean_sample=mean_sample, line_sample=line_sample, rows_of=rows_of
    )
