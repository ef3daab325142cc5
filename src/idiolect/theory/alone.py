# SPDX-License-Identifier: Apache-2.0
"""argmin f'_m of one client's rows: what it would do alone."""

from __future__ import annotations

import numpy as np

from idiolect.theory import arrow
from idiolect.theory.convex import ConvexLoss, MatrixRows


def own_optimum(loss: ConvexLoss, rows: MatrixRows) -> np.ndarray | None:
    """Coefficients of least loss (of least norm where several are optimal); None where there are none."""
    if loss.criterion != "squared":
        one = arrow.Term(1.0, None, arrow.Place(1.0, np.arange(loss.size)))
        alone = arrow.Arrow((arrow.Client(loss, rows, (one,)),), np.ones(1), 0, loss.size)
        point = arrow.minimise(alone)
        return None if point is None else point.personal[0].reshape(loss.shape)
    design, goals, weights = rows
    if loss.diagonal:
        products, squares = weights @ (design * goals), weights @ design**2 + loss.l2
        return np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)[:, None]
    root = np.sqrt(weights)[:, None]
    # l2 as extra rows: the square root of the normal equations, so half the digits are not lost
    padding = np.sqrt(loss.l2) * np.eye(loss.columns)
    stacked = np.concatenate([root * design, padding])
    wanted = np.concatenate([root * goals, np.zeros((loss.columns, goals.shape[1]))])
    return np.linalg.lstsq(stacked, wanted)[0]
