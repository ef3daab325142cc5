# SPDX-License-Identifier: Apache-2.0
"""Summaries over clients and the gain of one model over another."""

from __future__ import annotations

import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from idiolect.core.checks import RequestError
from idiolect.metrics import paired_gain, summarise
from idiolect.metrics.summary import PERCENTS, percentiles

NAN = math.nan


def test_summary_by_hand():
    # 1..20: mean 10.5, variance (20^2 - 1) / 12; a tenth is 2 clients: 1, 2 or 19, 20; p25 at 1 + 0.25 * 19
    values = np.arange(1.0, 21.0)[::-1]
    summary = summarise([*values, NAN, NAN], higher_is_better=True)
    assert summary.mean == 10.5
    assert summary.spread == pytest.approx(math.sqrt(399 / 12))
    assert summary.worst_decile == 1.5
    assert (summary.p25, summary.p50) == (5.75, 10.5)
    # the k-th decile lies at place 1.9 k of 0 .. 19
    assert summary.deciles == pytest.approx([1 + 1.9 * k for k in range(1, 10)])
    assert (summary.clients, summary.missing) == (20, 2)
    assert summarise(values, higher_is_better=False).worst_decile == 19.5


@pytest.mark.parametrize(("clients", "tenth"), [(1, 1), (9, 1), (19, 1), (20, 2), (105, 10)])
def test_worst_decile_takes_a_tenth_but_at_least_one(clients, tenth):
    # the worst `tenth` of 0..clients-1 are 0..tenth-1, with mean (tenth - 1) / 2
    assert summarise(np.arange(clients), higher_is_better=True).worst_decile == (tenth - 1) / 2


