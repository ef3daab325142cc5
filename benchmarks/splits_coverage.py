# SPDX-License-Identifier: Apache-2.0
"""How often intervals over repeated splits hold the truth: clients with their own linear models, drawn anew each time.

The gain is that of one pooled regression over a ridge regression alone. Its truth is the mean over many tables.
"""

from __future__ import annotations

import numpy as np

from idiolect.metrics.paired import Intervals, student_intervals
from idiolect.metrics.resampled import gain_estimates
from idiolect.metrics.verdicts import judge

CLIENTS, COLUMNS, ROWS, TEST = 20, 3, 50, 10
Table = tuple[np.ndarray, np.ndarray]  # (clients, rows, columns) inputs, (clients, rows) targets


def over_splits(splits: int, tables: int) -> dict[str, float]:
    """Percent of intervals that hold the truth, corrected and plain, and of clients that are called falsely."""
    draw = np.random.default_rng(splits)
    models = 1 + 0.35 * draw.normal(size=(CLIENTS, COLUMNS))
    truth = np.mean([_true_gains(models, _sample(draw, models, ROWS - TEST)) for _ in range(20 * tables)], axis=0)
    ratio = TEST / (ROWS - TEST)
    held: dict[str, list[float]] = {name: [] for name in ("clients", "mean over clients", "clients, not corrected")}
    false = []
    for _ in range(tables):
        found = _gains_of_splits(draw, _sample(draw, models, ROWS), splits)
        estimates = gain_estimates(found, ratio)
        held["clients"].append(_holds(student_intervals(estimates), truth))
        mean = student_intervals(gain_estimates(found.mean(axis=0)[None], ratio))
        held["mean over clients"].append(_holds(mean, truth.mean()))
        held["clients, not corrected"].append(_holds(student_intervals(gain_estimates(found, 0.0)), truth))
        verdict = judge(estimates)[1]
        false.append(np.mean(((verdict == "hurt") & (truth >= 0)) | ((verdict == "helped") & (truth <= 0))))
    return {name: 100 * float(np.mean(values)) for name, values in (held | {"called falsely": false}).items()}


def _holds(found: Intervals, truth: np.ndarray | float) -> float:
    return float(np.mean((found.low <= truth) & (truth <= found.high)))


def _sample(draw: np.random.Generator, models: np.ndarray, rows: int) -> Table:
    inputs = draw.normal(size=(CLIENTS, rows, COLUMNS))
    return inputs, np.einsum("cni,ci->cn", inputs, models) + draw.normal(size=(CLIENTS, rows))


def _fit(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Every client alone, and one model for all."""
    inputs, targets = table
    squares = np.einsum("cni,cnj->cij", inputs, inputs)
    products = np.einsum("cni,cn->ci", inputs, targets)
    alone = np.linalg.solve(squares + 0.3 * np.eye(COLUMNS), products[..., None])[..., 0]
    return alone, np.linalg.solve(squares.sum(axis=0), products.sum(axis=0))


def _true_gains(models: np.ndarray, table: Table) -> np.ndarray:
    alone, pooled = _fit(table)
    return ((alone - models) ** 2).sum(axis=1) - ((pooled - models) ** 2).sum(axis=1)


def _gains_of_splits(draw: np.random.Generator, table: Table, splits: int) -> np.ndarray:
    """(clients, splits): gains on the test rows of each split."""
    inputs, targets = table
    found = np.empty((CLIENTS, splits))
    for split in range(splits):
        order = np.argsort(draw.random(targets.shape), axis=1)
        test, train = order[:, :TEST], order[:, TEST:]
        alone, pooled = _fit((np.take_along_axis(inputs, train[..., None], 1), np.take_along_axis(targets, train, 1)))
        rows, answers = np.take_along_axis(inputs, test[..., None], 1), np.take_along_axis(targets, test, 1)
        errors = [(answers - np.einsum("cni,ci->cn", rows, alone)) ** 2, (answers - rows @ pooled) ** 2]
        found[:, split] = (errors[0] - errors[1]).mean(axis=1)
    return found
