# SPDX-License-Identifier: Apache-2.0
"""Attacks that recover rows from what clients send: they work where they should, and fail on what is sent."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import rows, rows_folds, rows_sliced, rows_uploads

CHANCE = 0.05  # rows that guesses come near by chance


@pytest.mark.parametrize("count", [1, 5, 42, 64])
def test_single_values_along_many_directions_are_the_rows(count):
    assert rows_sliced.attack_order_statistics(count) == 1


def test_means_of_two_rows_along_many_directions_are_the_rows():
    draws = np.random.default_rng(0)
    points, axes = draws.normal(size=(12, 2)), rows_sliced.common_axes(2, 16, draws)
    means = np.sort(points @ axes, axis=0).reshape(6, 2, 16).mean(axis=1)
    assert rows_sliced.fraction_recovered(rows_sliced.fit_points(means, axes, 12, starts=5), points) == 1


@pytest.mark.parametrize("count", [20, 42])
def test_distances_of_rows_give_no_row_away(count):
    assert rows_sliced.attack_sliced(count, quick=True) <= CHANCE


def test_distances_of_few_rows_are_refused():
    assert rows_sliced.attack_sliced(19, quick=True) is None


@pytest.mark.parametrize(("criterion", "counts"), [("squared", (1, 2, 5)), ("logistic", (1, 2, 5, 20))])
def test_sums_over_folds_of_one_or_two_rows_are_the_rows(criterion, counts):
    for count in counts:
        assert rows_folds.attack_folds(count, criterion, guarded=False, starts=3) == 1, count


@pytest.mark.parametrize(("criterion", "counts"), [("squared", (5, 20)), ("logistic", (10, 20))])
def test_sums_that_are_sent_give_no_row_away(criterion, counts):
    for count in counts:
        assert rows_folds.attack_folds(count, criterion, guarded=True, starts=1) == 0, count


@pytest.mark.parametrize(("criterion", "count"), [("squared", 4), ("logistic", 9)])
def test_fewer_rows_send_no_sums(criterion, count):
    assert rows_folds.attack_folds(count, criterion, guarded=True, starts=1) is None


@pytest.mark.parametrize(("count", "part"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2 / 5), (20, 1 / 10)])
def test_sums_of_up_to_four_values_are_the_values(count, part):
    """Which is why fewer than five training rows are warned about."""
    assert rows.attack_preparation(count) == pytest.approx(part)


@pytest.mark.parametrize("name", ["minibatch_sgd", "l2gd"])
def test_an_upload_of_one_row_is_the_row_and_one_of_many_is_not(name):
    assert rows_uploads.recovered(name, 1, quick=True).blind == 1
    assert rows_uploads.recovered(name, 20, quick=True) == (0, 0)


@pytest.mark.parametrize("name", ["local", "lg_fedavg"])
def test_methods_that_send_no_layer_that_takes_rows_give_nothing_to_attack(name):
    assert rows_uploads.recovered(name, 1, quick=True) is None