@settings(max_examples=60, deadline=None)
@given(
    values=hnp.arrays(float, st.integers(1, 40), elements=st.floats(-1e6, 1e6)),
    missing=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_percentiles_match_numpy_and_missing_clients_change_nothing(values, missing, seed):
    summary = summarise(values, higher_is_better=True)
    np.testing.assert_allclose(summary[3:14], np.percentile(values, PERCENTS), rtol=1e-9, atol=1e-6)
    mixed = np.random.default_rng(seed).permutation(np.concatenate([values, [NAN] * missing]))
    again = summarise(mixed, higher_is_better=True)
    np.testing.assert_allclose(again[:-1], summary[:-1], rtol=1e-9, atol=1e-6)
    assert again.missing == missing
    assert summary.worst_decile <= summary.p50 + 1e-6
    assert summarise(values, higher_is_better=False).worst_decile >= summary.p50 - 1e-6


def test_nobody_has_the_score():
    for values in ([], [NAN, NAN]):
        summary = summarise(values, higher_is_better=True)
        assert all(math.isnan(value) for value in summary[:14])
        assert (summary.clients, summary.missing) == (0, len(values))
        gain = paired_gain(values, values, True, seed=0)
        assert all(math.isnan(value) for value in gain[:6])
        assert (gain.clients, gain.missing) == (0, len(values))


def test_infinite_losses_show_as_infinite():
    summary = summarise([1.0, 2.0, math.inf, math.inf], higher_is_better=False)
    assert summary.mean == summary.worst_decile == summary.p90 == math.inf
    assert summary.p25 == 1.75
    assert percentiles(np.asarray([-math.inf, 0.0, math.inf]), (50.0,)) == [0.0]


def test_gain_by_hand():
    # gains 0.2, -0.1, 0, missing, 0.3: helped 2 of 4, hurt 1, same 1; mean 0.1
    gain = paired_gain([0.7, 0.4, 0.5, NAN, 0.8], [0.5, 0.5, 0.5, 0.5, 0.5], True, seed=0)
    assert gain.mean == pytest.approx(0.1)
    assert (gain.helped, gain.hurt, gain.same) == (50, 25, 25)
    assert (gain.clients, gain.missing) == (4, 1)
    assert -0.1 <= gain.low < 0.1 < gain.high <= 0.3
    # a tolerance above 0.1 turns the hurt client into the same
    tolerant = paired_gain([0.7, 0.4, 0.5, NAN, 0.8], [0.5, 0.5, 0.5, 0.5, 0.5], True, seed=0, tolerance=0.15)
    assert (tolerant.helped, tolerant.hurt, tolerant.same) == (50, 0, 50)


def test_what_differs_by_rounding_is_no_gain():
    """3/10 and 7/10, 4/10 and 6/10: the same mean over two seeds, but not in float32."""
    ours, theirs = (np.mean(np.asarray(seeds, np.float32), axis=0) for seeds in ([[0.3], [0.7]], [[0.4], [0.6]]))
    shares = np.asarray([3 / 7, 5 / 9], np.float32)
    above = np.nextafter(shares, np.float32(1))
    assert not np.array_equal(above, shares)
    gain = paired_gain([*ours, *above], [*theirs, *shares], True, seed=0)
    assert (gain.helped, gain.hurt, gain.same, gain.mean) == (0, 0, 100, 0)
    assert paired_gain([0.5 + 1e-5, 1e-9], [0.5, 0.0], True, seed=0).helped == 100  # small is not nothing


@settings(max_examples=25, deadline=None)
@given(
    pair=hnp.arrays(float, st.tuples(st.just(2), st.integers(2, 30)), elements=st.floats(-100, 100)),
    seed=st.integers(0, 99),
)
def test_gain_turns_round(pair, seed):
    better = paired_gain(pair[0], pair[1], True, seed, resamples=50)
    loss = paired_gain(-pair[0], -pair[1], False, seed, resamples=50)
    assert better == pytest.approx(loss)
    back = paired_gain(pair[1], pair[0], True, seed, resamples=50)
    assert (back.helped, back.hurt, back.mean) == pytest.approx((better.hurt, better.helped, -better.mean))
    assert (back.low, back.high) == pytest.approx((-better.high, -better.low))
    assert better.helped + better.hurt + better.same == pytest.approx(100)


def test_interval_is_seeded_and_needs_two_clients():
    ours, theirs = np.random.default_rng(0).normal(size=(2, 30))
    assert paired_gain(ours, theirs, True, seed=1) == paired_gain(ours, theirs, True, seed=1)
    assert paired_gain(ours, theirs, True, seed=1).low != paired_gain(ours, theirs, True, seed=2).low
    alone = paired_gain([0.9], [0.5], True, seed=0)
    assert (alone.mean, alone.helped) == (pytest.approx(0.4), 100)
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_interval_width_is_that_of_the_central_limit():
    # 400 standard normal gains: sd of their mean 1/20, 95 % interval about 2 * 1.96 / 20 wide
    ours = np.random.default_rng(5).normal(size=400)
    gain = paired_gain(ours, np.zeros(400), True, seed=3)
    assert gain.high - gain.low == pytest.approx(2 * 1.96 * ours.std() / 20, rel=0.08)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    # 400 experiments of 40 clients, true gain 1: a percentile bootstrap at n = 40 covers about 94 %;
    # three standard errors of the count are 3 sqrt(0.94 * 0.06 / 400) = 3.6 points
    draw = np.random.default_rng(11)
    covered = 0
    for experiment in range(400):
        gain = paired_gain(1 + draw.exponential(size=40), np.ones(40), True, seed=experiment, resamples=400)
        covered += gain.low <= 1 <= gain.high
    assert 0.88 <= covered / 400 <= 0.98


def test_infinite_and_equal_losses_are_the_same():
    gain = paired_gain([math.inf, 1.0], [math.inf, math.inf], False, seed=0)
    assert (gain.same, gain.helped, gain.mean) == (50, 50, math.inf)
    both = paired_gain([math.inf, 1.0], [1.0, math.inf], False, seed=0)
    assert (both.helped, both.hurt) == (50, 50)
    assert math.isnan(both.mean)


def test_bad_requests():
    with pytest.raises(RequestError, match="same shape"):
        paired_gain([1.0], [1.0, 2.0], True, seed=0)
    with pytest.raises(RequestError, match="tolerance"):
        paired_gain([1.0], [1.0], True, seed=0, tolerance=-1)
    with pytest.raises(RequestError, match="resamples"):
        paired_gain([1.0, 2.0], [1.0, 2.0], True, seed=0, resamples=0)
    with pytest.raises(RequestError, match="one number per client"):
        summarise(np.zeros((2, 2)), True)
