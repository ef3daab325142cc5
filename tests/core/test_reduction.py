# SPDX-License-Identifier: Apache-2.0
"""Reductions as laws: who is absent, in which order clients stand and how they are chunked must not matter."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idiolect.core import reduction

GROUPS = 3
REDUCTIONS = {
    "weighted_mean": reduction.weighted_mean,
    "total": reduction.total,
    "grouped_mean": reduction.grouped_mean(GROUPS),
    "gather": reduction.gather,
}


class Upload(NamedTuple):
    """A vector, a scalar, a group and a weight."""

    drift: Any
    loss: Any
    group: Any
    weight: Any


class Cohort(NamedTuple):
    """One cohort's uploads, stacked."""

    uploads: Upload
    clients: np.ndarray
    present: np.ndarray

    def take(self, rows):
        return jax.tree.map(lambda leaf: leaf[rows], self)


@st.composite
def cohorts(draw, size=6):  # one size, so that every example runs the same compiled operations
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # multiples of 1/8 in a small range add without rounding, so that laws hold to the last bit
    drift, loss = rng.integers(-64, 65, (size, 2)) / 8, rng.integers(-64, 65, size) / 8
    weight = draw(st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=size, max_size=size))
    present = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    group = rng.integers(0, GROUPS, size).astype(np.int32)
    clients = rng.permutation(100)[:size].astype(np.int32)
    uploads = Upload(*(np.asarray(part, np.float32) for part in (drift, loss)), group, np.asarray(weight, np.float32))
    return Cohort(uploads, clients, np.asarray(present))


def reduce(rule, cohort):
    uploads, clients, present = jax.tree.map(jnp.asarray, cohort)
    return jax.tree.map(np.asarray, rule.lower(rule.collect(uploads, clients, present)))


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize("name", REDUCTIONS)
@given(cohort=cohorts(), order=st.permutations(range(6)))
def test_the_order_of_clients_does_not_matter(name, cohort, order):
    rule = REDUCTIONS[name]
    assert_same(reduce(rule, cohort), reduce(rule, cohort.take(np.asarray(order))))


@pytest.mark.parametrize("name", REDUCTIONS)
@given(cohort=cohorts(), cut=st.sampled_from([2, 5]))
def test_chunks_add_up_to_the_whole(name, cohort, cut):
    rule = REDUCTIONS[name]
    parts = [rule.collect(*jax.tree.map(jnp.asarray, cohort.take(rows))) for rows in (slice(0, cut), slice(cut, None))]
    join = (lambda a, b: jnp.concatenate([a, b])) if rule.stacks else (lambda a, b: a + b)
    chunked = rule.lower(jax.tree.map(join, *parts))
    assert_same(jax.tree.map(np.asarray, chunked), reduce(rule, cohort))


@pytest.mark.parametrize("name", ["weighted_mean", "total", "grouped_mean"])
@given(cohort=cohorts())
def test_absent_clients_add_nothing_even_not_a_number(name, cohort):
    rule = REDUCTIONS[name]
    absent = ~cohort.present
    poisoned = jax.tree.map(np.copy, cohort.uploads)
    for part in (poisoned.drift, poisoned.loss, poisoned.weight):
        part[absent] = np.nan
    assert_same(reduce(rule, cohort._replace(uploads=poisoned)), reduce(rule, cohort))
    here = np.flatnonzero(cohort.present)
    if here.size:  # and the result is that of the present ones alone
        alone = jax.tree.map(lambda leaf: leaf[here], cohort)
        assert_same(reduce(rule, alone), reduce(rule, cohort))


@given(cohort=cohorts())
def test_the_mean_of_equal_uploads_is_the_upload(cohort):
    first = jax.tree.map(lambda leaf: np.repeat(leaf[:1], 6, axis=0), cohort.uploads)
    equal = cohort._replace(uploads=first._replace(weight=cohort.uploads.weight))
    result = reduce(reduction.weighted_mean, equal)
    expected = first.drift[0] if cohort.present.any() else np.zeros(2)
    np.testing.assert_allclose(result.mean.drift, expected, rtol=1e-6)
    assert result.cohort == cohort.present.sum()
    assert result.weight == cohort.uploads.weight[cohort.present].sum()


def four_uploads():
    drift = jnp.asarray([[1.0, 0.0], [3.0, 4.0], [10.0, 10.0], [100.0, 0.0]])
    group, weight = jnp.asarray([0, 0, 2, 2], jnp.int32), jnp.asarray([1.0, 3.0, 2.0, 5.0])
    return Upload(drift, drift[:, 0], group, weight)


HERE = jnp.asarray([True, True, True, False])
IDS = jnp.asarray([7, 3, 5, 1], jnp.int32)


def test_each_mean_by_hand():
    mean = reduction.weighted_mean.lower(reduction.weighted_mean.collect(four_uploads(), IDS, HERE))
    # (1*1 + 3*3 + 2*10) / 6 = 5 and (0 + 3*4 + 2*10) / 6 = 32/6
    np.testing.assert_allclose(mean.mean.drift, [5.0, 32 / 6], rtol=1e-6)
    assert (float(mean.weight), int(mean.cohort)) == (6.0, 3)
    summed = reduction.total.lower(reduction.total.collect(four_uploads(), IDS, HERE))
    np.testing.assert_allclose(summed.total.drift, [14.0, 14.0])  # weights do not enter
    assert (float(summed.weight), int(summed.cohort)) == (6.0, 3)


def test_an_empty_group_is_zero_and_says_so():
    rule = reduction.grouped_mean(GROUPS)
    grouped = rule.lower(rule.collect(four_uploads(), IDS, HERE))
    # group 0: (1*1 + 3*3) / 4 = 2.5, (3*4) / 4 = 3; group 1: none; group 2: the third upload alone
    np.testing.assert_allclose(grouped.means.drift, [[2.5, 3.0], [0.0, 0.0], [10.0, 10.0]])
    np.testing.assert_allclose(grouped.weights, [4.0, 0.0, 2.0])
    assert int(grouped.cohort) == 3


def test_gathered_uploads_stand_by_client_id():
    gathered = reduction.gather.lower(reduction.gather.collect(four_uploads(), IDS, HERE))
    assert gathered.clients.tolist() == [1, 3, 5, 7]
    assert gathered.present.tolist() == [False, True, True, True]
    assert gathered.uploads.loss.tolist() == [0.0, 3.0, 10.0, 1.0]  # client 1 is absent: its row is zero
    assert (float(gathered.weight), int(gathered.cohort)) == (6.0, 3)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_nobody_present_gives_zeros_not_nan(name):
    rule = REDUCTIONS[name]
    nobody = jnp.zeros(4, bool)
    received = rule.lower(rule.collect(four_uploads(), IDS, nobody))
    assert int(received.cohort) == 0
    for leaf in jax.tree.leaves(received._replace(**({"clients": ()} if name == "gather" else {}))):
        assert not np.any(np.asarray(leaf))
