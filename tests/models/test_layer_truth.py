# SPDX-License-Identifier: Apache-2.0
"""Every layer against an independent way to compute it, values and gradients, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.models.layers import LSTM, Convolution, Dense, Embedding, GroupNorm, dropout, max_pool, mean_pool
from idiolect.models.layers.lstm import State

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def normal(coordinate, *shape):
    return jnp.asarray(np.random.default_rng(coordinate).normal(size=shape))


def naive(params, inputs, state):
    """The equations of an LSTM, step by step, left to automatic differentiation."""

    def step(now, x):
        i, f, g, o = jnp.split(x @ params["input"] + now.hidden @ params["recurrent"] + params["bias"], 4, axis=-1)
        cell = jax.nn.sigmoid(f) * now.cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        return State(jax.nn.sigmoid(o) * jnp.tanh(cell), cell), jax.nn.sigmoid(o) * jnp.tanh(cell)

    last, hidden = jax.lax.scan(step, state, jnp.swapaxes(inputs, 0, 1))
    return jnp.swapaxes(hidden, 0, 1), last


def lstm_case(rows=3, time=11, inside=4, width=5):  # 11 steps: no multiple of the unrolling
    layer = LSTM(inside, width)
    params = layer.init(jax.random.key(0))
    state = State(normal(1, rows, width), normal(2, rows, width))
    weights = (normal(3, rows, time, width), State(normal(4, rows, width), normal(5, rows, width)))

    def weighted(answer):  # every output matters, and each differently
        return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(answer), jax.tree.leaves(weights), strict=True))

    return layer, params, normal(6, rows, time, inside), state, weighted


def test_lstm_has_the_gradients_of_the_plain_loop():
    layer, params, inputs, state, weighted = lstm_case()
    ours = jax.value_and_grad(lambda *a: weighted(layer.run(*a)), argnums=(0, 1, 2))(params, inputs, state)
    plain = jax.value_and_grad(lambda *a: weighted(naive(*a)), argnums=(0, 1, 2))(params, inputs, state)
    for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, **CLOSE)


def test_lstm_has_the_gradient_of_finite_differences():
    layer, params, inputs, state, weighted = lstm_case(time=9)
    point = (params, inputs, state)
    along = jax.tree.map(lambda leaf: normal(leaf.size, *leaf.shape), point)
    slope = jax.grad(lambda all_: weighted(layer.run(*all_)))(point)
    promised = sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(along), strict=True))

    def at(distance):
        return weighted(layer.run(*jax.tree.map(lambda a, b: a + distance * b, point, along)))

    # the error of a central difference is O(h^2) + O(1e-16 / h): 1e-10 at h = 1e-5, and slopes are of order 10
    assert float((at(1e-5) - at(-1e-5)) / 2e-5) == pytest.approx(float(promised), rel=1e-7)


def test_lstm_under_vmap_scan_and_jit_is_the_same():
    layer, params, inputs, state, weighted = lstm_case()
    slope = jax.grad(lambda p, x: weighted(layer.run(p, x, state)))
    several = jnp.stack([inputs, 2 * inputs, -inputs])
    one_by_one = [slope(params, x) for x in several]
    together = jax.jit(jax.vmap(slope, in_axes=(None, 0)))(params, several)
    looped = jax.jit(lambda xs: jax.lax.scan(lambda _, x: (None, slope(params, x)), None, xs)[1])(several)
    for number, alone in enumerate(one_by_one):
        for name, leaf in alone.items():
            np.testing.assert_allclose(together[name][number], leaf, **CLOSE)
            np.testing.assert_allclose(looped[name][number], leaf, **CLOSE)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, "valid"), (3, 1, "same"), (3, 2, "same"), (1, 2, "same")])
def test_convolution_is_the_librarys(kernel, stride, padding):
    layer = Convolution(2, 3, kernel, stride, padding)
    params = layer.init(jax.random.key(0)) | {"bias": normal(1, 3)}
    images = normal(2, 2, 8, 6, 2)
    edge = (kernel - 1) // 2 if padding == "same" else 0

    def library(params, images):
        weights = params["weights"].reshape(kernel, kernel, 2, 3)
        numbers = ("NHWC", "HWIO", "NHWC")
        sides = [(edge, edge)] * 2
        return jax.lax.conv_general_dilated(images, weights, (stride, stride), sides, dimension_numbers=numbers) + (
            params["bias"]
        )

    ours, theirs = layer.apply(params, images), library(params, images)
    np.testing.assert_allclose(ours, theirs, **CLOSE)
    weight = normal(3, *ours.shape)
    slopes = [jax.grad(lambda p, x, f=f: jnp.sum(weight * f(p, x)), argnums=(0, 1)) for f in (layer.apply, library)]
    for mine, other in zip(*(jax.tree.leaves(slope(params, images)) for slope in slopes), strict=True):
        np.testing.assert_allclose(mine, other, **CLOSE)


def test_pooling_takes_the_largest_and_its_gradient_the_first_of_equals():
    images = normal(0, 2, 5, 4, 3)  # the fifth row fills no window
    windows = np.asarray(images)[:, :4].reshape(2, 2, 2, 2, 2, 3)
    np.testing.assert_array_equal(max_pool(images, 2), windows.max(axis=(2, 4)))
    np.testing.assert_allclose(mean_pool(images, 2), windows.mean(axis=(2, 4)), **CLOSE)
    slope = jax.grad(lambda x: jnp.sum(max_pool(x, 2) * 3))(images)
    expected = np.where(windows == windows.max(axis=(2, 4), keepdims=True), 3.0, 0.0).reshape(2, 4, 4, 3)
    np.testing.assert_array_equal(slope, np.concatenate([expected, np.zeros((2, 1, 4, 3))], axis=1))
    flat = jax.grad(lambda x: jnp.sum(max_pool(x, 2)))(jnp.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(flat[0, :, :, 0], [[1, 0], [0, 0]])


def test_group_norm_normalises_every_row_and_group():
    layer = GroupNorm(6, 2)
    params = {"scale": normal(0, 6), "shift": normal(1, 6)}
    values = normal(2, 3, 4, 5, 6)
    answer = np.asarray(layer.apply(params, values))
    for group in (slice(0, 3), slice(3, 6)):
        part = np.asarray(values)[..., group].reshape(3, -1)
        mean, variance = part.mean(axis=1), part.var(axis=1)
        expected = (np.asarray(values)[..., group] - mean[:, None, None, None]) / np.sqrt(variance + 1e-5)[
            :, None, None, None
        ] * np.asarray(params["scale"])[group] + np.asarray(params["shift"])[group]
        np.testing.assert_allclose(answer[..., group], expected, **CLOSE)


def test_dense_and_embedding():
    dense, table = Dense(3, 2), Embedding(5, 4)
    params, vectors = dense.init(jax.random.key(0)), table.init(jax.random.key(1))
    inputs = normal(0, 2, 7, 3)
    np.testing.assert_allclose(dense.apply(params, inputs), inputs @ params["weights"] + params["bias"], **CLOSE)
    tokens = jnp.array([[4, 0], [4, 2]])
    np.testing.assert_array_equal(table.apply(vectors, tokens), np.asarray(vectors["vectors"])[np.asarray(tokens)])
    counts = jax.grad(lambda v: jnp.sum(table.apply(v, tokens)))(vectors)["vectors"]
    np.testing.assert_array_equal(counts[:, 0], [1, 0, 1, 0, 2])


def test_dropout_keeps_the_mean_and_needs_a_key():
    ones = jnp.ones(40_000)
    dropped = dropout(jax.random.key(0), 0.25, ones)
    assert set(np.unique(dropped)) == {0.0, 1 / 0.75}
    assert float(dropped.mean()) == pytest.approx(1, abs=4 * (0.25 / 0.75 / 40_000) ** 0.5)  # four deviations
    assert dropout(None, 0.25, ones) is ones
    assert dropout(jax.random.key(0), 0.0, ones) is ones
