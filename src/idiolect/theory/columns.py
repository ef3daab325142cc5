# SPDX-License-Identifier: Apache-2.0
"""Which columns of the design belong to the shared and which to the personal block."""

from __future__ import annotations

import numpy as np

from idiolect.objectives import WS2, Residual
from idiolect.theory.convex import ConvexLoss


def split_positions(objective: WS2, loss: ConvexLoss) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The shared and the personal block of the model, with positions among the coefficients in place of values."""
    # split like values, so that the split itself says where every entry goes
    positions = np.arange(loss.size).reshape(loss.shape)
    blocks = objective.split.divide(loss.to_params(positions))
    shared, personal = ({name: np.asarray(part) for name, part in block.items()} for block in blocks)
    return shared, personal


def split_columns(objective: WS2, loss: ConvexLoss) -> tuple[np.ndarray, np.ndarray] | None:
    """The design's columns of either block; None where a column's coefficients are divided between both."""
    width = loss.shape[1]
    shared, personal = (
        np.unique(np.concatenate([part.reshape(-1) for part in block.values()]) // width)
        for block in split_positions(objective, loss)
    )
    return None if np.intersect1d(shared, personal).size else (shared, personal)


def residual_columns(objective: Residual, loss: ConvexLoss) -> tuple[np.ndarray, np.ndarray]:
    """The design's columns that the shared and the personal model see; both have a bias where the model has one."""
    bias = np.arange(loss.features, loss.columns)
    shared, personal = (np.arange(loss.features)[objective.columns(block)] for block in ("shared", "personal"))
    return np.concatenate([shared, bias]), np.concatenate([personal, bias])
