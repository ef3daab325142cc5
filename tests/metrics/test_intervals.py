# SPDX-License-Identifier: Apache-2.0
"""Intervals of one client's score and gain, and the verdict they allow."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings

from idiolect.core.checks import RequestError
from idiolect.metrics import client_gains, client_intervals, gain_interval, gains_from_scores, verdicts
from idiolect.metrics.scores import accuracy, auc, log_loss

Z = 1.959963984540054  # the 97.5 % point of the standard normal


def test_wilson_solves_its_equation():
    # both ends p of the interval satisfy (score - p)^2 = z^2 p (1 - p) / n
    scores, rows = np.asarray([0.8, 0.25, 0.5]), np.asarray([10, 40, 3])
    found = client_intervals(scores, rows)
    for end in (found.low, found.high):
        np.testing.assert_allclose((scores - end) ** 2, Z**2 * end * (1 - end) / rows, rtol=1e-10)
    assert (found.low < scores).all()
    assert (scores < found.high).all()


def test_wilson_at_the_edges():
    # all of n rows right: the lower end is n / (n + z^2), the upper end 1
    found = client_intervals([1.0, 0.0, math.nan, 0.5], [4, 4, 10, 0])
    assert found.low[0] == pytest.approx(4 / (4 + Z**2))
    assert found.high[0] == 1
    assert (found.low[1], found.high[1]) == (0, pytest.approx(Z**2 / (4 + Z**2)))
    assert np.isnan(found.low[2:]).all()
    with pytest.raises(RequestError, match=r"got 1\.2"):
        client_intervals([0.3, 1.2], [5, 5])
    with pytest.raises(RequestError, match="level"):
        client_intervals([0.3], [5], level=95)


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 500), data=st.data())
def test_wilson_holds_the_score_and_narrows_with_rows(rows, data):
    right = data.draw(st.integers(0, rows))
    few, many = (client_intervals([right / rows], [k * rows]) for k in (1, 4))
    assert 0 <= few.low[0] <= right / rows <= few.high[0] <= 1
    assert many.high[0] - many.low[0] < few.high[0] - few.low[0]


def test_matched_gain_by_hand():
    # 20 rows, 9 won, 1 lost: N = 22, d = 8; centre 8/22, variance (10 + 1 - 64/22) / 22^2
    ours = np.zeros((1, 25), bool)
    theirs = np.zeros((1, 25), bool)
    ours[0, :9], theirs[0, 9], ours[0, 20:] = True, True, True  # the last five are padding
    mask = np.arange(25)[None] < 20
    found = client_gains(ours, theirs, mask, True, seed=0)
    half = Z * math.sqrt(11 - 64 / 22) / 22
    assert found.value[0] == 8 / 20
    assert found.low[0] == pytest.approx(8 / 22 - half)
    assert found.high[0] == pytest.approx(8 / 22 + half)
    assert verdicts(found).tolist() == ["helped"]
    turned = client_gains(theirs, ours, mask, True, seed=0)
    assert turned.high[0] == pytest.approx(-found.low[0])
    assert verdicts(turned).tolist() == ["hurt"]


def test_few_rows_are_unclear():
    # clients: one row won; nothing won; no row at all
    ours = np.asarray([[1, 0, 0], [1, 1, 0], [0, 0, 0]], bool)
    theirs = np.asarray([[0, 0, 0], [1, 1, 0], [0, 0, 0]], bool)
    mask = np.asarray([[1, 0, 0], [1, 1, 1], [0, 0, 0]], bool)
    found = client_gains(ours, theirs, mask, True, seed=0)
    assert found.value[:2].tolist() == [1, 0]
    assert math.isnan(found.value[2])
    assert math.isnan(found.low[2])
    assert verdicts(found).tolist() == ["unclear"] * 3


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 40))
def test_matched_gain_lies_in_its_interval(seed, rows):
    ours, theirs = np.random.default_rng(seed).random((2, 3, rows)) < 0.7
    found = client_gains(ours, theirs, np.ones((3, rows), bool), True, seed=0)
    assert (found.low <= found.value + 1e-12).all()
    assert (found.value <= found.high + 1e-12).all()
    np.testing.assert_allclose(found.value, ours.mean(1) - theirs.mean(1), atol=1e-12)


def test_matched_interval_covers():
    # 4000 clients of 25 rows; personal is right with 0.8, shared with 0.6, independently: true gain 0.2.
    # Agresti and Min report coverage close to and mostly above 95 %; 3 standard errors are 1 point
    draw = np.random.default_rng(2)
    ours, theirs = draw.random((4000, 25)) < 0.8, draw.random((4000, 25)) < 0.6
    found = client_gains(ours, theirs, np.ones((4000, 25), bool), True, seed=0)
    assert 0.94 <= ((found.low <= 0.2) & (found.high >= 0.2)).mean() <= 0.985


def test_unpaired_gain_is_wider_than_paired_for_models_that_err_alike():
    draw = np.random.default_rng(4)
    theirs = draw.random((50, 60)) < 0.7
    ours = theirs | (draw.random((50, 60)) < 0.1)  # right wherever the shared model is, and then some
    paired = client_gains(ours, theirs, np.ones((50, 60), bool), True, seed=0)
    unpaired = gains_from_scores(ours.mean(1), theirs.mean(1), 60)
    np.testing.assert_allclose(unpaired.value, paired.value, atol=1e-12)
    assert (unpaired.high - unpaired.low > paired.high - paired.low).all()
    assert (unpaired.low <= unpaired.value).all()


def test_loss_gain_matches_the_central_limit_and_ignores_padding():
    draw = np.random.default_rng(8)
    theirs = draw.exponential(size=(3, 300))
    ours = theirs - np.asarray([0.2, 0.0, -0.2])[:, None] + 0.5 * draw.normal(size=(3, 300))
    mask = np.arange(300)[None] < np.asarray([300, 200, 250])[:, None]
    found = client_gains(ours, theirs, mask, False, seed=1)
    difference = [(theirs - ours)[m][mask[m]] for m in range(3)]
    np.testing.assert_allclose(found.value, [row.mean() for row in difference])
    width = [2 * Z * row.std() / math.sqrt(row.size) for row in difference]
    np.testing.assert_allclose(found.high - found.low, width, rtol=0.1)
    assert verdicts(found).tolist() == ["helped", "unclear", "hurt"]
    spoilt = client_gains(np.where(mask, ours, np.nan), np.where(mask, theirs, np.inf), mask, False, seed=1)
    np.testing.assert_array_equal(found, spoilt)
    # a client's draws do not depend on who stands after it
    np.testing.assert_array_equal(client_gains(ours[:1], theirs[:1], mask[:1], False, seed=1).low, found.low[:1])


def test_five_losses_prove_nothing():
    # five rows that all agree: a sign test has p = 2 / 2^5 = 6 %; six rows have 3 %
    gains = [client_gains(np.zeros((1, n)), np.ones((1, n)), np.ones((1, n), bool), False, seed=0) for n in (5, 6)]
    assert gains[0].value == gains[1].value == 1
    assert [verdicts(gain)[0] for gain in gains] == ["unclear", "helped"]


def test_shapes_must_agree():
    with pytest.raises(RequestError, match="one shape"):
        client_gains(np.zeros((2, 3)), np.zeros((2, 3)), np.ones(3), True, seed=0)


def outputs(seed, rows, strength):
    """Two-class logits that agree with the targets as strongly as asked."""
    draw = np.random.default_rng(seed)
    targets = (np.arange(rows) % 4 == 0).astype(np.int32)
    score = strength * targets + draw.normal(size=rows)
    return np.stack([np.zeros(rows), score], axis=1).astype(np.float32), targets


def test_resampled_accuracy_gain_agrees_with_rows():
    # the bootstrap of accuracy over rows is the bootstrap of per-row differences, up to the draws
    ours, targets = outputs(0, 400, 3.0)
    theirs, _ = outputs(1, 400, 1.0)
    mask = jnp.ones(400, bool)
    compiled = jax.jit(gain_interval, static_argnums=(1, 2), static_argnames="resamples")
    found = compiled(jax.random.key(0), accuracy, True, ours, theirs, targets, mask, resamples=400)
    right = [(logits.argmax(1) == targets).astype(float)[None] for logits in (ours, theirs)]
    rows = client_gains(*right, np.ones((1, 400)), True, seed=0)
    assert float(found.value) == pytest.approx(rows.value[0], abs=1e-6)
    assert float(found.low) == pytest.approx(rows.low[0], abs=0.015)
    assert float(found.high) == pytest.approx(rows.high[0], abs=0.015)


def test_resampled_area_gain_under_vmap_and_padding():
    pairs = [(outputs(seed, 60, 2.5), outputs(seed + 50, 60, 0.3)) for seed in range(3)]
    ours, theirs = (np.stack([pair[side][0] for pair in pairs]) for side in (0, 1))
    targets = np.stack([pair[0][1] for pair in pairs])
    mask = np.arange(60)[None] < np.asarray([60, 40, 4])[:, None]
    keys = jax.random.split(jax.random.key(7), 3)

    @jax.jit
    @jax.vmap
    def interval(key, candidate, reference, wanted, real):
        return gain_interval(key, auc, True, candidate, reference, wanted, real, resamples=200)

    found = interval(keys, ours, theirs, targets, mask)

    def area(logits, wanted):
        return sklearn.metrics.roc_auc_score(wanted, logits[:, 1] - logits[:, 0])

    direct = [area(o[m], t[m]) - area(r[m], t[m]) for o, r, t, m in zip(ours, theirs, targets, mask)]
    np.testing.assert_allclose(found.value, direct, atol=1e-6)
    assert verdicts(found).tolist() == ["helped", "helped", "unclear"]  # the last has four rows
    # more padding, full of garbage: the same intervals
    wider = [np.pad(values, [(0, 0), (0, 30), (0, 0)], constant_values=np.nan) for values in (ours, theirs)]
    again = interval(keys, *wider, np.pad(targets, [(0, 0), (0, 30)]), np.pad(mask, [(0, 0), (0, 30)]))
    np.testing.assert_allclose(again.low, found.low, atol=1e-6)
    np.testing.assert_allclose(again.high, found.high, atol=1e-6)


def test_resampled_loss_gain_is_positive_when_lower():
    ours, targets = outputs(0, 80, 3.0)
    compiled = jax.jit(gain_interval, static_argnums=(1, 2), static_argnames="resamples")
    found = compiled(
        jax.random.key(1), log_loss, False, ours, 30 * ours[::-1], targets, jnp.ones(80, bool), resamples=100
    )
    assert 0 < float(found.low) < float(found.value) < float(found.high)
