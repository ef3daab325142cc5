# SPDX-License-Identifier: Apache-2.0
"""What many clients say together: coverage, shrinkage, and how often helped and hurt are called falsely."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.metrics import Estimates, expected_gains, false_discovery, judge, paired_estimates
from idiolect.metrics import student_intervals as intervals
from idiolect.metrics.shrinkage import moderated
from idiolect.metrics.variances import moderate


def losses(draw, clients, rows, better=0.8):
    """Squared errors of two models that err alike, the second being the better: their difference is skewed."""
    noise = draw.normal(size=(2, clients, rows))
    return noise[0] ** 2, (better * (0.8 * noise[0] + 0.6 * noise[1])) ** 2, 1 - better**2


@pytest.mark.parametrize("rows", [6, 10, 15])
def test_intervals_of_squared_errors_cover(client_gains, rows):
    # 3000 clients at once: three standard errors of the coverage are 1.2 points
    theirs, ours, gain = losses(np.random.default_rng(rows), 3000, rows)
    found = client_gains(ours, theirs, np.ones((3000, rows), bool), False)
    assert 0.93 <= np.mean((found.low <= gain) & (gain <= found.high)) <= 0.975
    # without the correction of skewness the same intervals hold too rarely
    plain = intervals(paired_estimates(theirs - ours, np.ones((3000, rows), bool))._replace(skew=np.zeros(3000)))
    assert np.mean((plain.low <= gain) & (gain <= plain.high)) < 0.93


@pytest.mark.parametrize("rows", [6, 10, 15])
def test_intervals_of_rows_right_cover(client_gains, rows):
    # rows won and lost with several probabilities, from models that hardly differ to ones that do
    draw, covered = np.random.default_rng(rows), []
    for won, lost in ((0.05, 0.05), (0.2, 0.1), (0.3, 0.3), (0.3, 0.05)):
        drawn = draw.random((1000, rows))
        found = client_gains(drawn < won, drawn > 1 - lost, np.ones((1000, rows), bool), True)
        covered.append(np.mean((found.low <= won - lost) & (won - lost <= found.high)))
    assert min(covered) >= 0.93
    assert np.mean(covered) <= 0.99  # few rows cannot do better: most of these clients have no row that decides


def test_a_variance_that_is_small_by_chance_is_steadied():
    draw = np.random.default_rng(0)
    same, freedom = moderate(draw.chisquare(5, 2000) / 5, np.full(2000, 5.0))
    assert np.std(same) < 0.1
    assert freedom.min() > 50
    scales = np.exp(draw.normal(0, 1, 2000))
    other, freedom = moderate(scales * draw.chisquare(5, 2000) / 5, np.full(2000, 5.0))
    assert np.corrcoef(np.log(other), np.log(scales))[0, 1] > 0.8
    assert freedom.max() < 12
    few = np.asarray([1.0, 2.0])
    assert moderate(few, few)[0] is few
    # a client without a variance of its own takes the others', one of 0 keeps it
    kept, _ = moderate(np.asarray([1.0, 1.1, 0.9, np.nan, 0.0]), np.full(5, 4.0))
    assert (kept[3], kept[4]) == (pytest.approx(1.0, abs=0.1), 0)


def known(value, error):
    clients = len(value)
    return Estimates(value, error, np.full(clients, 9.0), np.full(clients, 10), np.zeros(clients))


@pytest.mark.parametrize(("clients", "spread"), [(4, 0.5), (30, 0.2), (30, 0.0), (300, 0.5)])
def test_expected_gains_cover_and_err_less(clients, spread):
    draw = np.random.default_rng(clients)
    covered, shrunk, raw = [], [], []
    for _ in range(max(8, 1200 // clients)):
        truth = 0.3 + spread * draw.normal(size=clients)
        value = truth + 0.4 * draw.standard_t(9, clients)
        found = expected_gains(known(value, np.full(clients, 0.4)))
        covered.append(np.mean((found.low <= truth) & (truth <= found.high)))
        shrunk.append(np.mean((found.value - truth) ** 2))
        raw.append(np.mean((value - truth) ** 2))
    assert np.mean(covered) >= 0.92
    assert np.mean(shrunk) < np.mean(raw)


def test_an_outlying_client_is_hardly_moved():
    # 40 clients at 0.3 and one far away, measured to 0.1: it stays within its error, and its interval holds the truth
    value = np.append(0.3 + 0.1 * np.random.default_rng(2).normal(size=40), -1.0)
    found = expected_gains(known(value, np.full(41, 0.1)))
    assert found.value[-1] == pytest.approx(-1.0, abs=0.1)
    assert found.high[-1] < -0.6
    assert np.std(found.value[:-1]) < 0.6 * np.std(value[:-1])


def test_few_clients_and_missing_ones():
    alone = known(np.asarray([0.2, np.nan]), np.asarray([0.1, np.nan]))
    found = expected_gains(alone)
    assert found.value[0] == 0.2
    assert np.isnan(found.low[1])
    assert judge(alone)[1].tolist() == ["unclear", ""]
    exact = judge(known(np.asarray([0.0, 0.5, 0.4, 0.6, 0.5]), np.asarray([0.0, 0.1, 0.1, 0.1, 0.1])))
    assert exact[1].tolist() == ["same", "helped", "helped", "helped", "helped"]
    assert (exact[0].low[0], exact[0].high[0]) == (0, 0)


def test_benjamini_and_hochberg_by_hand():
    # limits 0.01, 0.02, .. 0.05 of five: 0.001 and 0.019 pass, and 0.028 by the 0.03 of its rank
    p_values = np.asarray([0.028, 0.001, 0.2, 0.019, 0.9, np.nan])
    assert false_discovery(p_values).tolist() == [True, True, False, True, False, False]
    assert not false_discovery(np.asarray([0.02, 0.9, np.nan])[1:]).any()
    assert not false_discovery(np.zeros(0)).size


@pytest.mark.parametrize("skewed", [False, True])
def test_false_calls_are_rare(skewed):
    # 40 tables of 60 clients with 6 to 15 rows and no gain for any: a call of any kind is false
    draw, tables, called = np.random.default_rng(3), 40, 0
    for _ in range(tables):
        rows = np.arange(15) < draw.integers(6, 16, 60)[:, None]
        noise = draw.chisquare(1, (60, 15)) - 1 if skewed else draw.normal(size=(60, 15))
        called += np.isin(judge(paired_estimates(noise, rows))[1], ("helped", "hurt")).any()
    assert called / tables <= 0.1  # 5 % of tables; two standard errors of the count above


def test_clear_gains_and_losses_are_called():
    draw = np.random.default_rng(5)
    truth = np.repeat([1.0, -1.0, 0.0], 20)
    found = paired_estimates(truth[:, None] + 0.7 * draw.normal(size=(60, 12)), np.ones((60, 12), bool))
    verdict = judge(found)[1].reshape(3, 20)
    assert (verdict[0] == "helped").mean() >= 0.8
    assert (verdict[1] == "hurt").mean() >= 0.8
    assert np.isin(verdict[2], ("helped", "hurt")).mean() <= 0.1
    # a client without an error of its own, one row say, borrows the others'
    lone = found._replace(error=np.append(np.nan, found.error[1:]))
    assert np.isfinite(moderated(lone).error[0])


def test_a_client_of_one_row_moves_nobody_else():
    draw = np.random.default_rng(0)
    value, error = draw.normal(0, 0.02, 14), np.full(14, 0.02)
    without = expected_gains(known(value[:13], error[:13]))
    value[13], error[13] = 1.0, 0.5
    found = expected_gains(known(value, error))
    assert np.abs(found.value[:13] - without.value).max() < 0.01
    # one whose error is as large as the others' counts as they do
    value[13], error[13] = 0.2, 0.02
    assert expected_gains(known(value, error)).value[:13].mean() > without.value.mean() + 0.005
