# SPDX-License-Identifier: Apache-2.0
"""Attack on `[collaboration] source = "data"`: rows from what clients send about them along known directions."""

from __future__ import annotations

import itertools

import numpy as np

from idiolect.collaborate.distances import common_axes, slice_rows
from idiolect.collaborate.shadows import LEAST_ROWS, count_directions
from idiolect.collaborate.threads import one_thread
from idiolect.core.data import Rows
from idiolect.core.keys import Purpose, host_generator

NEAR = 0.01  # a guess within this, in standard deviations and in every feature, recovers a row
FEATURES = 2


def fraction_recovered(guesses: np.ndarray, rows: np.ndarray) -> float:
    """Part of the rows that have a guess near them."""
    if len(guesses) == 0:
        return 0.0
    spread = rows.std() if len(rows) > 1 else 1.0
    near = np.abs(rows[:, None] - guesses[None]).max(axis=2) < NEAR * spread
    return float(near.any(axis=1).mean())


def meeting_points(values: np.ndarray, axes: np.ndarray, trials: int = 12) -> np.ndarray:
    """Points whose values along all directions are among those sent: (values, directions) are single rows' values.

    As many directions as features give all candidates; the other directions tell the rows among them.
    """
    features, directions = axes.shape
    ordered, found = np.sort(values, axis=0), []
    for base in list(itertools.combinations(range(directions), features))[:trials]:
        corners = np.stack(np.meshgrid(*values[:, base].T, indexing="ij"), axis=-1).reshape(-1, features)
        points = np.linalg.solve(axes[:, base].T, corners.T).T
        met = sum(_is_among(points @ axes[:, k], ordered[:, k]) for k in range(directions))
        found.append(points[met >= min(features + 2, directions)])
    return np.concatenate(found)


def _is_among(numbers: np.ndarray, known: np.ndarray) -> np.ndarray:
    place = np.searchsorted(known, numbers)
    below, above = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    return (np.minimum(np.abs(numbers - below), np.abs(numbers - above)) < 1e-6).astype(int)


def fit_points(means: np.ndarray, axes: np.ndarray, count: int, starts: int) -> np.ndarray:
    """Points whose bins have these means, the best of several starts."""
    draws = np.random.default_rng(0)
    with one_thread():
        found = [_fit_once(means, axes, draws.normal(size=(count, axes.shape[0]))) for _ in range(starts)]
    return min(found, key=lambda one: one[1])[0]


def _fit_once(means: np.ndarray, axes: np.ndarray, points: np.ndarray, steps: int = 60) -> tuple[np.ndarray, float]:
    """Sort, then least squares, again and again; and by how much the means are missed."""
    bins = len(means)
    where = np.arange(len(points)) * bins // len(points)
    missed = np.inf
    for step in range(steps):
        label = where[np.argsort(np.argsort(points @ axes, axis=0), axis=0)]  # (rows, directions)
        belongs = (label[..., None] == np.arange(bins)) / np.bincount(where)  # (rows, directions, bins)
        matrix = np.einsum("rkb,fk->bkrf", belongs, axes).reshape(means.size, -1)
        missing = means.reshape(-1) - matrix @ points.reshape(-1)
        missed = float(np.abs(missing).max())
        if missed < 1e-9:
            break
        move = np.linalg.lstsq(matrix, missing, rcond=None)[0].reshape(points.shape)
        points = points + (0.5 if step % 3 == 0 else 1.0) * move  # half a step now and then leaves a cycle
    return points, missed


def attack_order_statistics(count: int) -> float:
    """Part of the rows recovered from 64 quantiles along 32 directions, which were sent before."""
    points, _ = _client(count)
    axes = common_axes(FEATURES, 32, host_generator(0, Purpose.PARTITION, FEATURES))
    chosen = ((np.arange(64) + 0.5) / 64 * count).astype(int)
    values = np.sort(points @ axes, axis=0)[np.unique(chosen)]
    return fraction_recovered(meeting_points(values.astype(np.float32).astype(float), axes), points)


def attack_sliced(count: int, quick: bool) -> float | None:
    """Part of the rows recovered from what is sent now, by both attacks; None: it is refused."""
    if count < LEAST_ROWS:
        return None
    points, rows = _client(count)
    axes = common_axes(
        FEATURES, count_directions(rows.counts, FEATURES, 32), host_generator(0, Purpose.PARTITION, FEATURES)
    )
    sent = slice_rows(rows)[0].means
    guesses = fit_points(sent, axes, count, starts=2 if quick else 20)
    return max(fraction_recovered(one, points) for one in (guesses, meeting_points(sent, axes)))


def _client(count: int) -> tuple[np.ndarray, Rows]:
    """Label x input of one client, and its rows."""
    draws = np.random.default_rng(count)
    inputs, labels = draws.normal(size=(count, FEATURES)), draws.integers(0, 2, count)
    return inputs * (2 * labels - 1)[:, None], Rows(inputs, labels, np.array([0, count]))


def luck(count: int) -> float:
    """Part of the rows that as many draws from their own law happen to come near."""
    return fraction_recovered(np.random.default_rng([7, count]).normal(size=(count, FEATURES)), _client(count)[0])
