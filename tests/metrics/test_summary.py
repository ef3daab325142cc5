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
from idiolect.metrics import paired_difference, paired_gain, summarise
from idiolect.metrics.summary import PERCENTS, bootstrap_interval, percentiles, student_interval

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
        gain = paired_gain(values, values, True)
        assert all(math.isnan(value) for value in gain[:6])
        assert (gain.clients, gain.missing) == (0, len(values))


def test_infinite_losses_show_as_infinite():
    summary = summarise([1.0, 2.0, math.inf, math.inf], higher_is_better=False)
    assert summary.mean == summary.worst_decile == summary.p90 == math.inf
    assert summary.p25 == 1.75
    assert percentiles(np.asarray([-math.inf, 0.0, math.inf]), (50.0,)) == [0.0]


def test_gain_by_hand():
    # gains 0.2, -0.1, 0, missing, 0.3: better 2 of 4, worse 1, equal 1; mean 0.1
    gain = paired_gain([0.7, 0.4, 0.5, NAN, 0.8], [0.5, 0.5, 0.5, 0.5, 0.5], True)
    assert gain.mean == pytest.approx(0.1)
    assert (gain.better, gain.worse, gain.equal) == (50, 25, 25)
    assert (gain.clients, gain.missing) == (4, 1)
    # standard deviation of the four: sqrt(0.1 / 3); t of 3 degrees of freedom: 3.1824
    assert gain.high - gain.mean == pytest.approx(3.182446 * math.sqrt(0.1 / 3 / 4))
    assert gain.mean - gain.low == pytest.approx(gain.high - gain.mean)


def test_what_differs_by_rounding_is_no_gain():
    """3/10 and 7/10, 4/10 and 6/10: the same mean over two seeds, but not in float32."""
    ours, theirs = (np.mean(np.asarray(seeds, np.float32), axis=0) for seeds in ([[0.3], [0.7]], [[0.4], [0.6]]))
    shares = np.asarray([3 / 7, 5 / 9], np.float32)
    above = np.nextafter(shares, np.float32(1))
    assert not np.array_equal(above, shares)
    gain = paired_gain([*ours, *above], [*theirs, *shares], True)
    assert (gain.better, gain.worse, gain.equal, gain.mean) == (0, 0, 100, 0)
    assert paired_gain([0.5 + 1e-5, 1e-9], [0.5, 0.0], True).better == 100  # small is not nothing


@settings(max_examples=25, deadline=None)
@given(
    pair=hnp.arrays(float, st.tuples(st.just(2), st.integers(2, 30)), elements=st.floats(-100, 100)),
)
def test_gain_turns_round(pair):
    better = paired_gain(pair[0], pair[1], True)
    loss = paired_gain(-pair[0], -pair[1], False)
    assert better == pytest.approx(loss)
    back = paired_gain(pair[1], pair[0], True)
    assert (back.better, back.worse, back.mean) == pytest.approx((better.worse, better.better, -better.mean))
    assert (back.low, back.high) == pytest.approx((-better.high, -better.low))
    assert better.better + better.worse + better.equal == pytest.approx(100)


def test_interval_needs_two_clients():
    alone = paired_gain([0.9], [0.5], True)
    assert (alone.mean, alone.better) == (pytest.approx(0.4), 100)
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_interval_covers_with_four_clients_and_a_bootstrap_does_not():
    # 2000 experiments of 4 normal clients: Student's t is exact, a percentile bootstrap of four is far too narrow
    gains = np.random.default_rng(11).normal(1.0, 1.0, (2000, 4))
    found = [student_interval(line) for line in gains]
    assert 0.935 <= np.mean([low <= 1 <= high for low, high in found]) <= 0.965
    drawn = [bootstrap_interval(line, np.random.default_rng(0), 200) for line in gains[:400]]
    assert np.mean([low <= 1 <= high for low, high in drawn]) < 0.87


def test_paired_difference_by_hand():
    # gains 1, 3, missing: mean 2, standard deviation sqrt(2), error 1; weights 3 and 1: mean 1.5
    mean, error, clients = paired_difference([2.0, 4.0, NAN], [1.0, 1.0, 1.0], True)
    assert (mean, error, clients) == (2.0, pytest.approx(1.0), 2)
    mean, error, _ = paired_difference([2.0, 4.0], [1.0, 1.0], True, weights=[3, 1])
    assert mean == pytest.approx(1.5)
    assert error == pytest.approx(math.sqrt(2 * ((0.75 * 0.5) ** 2 + (0.25 * 1.5) ** 2)))
    assert paired_difference([2.0], [1.0], False)[0] == -1
    assert math.isnan(paired_difference([2.0], [1.0], True)[1])
    assert paired_difference([NAN], [1.0], True)[2] == 0


def test_infinite_and_equal_losses_are_the_same():
    gain = paired_gain([math.inf, 1.0], [math.inf, math.inf], False)
    assert (gain.equal, gain.better, gain.mean) == (50, 50, math.inf)
    both = paired_gain([math.inf, 1.0], [1.0, math.inf], False)
    assert (both.better, both.worse) == (50, 50)
    assert math.isnan(both.mean)


def test_bad_requests():
    with pytest.raises(RequestError, match="same shape"):
        paired_gain([1.0], [1.0, 2.0], True)
    with pytest.raises(RequestError, match="one number per client"):
        summarise(np.zeros((2, 2)), True)
