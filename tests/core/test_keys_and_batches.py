# SPDX-License-Identifier: Apache-2.0
"""Draws: named by coordinates alone, and never moved by padding."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.core import batches, keys
from idiolect.core.data import ClientData, Rows, masked_mean
from idiolect.core.keys import Purpose
from idiolect.core.threefry import threefry

ROWS, FEATURES = 7, 2


def client(capacity, rows=ROWS):
    """`rows` real rows; what stands in the padding would be noticed."""
    inputs = np.full((capacity, FEATURES), 1e6, np.float32)
    inputs[:rows] = np.arange(rows * FEATURES, dtype=np.float32).reshape(rows, FEATURES)
    targets = np.full(capacity, 10**6, np.int32)
    targets[:rows] = np.arange(rows)
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.int32(rows))


def test_different_coordinates_give_different_keys():
    made = [
        tuple(np.asarray(jax.random.key_data(keys.client_key(keys.root_key(seed), purpose, number, who))).tolist())
        for seed, purpose, number, who in itertools.product(
            (0, 1), (Purpose.RECEIVE, Purpose.STEP), (0, 1, 2), (0, 1, 2)
        )
    ]
    assert len(set(made)) == len(made) == 36


def test_a_key_does_not_depend_on_who_else_is_asked_for():
    root = keys.root_key(5)
    together = keys.client_keys(root, Purpose.STEP, 3, jnp.asarray([8, 2, 5], jnp.int32))
    for place, who in enumerate((8, 2, 5)):
        alone = keys.client_key(root, Purpose.STEP, 3, who)
        assert jnp.array_equal(jax.random.key_data(together[place]), jax.random.key_data(alone))


def test_host_draws_are_named_by_coordinates_too():
    def draw(*coordinates):
        return keys.host_generator(*coordinates).integers(0, 2**62)

    made = [draw(seed, purpose, number) for seed in (0, 1) for purpose in (10, 11) for number in (0, 1)]
    assert len(set(made)) == len(made)
    assert draw(1, 11, 1) == made[-1]


@pytest.mark.parametrize("capacity", [ROWS, 9, 16])
def test_padding_does_not_move_a_draw(capacity):
    key = keys.root_key(3)
    exact, padded = client(ROWS), client(capacity)
    np.testing.assert_array_equal(
        batches.draw_with_replacement(key, 5, 4, exact), batches.draw_with_replacement(key, 5, 4, padded)
    )
    orders = batches.draw_orders(key, 3, padded)
    np.testing.assert_array_equal(batches.draw_orders(key, 3, exact), orders[:, :ROWS])
    for t in range(3 * batches.batches_per_epoch(ROWS, 3)):
        few = batches.take_from_order(exact, batches.draw_orders(key, 3, exact), t, 3)
        many = batches.take_from_order(padded, orders, t, 3)
        np.testing.assert_array_equal(few.mask, many.mask)
        np.testing.assert_array_equal(few.targets[few.mask], many.targets[many.mask])


def test_an_epoch_visits_every_row_once_in_its_own_order():
    data, epochs = client(10), 4
    orders = np.asarray(batches.draw_orders(keys.root_key(0), epochs, data))[:, :ROWS]
    assert (np.sort(orders, axis=1) == np.arange(ROWS)).all()
    assert len({tuple(order) for order in orders.tolist()}) == epochs
    per_epoch = batches.batches_per_epoch(ROWS, 3)
    assert per_epoch == 3  # 7 rows in threes: 3 + 3 + 1
    for epoch in range(epochs):
        walk = [batches.take_from_order(data, jnp.asarray(orders), epoch * per_epoch + t, 3) for t in range(3)]
        assert [int(batch.rows()) for batch in walk] == [3, 3, 1]
        seen = np.concatenate([np.asarray(batch.targets)[np.asarray(batch.mask)] for batch in walk])
        assert sorted(seen.tolist()) == list(range(ROWS))


def test_orders_are_uniform():
    # each of 3! orders is expected 200 times of 1200; chi-square with 5 degrees passes 20.5 once in 1000
    orders = np.asarray(batches.draw_orders(keys.root_key(1), 1200, client(5, rows=3)))[:, :3]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert ((counts - 200) ** 2 / 200).sum() < 20.5


def test_drawing_with_replacement_is_uniform_over_the_real_rows():
    drawn = np.asarray(batches.draw_with_replacement(keys.root_key(2), 700, 10, client(16)))
    counts = np.bincount(drawn.ravel(), minlength=ROWS)
    assert len(counts) == ROWS  # never a row of the padding
    assert ((counts - 1000) ** 2 / 1000).sum() < 22.5  # chi-square, 6 degrees of freedom, 1 in 1000


@pytest.mark.parametrize("few", [0, batches.FEW_NUMBERS])
def test_a_step_reads_what_was_drawn_for_it(few, monkeypatch):
    monkeypatch.setattr(batches, "FEW_NUMBERS", few)
    data = client(9)
    drawn = batches.draw_with_replacement(keys.root_key(4), 3, 2, data)
    for t in range(3):
        batch = jax.jit(batches.take_drawn)(data, drawn, t)
        np.testing.assert_array_equal(batch.inputs, data.inputs[drawn[t]])
        np.testing.assert_array_equal(batch.targets, data.targets[drawn[t]])
        assert batch.mask is None


def test_rows_pad_and_select():
    rows = Rows(np.arange(12.0).reshape(6, 2), np.arange(6, dtype=np.int32), np.asarray([0, 1, 4, 6]))
    padded = rows.pad(np.asarray([2, 0]), 3)
    assert padded.count.tolist() == [2, 1]
    assert padded.targets.tolist() == [[4, 5, 0], [0, 0, 0]]
    chosen = rows.select(np.asarray([2, 0]))
    assert chosen.targets.tolist() == [4, 5, 0]
    assert chosen.offsets.tolist() == [0, 2, 3]


def test_a_masked_mean_sees_real_rows_only():
    values = jnp.asarray([1.0, 3.0, 1e6])
    assert float(masked_mean(values, jnp.asarray([True, True, False]))) == 2.0
    assert float(masked_mean(values, jnp.zeros(3, bool))) == 0.0
    assert float(masked_mean(values[:2], None)) == 2.0


@pytest.mark.parametrize("x64", [False, True])
def test_threefry_written_out_gives_the_bits_of_jax_random(x64):
    with jax.enable_x64(x64):
        theirs, ours = jax.random.key(7), jax.random.key(7, impl=threefry)
        for width in (8, 16, 32, 64) if x64 else (8, 16, 32):
            for shape in ((), (3, 5)):
                dtype = jnp.dtype(f"uint{width}")
                assert jnp.array_equal(jax.random.bits(ours, shape, dtype), jax.random.bits(theirs, shape, dtype))
        for number in (0, 3, 2**32 - 1):
            folded = [jax.random.key_data(jax.random.fold_in(key, number)) for key in (ours, theirs)]
            assert jnp.array_equal(*folded)
        assert jnp.array_equal(*(jax.random.key_data(jax.random.split(key, 4)) for key in (ours, theirs)))
