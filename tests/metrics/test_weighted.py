# SPDX-License-Identifier: Apache-2.0
"""Weighted scores against scikit-learn, and weighted paired gains against their formula."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics as reference

from idiolect.metrics.paired import paired_estimates, student_intervals
from idiolect.metrics.scores import SCORES

ROWS, REAL = 30, 24
MASK = np.arange(ROWS) < REAL
DRAW = np.random.default_rng(2)
WEIGHTS = DRAW.integers(0, 5, ROWS).astype(np.float32)
TARGETS = DRAW.integers(0, 3, ROWS).astype(np.int32)
LOGITS = np.round(DRAW.normal(size=(ROWS, 3)), 1).astype(np.float32)  # some ties
VALUES, WANTED = DRAW.normal(size=(2, ROWS)).astype(np.float32)


def score(name, outputs, targets, mask=MASK, weights=WEIGHTS):
    more = () if weights is None else (jnp.asarray(weights),)
    return float(SCORES[name].function(*map(jnp.asarray, (outputs, targets, mask)), *more))


def probabilities(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_scores_of_classes_are_those_of_scikit_learn():
    y, weights, chances = TARGETS[:REAL], WEIGHTS[:REAL], probabilities(LOGITS[:REAL].astype(float))
    options = {"sample_weight": weights}
    found = {name: score(name, LOGITS, TARGETS) for name in ("accuracy", "balanced_accuracy", "log_loss", "auc")}
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(y, chances.argmax(1), **options), rel=1e-5)
    wanted = reference.balanced_accuracy_score(y, chances.argmax(1), **options)
    assert found["balanced_accuracy"] == pytest.approx(wanted, rel=1e-5)
    assert found["log_loss"] == pytest.approx(reference.log_loss(y, chances, **options), rel=1e-5)
    areas = [
        reference.roc_auc_score(y == c, chances[:, c], **options) for c in range(3)
    ]  # the log-odds of a class rank as its probability does
    assert found["auc"] == pytest.approx(np.mean(areas), rel=1e-4)
    binary = np.minimum(TARGETS, 1)
    wanted = reference.roc_auc_score(binary[:REAL], (LOGITS[:, 1] - LOGITS[:, 0])[:REAL], **options)
    assert score("auc", LOGITS[:, :2], binary) == pytest.approx(wanted, rel=1e-5)


def test_scores_of_numbers_are_those_of_scikit_learn():
    pairs, options = (WANTED[:REAL], VALUES[:REAL]), {"sample_weight": WEIGHTS[:REAL]}
    assert score("squared_error", VALUES, WANTED) == pytest.approx(reference.mean_squared_error(*pairs, **options))
    assert score("rmse", VALUES, WANTED) == pytest.approx(reference.root_mean_squared_error(*pairs, **options))
    assert score("mae", VALUES, WANTED) == pytest.approx(reference.mean_absolute_error(*pairs, **options))
    assert score("r2", VALUES, WANTED) == pytest.approx(reference.r2_score(*pairs, **options), rel=1e-4)


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "auc", "log_loss", "brier"])
def test_weight_two_is_the_row_twice_and_zero_is_padding(name):
    times = WEIGHTS.astype(int) * MASK
    outputs, targets = np.repeat(LOGITS, times, axis=0), np.repeat(TARGETS, times)
    expected = score(name, outputs, targets, np.ones(len(targets), bool), None)
    assert score(name, LOGITS, TARGETS) == pytest.approx(expected, rel=1e-5)
    wild = np.where(WEIGHTS[:, None] > 0, LOGITS, np.nan).astype(np.float32)
    assert score(name, wild, TARGETS) == pytest.approx(expected, rel=1e-5)
    assert np.isnan(score(name, LOGITS, TARGETS, weights=np.zeros(ROWS, np.float32)))


def test_equal_targets_have_no_r2():
    assert np.isnan(score("r2", VALUES, np.full(ROWS, 0.3, np.float32)))


def test_sequences_count_by_the_weight_of_their_row():
    targets, outputs = TARGETS.reshape(10, 3), LOGITS.reshape(10, 3, 3)
    weights, mask = WEIGHTS[:10], np.ones(10, bool)
    rows = (outputs.argmax(axis=2) == targets).mean(axis=1)
    assert score("accuracy", outputs, targets, mask, weights) == pytest.approx(np.average(rows, weights=weights))
    y, guess = targets.reshape(-1), outputs.argmax(axis=2).reshape(-1)
    wanted = reference.balanced_accuracy_score(y, guess, sample_weight=np.repeat(weights, 3))
    assert score("balanced_accuracy", outputs, targets, mask, weights) == pytest.approx(wanted, rel=1e-5)


def test_paired_gains_and_their_error():
    differences = DRAW.normal(size=(2, ROWS))
    mask, weights = np.stack([MASK, MASK]), np.stack([WEIGHTS, np.full(ROWS, 7.0)])
    found = paired_estimates(differences, mask, weights=weights)
    counted = MASK & (WEIGHTS > 0)
    d, w, n = differences[0, counted], WEIGHTS[counted].astype(float), counted.sum()
    mean = np.average(d, weights=w)
    assert found.value[0] == pytest.approx(mean)
    error = np.sqrt(n / (n - 1) * (w**2 * (d - mean) ** 2).sum()) / w.sum()
    assert found.error[0] == pytest.approx(error)
    assert found.observations[0] == pytest.approx(w.sum() ** 2 / (w**2).sum())
    plain = paired_estimates(differences[1:], mask[1:])
    for name in ("value", "error", "freedom", "observations"):  # equal weights are none
        assert getattr(found, name)[1] == pytest.approx(getattr(plain, name)[0])
    nobody = paired_estimates(differences, mask, weights=np.zeros_like(weights))
    assert np.isnan(nobody.value).all()


def test_groups_of_weighted_rows_are_one_observation():
    differences, weights = DRAW.normal(size=(1, 12)), DRAW.uniform(1, 4, size=(1, 12))
    groups = np.repeat(np.arange(4), 3)[None]
    found = paired_estimates(differences, np.ones((1, 12), bool), groups, weights=weights)
    mean = np.average(differences[0], weights=weights[0])
    sums = (weights * (differences - mean)).reshape(4, 3).sum(axis=1)
    assert found.error[0] == pytest.approx(np.sqrt(4 / 3 * (sums**2).sum()) / weights.sum())


def test_intervals_of_weighted_rows_cover():
    draw = np.random.default_rng(8)
    differences, weights = draw.normal(size=(4000, 12)), draw.uniform(0.2, 3, size=(4000, 12))
    found = student_intervals(paired_estimates(differences, np.ones(differences.shape, bool), weights=weights))
    assert 0.93 <= ((found.low <= 0) & (found.high >= 0)).mean() <= 0.98
