# SPDX-License-Identifier: Apache-2.0
"""The per-instance breakdown, and distances between models."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from idiolect.core.checks import RequestError
from idiolect.metrics import breakdown, consensus_error, distance_to_optimum, suboptimality

COMPILED = jax.jit(jax.vmap(breakdown))


def test_breakdown_by_hand():
    shared = np.asarray([[1, 1, 0, 0, 1], [1, 0, 1, 1, 1]], bool)
    personal = np.asarray([[1, 0, 1, 0, 1], [1, 1, 1, 1, 1]], bool)
    mask = np.asarray([[1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], bool)
    found = breakdown(shared, personal, mask)
    assert [count.tolist() for count in found] == [[1, 0]] * 4
    assert found.rows.tolist() == [4, 0]
    shares = found.fractions()
    assert shares["personal_only"][0] == 0.25
    assert all(math.isnan(share[1]) for share in shares.values())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.sampled_from([0, 1, 30]))
def test_breakdown_adds_up_and_explains_the_gain(seed, rows):
    shared, personal, mask = np.random.default_rng(seed).random((3, 2, rows)) < 0.6
    found = breakdown(shared, personal, mask)
    np.testing.assert_array_equal(found.rows, mask.sum(1))
    # personal rows right - shared rows right = personal only - shared only
    gained = (personal & mask).sum(1) - (shared & mask).sum(1)
    np.testing.assert_array_equal(found.personal_only - found.shared_only, gained)
    compiled = COMPILED(*map(jnp.asarray, (shared, personal, mask)))
    np.testing.assert_array_equal(np.asarray(compiled), np.asarray(found))


def test_distances_by_hand():
    # scalars 1 and 3 around 2: 1 each; vectors (0,0) and (2,4) around (1,2): 5 each; mean 1 + 5
    stacked = {"bias": jnp.asarray([1.0, 3.0]), "weight": jnp.asarray([[0.0, 0.0], [2.0, 4.0]])}
    assert float(consensus_error(stacked)) == 6
    # to zero: (1 + 0 + 9 + 20) / 2
    assert float(distance_to_optimum(stacked, jax.tree.map(jnp.zeros_like, stacked))) == 15
    assert float(consensus_error({})) == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), clients=st.integers(1, 6))
def test_spread_plus_offset_is_the_distance(seed, clients):
    # mean_m ||w_m - c||^2 = mean_m ||w_m - w_bar||^2 + ||w_bar - c||^2
    draw = np.random.default_rng(seed)
    stacked, centre = draw.normal(size=(clients, 3)), draw.normal(size=3)
    optima = np.broadcast_to(centre, stacked.shape)
    offset = ((stacked.mean(0) - centre) ** 2).sum()
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        spread, distance = consensus_error(stacked), distance_to_optimum(stacked, optima)
    assert float(distance) == pytest.approx(float(spread) + offset, rel=1e-12)


def test_one_optimum_for_all_is_not_broadcast():
    with pytest.raises(RequestError, match=r"\(3,\) for \(2, 3\)"):
        distance_to_optimum(jnp.zeros((2, 3)), jnp.zeros(3))
    with pytest.raises(RequestError, match="structure"):
        distance_to_optimum({"w": jnp.zeros((2, 3))}, {"v": jnp.zeros((2, 3))})


def test_suboptimality_is_never_negative():
    assert suboptimality(1.0, 1.5) == 0
    assert suboptimality(1.0 + 1e-12, 1.0) == pytest.approx(1e-12, rel=1e-3)  # double precision on the host
    assert math.isnan(suboptimality(math.nan, 0.0))  # a diverged run is not an optimal one
    np.testing.assert_array_equal(suboptimality(np.asarray([3.0, 1.0]), 2.0), [1, 0])
    assert float(jax.jit(suboptimality)(3.0, 2.0)) == 1
