# SPDX-License-Identifier: Apache-2.0
"""Intervals of one client's score and gain."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from idiolect.core.checks import RequestError
from idiolect.metrics import paired_estimates, pseudo_values
from idiolect.metrics.jackknife import BLOCKS, blocks_of
from idiolect.metrics.scores import auc, log_loss, log_loss_rows

Z = 1.959963984540054  # the 97.5 % point of the standard normal


def test_gain_of_rows_right_by_hand(client_gains):
    # 20 rows, 9 won, 1 lost: mean 0.4, variance (10 - 20 * 0.16) / 19; t of 19 degrees of freedom: 2.0930
    ours = np.zeros((1, 25), bool)
    theirs = np.zeros((1, 25), bool)
    ours[0, :9], theirs[0, 9], ours[0, 20:] = True, True, True  # the last five are padding
    mask = np.arange(25)[None] < 20
    found = client_gains(ours, theirs, mask, True)
    half = 2.093024 * math.sqrt((10 - 3.2) / 19 / 20)
    assert (found.value[0], found.low[0], found.high[0]) == pytest.approx((0.4, 0.4 - half, 0.4 + half))
    turned = client_gains(theirs, ours, mask, True)
    assert turned.high[0] == pytest.approx(-found.low[0])


def test_rows_that_all_agree_still_have_an_interval(client_gains):
    # no row decides: one row more on each side, of 3 + 2; no row at all: nothing; one row won: wide
    ours = np.asarray([[1, 1, 0], [0, 0, 0], [1, 0, 0]], bool)
    theirs = np.asarray([[1, 1, 0], [0, 0, 0], [0, 0, 0]], bool)
    mask = np.asarray([[1, 1, 1], [0, 0, 0], [1, 0, 0]], bool)
    found = client_gains(ours, theirs, mask, True)
    assert found.value[[0, 2]].tolist() == [0, 1]
    assert found.high[0] == -found.low[0] == pytest.approx(min(1.0, 2.776445 * math.sqrt(2 / 5 / 4) * 5 / 3))
    assert math.isnan(found.value[1])
    assert math.isnan(found.low[1])
    assert found.low[2] < 0
    # losses that differ by the same number everywhere: rows at 0 and at twice the gain are added
    same = client_gains(np.zeros((1, 8)), np.ones((1, 8)), np.ones((1, 8), bool), False)
    assert 0 < same.low[0] < 1 < same.high[0]
    assert client_gains(np.ones((1, 8)), np.ones((1, 8)), np.ones((1, 8), bool), False).high[0] == 0
    assert math.isnan(client_gains([[0.0]], [[1.0]], [[True]], False).low[0])  # one loss tells nothing about the next


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 40))
def test_gain_lies_in_its_interval(client_gains, seed, rows):
    ours, theirs = np.random.default_rng(seed).random((2, 3, rows)) < 0.7
    found = client_gains(ours, theirs, np.ones((3, rows), bool), True)
    assert (found.low <= found.value + 1e-12).all()
    assert (found.value <= found.high + 1e-12).all()
    np.testing.assert_allclose(found.value, ours.mean(1) - theirs.mean(1), atol=1e-12)


def test_loss_gain_matches_the_central_limit_and_ignores_padding(client_gains):
    draw = np.random.default_rng(8)
    theirs = draw.exponential(size=(3, 300))
    ours = theirs - np.asarray([0.2, 0.0, -0.2])[:, None] + 0.5 * draw.normal(size=(3, 300))
    mask = np.arange(300)[None] < np.asarray([300, 200, 250])[:, None]
    found = client_gains(ours, theirs, mask, False)
    difference = [(theirs - ours)[m][mask[m]] for m in range(3)]
    np.testing.assert_allclose(found.value, [row.mean() for row in difference])
    width = [2 * Z * row.std() / math.sqrt(row.size) for row in difference]
    np.testing.assert_allclose(found.high - found.low, width, rtol=0.03)
    spoilt = client_gains(np.where(mask, ours, np.nan), np.where(mask, theirs, np.inf), mask, False)
    np.testing.assert_array_equal(found, spoilt)


def test_rows_of_a_group_are_one_observation():
    # every row twice: as groups the interval of the single rows, without them one that is too narrow
    difference = np.random.default_rng(1).normal(size=(4, 10))
    single = paired_estimates(difference, np.ones((4, 10), bool))
    twice, groups = np.repeat(difference, 2, axis=1), np.repeat(np.arange(10), 2)[None].repeat(4, axis=0)
    grouped = paired_estimates(twice, np.ones((4, 20), bool), groups)
    for ours, theirs in zip(grouped, single):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert (paired_estimates(twice, np.ones((4, 20), bool)).error < 0.75 * single.error).all()


def test_shapes_must_agree(client_gains):
    with pytest.raises(RequestError, match="one shape"):
        client_gains(np.zeros((2, 3)), np.zeros((2, 3)), np.ones(3), True)


def outputs(seed, rows, strength):
    """Two-class logits that agree with the targets as strongly as asked."""
    draw = np.random.default_rng(seed)
    targets = (np.arange(rows) % 4 == 0).astype(np.int32)
    score = strength * targets + draw.normal(size=rows)
    return np.stack([np.zeros(rows), score], axis=1).astype(np.float32), targets


def test_pseudo_values_of_a_mean_are_its_rows():
    answers, targets = outputs(0, 30, 3.0)
    found = pseudo_values(log_loss, answers, targets, np.where(np.arange(30) < 25, np.arange(30), -1), 30)
    np.testing.assert_allclose(found[:25], log_loss_rows(answers, targets, np.ones(30, bool))[:25], atol=1e-4)
    assert np.isnan(found[25:]).all()


def test_pseudo_values_of_the_area_give_its_error():
    # 300 clients of 40 rows: the errors from pseudo-values agree with the spread of the areas over clients
    draws = [outputs(seed, 40, 1.5) for seed in range(300)]
    blocks = np.broadcast_to(np.arange(40), (300, 40))
    answers, targets = (np.stack([draw[side] for draw in draws]) for side in (0, 1))
    found = jax.jit(jax.vmap(lambda *one: pseudo_values(auc, *one, 40)))(answers, targets, blocks)
    areas = jax.vmap(auc)(answers, targets, np.ones((300, 40), bool))
    error = paired_estimates(found, np.ones((300, 40), bool), bound=1.0).error
    assert np.sqrt(np.mean(error**2)) == pytest.approx(float(np.std(np.asarray(areas))), rel=0.12)
    # without its only positive row a client has no area: that pseudo-value is not-a-number
    lone = pseudo_values(auc, answers[0], jnp.zeros(40, jnp.int32).at[7].set(1), blocks[0], 40)
    assert np.flatnonzero(np.isnan(lone)).tolist() == [7]


def test_blocks_hold_whole_groups():
    found = blocks_of([120, 4], 120, np.stack([np.arange(120) // 2, np.asarray([9, 9, 3, 3] + [0] * 116)]))
    assert found[0].max() == BLOCKS - 1
    assert (found[0, ::2] == found[0, 1::2]).all()
    assert found[1, :5].tolist() == [0, 0, 1, 1, -1]
    assert (blocks_of([7], 7) == np.arange(7)).all()
