# SPDX-License-Identifier: Apache-2.0
"""Weights without an oracle: they find groups, leave the isolated alone, and lose little where nothing is to be had."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.collaborate.blocks import learn_in_blocks
from idiolect.collaborate.map import SMALLEST_SHARE, collaboration_map
from idiolect.collaborate.online import OnlineWeights
from idiolect.collaborate.weights import alone, exchange_of, learn_weights, stack, together
from idiolect.core.checks import RequestError
from idiolect.core.mixing import check_weights
from papers.collaborate_bernoulli import errors_of, ratio_interval


@pytest.fixture(scope="module")
def grouped(bench):
    """24 agents at 0, 10 at 4, one at 50; 12 rows each, noise 1."""
    means = np.array([0.0] * 24 + [4.0] * 10 + [50.0])
    values = means[:, None] + np.random.default_rng(0).normal(size=(35, 12))
    return means, values, learn_weights(bench.mean_sample(values))


def test_groups_are_found_and_a_stranger_is_left_alone(grouped):
    means, values, learned = grouped
    check_weights(learned.shares)
    outside = (learned.shares * (means[:, None] != means)).sum(axis=1)
    assert outside.max() < 0.02
    assert learned.shares[34, 34] > 0.98
    own, shared = (((answer - means) ** 2).mean() for answer in (values.mean(axis=1), learned.shares @ values.mean(1)))
    assert shared < 0.35 * own
    assert sum(learned.mixture.values()) == pytest.approx(1)
    assert learned.held_out["everybody"] > learned.held_out["alone"]
    for one in learned.fold_shares:
        check_weights(one)


def test_the_map_counts_neighbours(grouped):
    means, _, learned = grouped
    found = collaboration_map(learned.shares, np.full(35, 12))
    assert found.effective[34] == pytest.approx(1, abs=0.05)
    assert found.effective[:24].min() > 5
    assert found.speed_up == pytest.approx(35 / (1 / found.effective).sum())
    assert {means[other] for other in np.flatnonzero(found.shares[30] >= SMALLEST_SHARE)} == {4.0}
    assert sorted(found.order) == list(range(35))
    assert np.abs(found.places).max() <= 1 + 1e-9
    # equal shares of k agents of equal size are worth k times the own rows; by rows, all together are worth all rows
    quarter = np.kron(np.eye(2), np.full((4, 4), 0.25))
    assert collaboration_map(quarter, np.full(8, 5)).effective == pytest.approx(np.full(8, 4.0))
    counts = np.array([1, 2, 5])
    assert collaboration_map(together(counts), counts).effective == pytest.approx(8 / counts)


def test_where_others_tell_nothing_little_is_lost_and_where_they_do_much_is_won():
    """A small version of `idiolect reproduce collaborate-bernoulli`: 3 draws of 60 agents after 60 tosses."""
    uniform, clustered = [], []
    for seed in range(3):
        draws = np.random.default_rng(seed)
        for means, found in ((draws.uniform(size=60), uniform), (np.repeat([0.02, 0.5, 0.98], 20), clustered)):
            tosses = (draws.uniform(size=(60, 60)) < means[:, None]).astype(float)
            found.append(errors_of(means, tosses, 5, seed))
    apart, close = np.mean(uniform, axis=0), np.mean(clustered, axis=0)
    assert apart[3] < 1.1 * apart[0]
    assert close[3] < 0.25 * close[0]
    assert close[3] < close[1]
    assert close[2] <= close[3]  # who is told knows best


def test_stacking_takes_the_best_of_two_answers(bench):
    """Answers 0 and 1, tosses with mean 0.3: the mixture is 0.7 and 0.3."""
    sample = bench.mean_sample(np.tile([0.0, 0, 0, 0, 0, 0, 0, 1, 1, 1], (3, 1)))
    outputs = np.zeros((30, 2, 1))
    outputs[:, 1] = 1
    assert stack(sample, outputs) == pytest.approx([0.7, 0.3], abs=1e-6)
    outputs[:, 0] = 0.4  # both above the mean: the lower one alone
    assert stack(sample, outputs) == pytest.approx([1, 0], abs=1e-6)


def test_the_bill_grows_with_pairs_and_folds(bench):
    few, many = (exchange_of(bench.mean_sample(np.eye(9)[:, :6], folds=folds)) for folds in (2, 5))
    assert few.pairs == 9 * 8 * 3
    assert many.pairs == 9 * 8 * 6
    assert many.upload_bytes > few.upload_bytes
    assert "Hessians" in many.reveals


def test_many_agents_are_not_all_compared(bench):
    means = np.repeat([0.0, 5.0, 10.0, 15.0], 15)
    values = means[:, None] + np.random.default_rng(1).normal(size=(60, 8))
    found = learn_in_blocks(bench.mean_sample(values, folds=4), block=20, landmarks=6)
    shares = found.dense()
    check_weights(shares)
    assert (shares * (means[:, None] != means)).sum() < 0.02 * 60
    assert ((shares @ values.mean(1) - means) ** 2).mean() < 0.5 * ((values.mean(1) - means) ** 2).mean()
    assert max(map(len, found.blocks)) <= 20
    assert sorted(np.concatenate(found.blocks)) == list(range(60))
    # landmarks judged once and after each of three refits, then pairs in blocks for 4 folds and all rows
    assert found.exchange.pairs == 60 * 6 * 4 + 3 * 20 * 19 * 5
    assert found.exchange.pairs < 60 * 59 * 5
    with pytest.raises(RequestError, match="block must be at least 2"):
        learn_in_blocks(bench.mean_sample(values), block=1)


def test_online_estimates_when_rows_have_doubled(bench):
    means = np.repeat([0.0, 3.0], 8)
    values = means[:, None] + np.random.default_rng(2).normal(size=(16, 24))
    online = OnlineWeights(bench.mean, 16, first=3, folds=3)
    assert (online.shares == alone(16)).all()
    estimated = [online.add(bench.tosses(values[:, step : step + 1])) for step in range(24)]
    assert np.flatnonzero(estimated).tolist() == [2, 5, 11, 23]
    assert [one.rows for one in online.history] == [48, 96, 192, 384]
    across = [(one.learned.shares * (means[:, None] != means)).sum() / 16 for one in online.history]
    assert across[-1] < 0.02
    assert across[-1] <= across[0]
    assert online.exchange.pairs == sum(one.exchange.pairs for one in online.history)
    with pytest.raises(RequestError, match="16 clients, got 2"):
        online.add(bench.tosses(values[:2]))
    with pytest.raises(RequestError, match="growth must be above 1"):
        OnlineWeights(bench.mean, 3, growth=1)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.full((2, 2), 0.4), "row 0 sums to 0.8"),
        (np.array([[1.5, -0.5], [0, 1]]), "at least 0"),
        (np.ones((2, 3)), "square matrix, one row per client"),
    ],
)
def test_bad_weights_are_refused_in_one_sentence(matrix, message):
    with pytest.raises(RequestError, match=message):
        collaboration_map(matrix, np.ones(2))


def test_a_ratio_that_never_varies_has_no_width():
    assert ratio_interval(np.array([1.0, 2, 3]), np.array([2.0, 4, 6])) == pytest.approx((0.5, 0.5, 0.5))
