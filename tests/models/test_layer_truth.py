# SPDX-License-Identifier: Apache-2.0
"""Every layer against an independent way to compute it, values and gradients, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.models import CNN
from idiolect.models.layers import LSTM, Convolution, Dense, Embedding, GroupNorm, dropout, max_pool, mean_pool
from idiolect.models.layers.lstm import State
from idiolect.models.routing import routed_model
from idiolect.models.routing_net import Shares

pytestmark = pytest.mark.optimized  # layers are tuned to how they are compiled

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


@pytest.fixture(scope="module")
def lstm_case():
    """An LSTM, a point, a number that depends on all its outputs, and that number's gradient: compiled once."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        rows, time, inside, width = 3, 9, 4, 5  # 9 steps: no multiple of the unrolling
        layer = LSTM(inside, width)
        state = State(normal(1, rows, width), normal(2, rows, width))
        weights = (normal(3, rows, time, width), State(normal(4, rows, width), normal(5, rows, width)))
        point = (layer.init(jax.random.key(0)), normal(6, rows, time, inside), state)

        def weighted(function, point):  # every output matters, and each differently
            answer = function(*point)
            return sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(answer), jax.tree.leaves(weights), strict=True))

        ours = jax.value_and_grad(lambda point: weighted(layer.run, point))
        plain = jax.value_and_grad(lambda point: weighted(naive, point))
        yield point, ours, jax.jit(ours), plain


def test_lstm_has_the_gradients_of_the_plain_loop(lstm_case):
    point, _, ours, plain = lstm_case
    for mine, theirs in zip(jax.tree.leaves(ours(point)), jax.tree.leaves(plain(point)), strict=True):
        np.testing.assert_allclose(mine, theirs, **CLOSE)


def test_lstm_has_the_gradient_of_finite_differences(lstm_case):
    point, _, ours, _ = lstm_case
    along = jax.tree.map(lambda leaf: normal(leaf.size, *leaf.shape), point)
    promised = sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(ours(point)[1]), jax.tree.leaves(along), strict=True))
    ends = [ours(jax.tree.map(lambda a, b, h=h: a + h * b, point, along))[0] for h in (1e-5, -1e-5)]
    # the error of a central difference is O(h^2) + O(1e-16 / h): 1e-10 at h = 1e-5, and gradients are of order 10
    assert float((ends[0] - ends[1]) / 2e-5) == pytest.approx(float(promised), rel=1e-7)


def test_lstm_under_vmap_in_a_scan_is_the_same(lstm_case):
    point, raw, ours, _ = lstm_case
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), point)
    mapped = jax.vmap(lambda one: raw(one)[1])
    twice = jax.jit(lambda all_: jax.lax.scan(lambda _, x: (None, mapped(x)), None, all_)[1])
    nested = twice(jax.tree.map(lambda leaf: leaf[None], several))
    for number, factor in enumerate((1, 2)):
        alone = ours(jax.tree.map(lambda leaf, factor=factor: factor * leaf, point))[1]
        for mine, theirs in zip(jax.tree.leaves(nested), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(mine[0, number], theirs, **CLOSE)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "pairs"),
    [
        (3, 1, "valid", False),
        (3, 1, "same", False),
        (3, 2, "same", False),
        (1, 2, "same", False),
        (3, 1, "valid", True),
        (5, 1, "same", True),
    ],
)
def test_convolution_is_the_librarys(kernel, stride, padding, pairs, monkeypatch):
    monkeypatch.setattr(Convolution, "_in_pairs", pairs)  # on a GPU they are taken where they suit
    layer = Convolution(2, 3, kernel, stride, padding)
    params = layer.init(jax.random.key(0)) | {"bias": normal(1, 3)}
    images = normal(2, 2, 8, 7 if pairs else 6, 2)  # seven columns: the last pair of outputs is cut
    edge = (kernel - 1) // 2 if padding == "same" else 0

    def library(params, images):
        weights = params["weights"].reshape(kernel, kernel, 2, 3)
        numbers = ("NHWC", "HWIO", "NHWC")
        sides = [(edge, edge)] * 2
        return (
            jax.lax.conv_general_dilated(images, weights, (stride, stride), sides, dimension_numbers=numbers)
            + (params["bias"])
        )

    weight = normal(3, *jax.eval_shape(library, params, images).shape)

    @jax.jit
    def both(params, images):  # value and gradients, of a number that weighs every output differently
        return [
            (f(params, images), jax.grad(lambda p, x, f=f: jnp.sum(weight * f(p, x)), argnums=(0, 1))(params, images))
            for f in (layer.apply, library)
        ]

    for mine, other in zip(*map(jax.tree.leaves, both(params, images)), strict=True):
        np.testing.assert_allclose(mine, other, **CLOSE)


@pytest.mark.parametrize("clients", [0, 3])
def test_gradients_of_a_bias_summed_in_bfloat16_are_close(clients, monkeypatch):
    monkeypatch.setattr(Convolution, "_in_pairs", True)
    layer = Convolution(2, 3, compute="bfloat16")
    params = layer.init(jax.random.key(0)) | {"bias": normal(1, 3)}
    images, weight = normal(2, 40, 8, 8, 2), normal(3, 40, 6, 6, 3)
    weight = weight + 1.0  # gradients whose sums are far from zero: rounding is all that may be seen

    def gradients(factor):
        def value(own):
            outputs = layer.apply(own, images)
            return jnp.sum(factor * weight * outputs), outputs

        found, outputs = jax.grad(value, has_aux=True)(params)
        return outputs, found

    factors = jnp.arange(1.0, 1 + clients)
    outputs, found = jax.jit(jax.vmap(gradients))(factors) if clients else jax.jit(gradients)(1.0)
    bare = Convolution(2, 3, compute="bfloat16", bias=False).apply(params, images)
    np.testing.assert_array_equal(outputs[-1] if clients else outputs, bare + params["bias"])  # as precise as before
    true = weight.sum(axis=(0, 1, 2)) * (factors[:, None] if clients else 1)
    assert found["bias"].dtype == params["bias"].dtype
    np.testing.assert_allclose(found["bias"], true, rtol=1e-3)  # each is off by up to 2^-9, their sum by less
    assert not np.array_equal(found["bias"], true)  # it is this way that was taken


def test_pooling_takes_the_largest_and_its_gradient_the_first_of_equals():
    images = normal(0, 2, 5, 4, 3)  # the fifth row fills no window
    windows = np.asarray(images)[:, :4].reshape(2, 2, 2, 2, 2, 3)
    np.testing.assert_array_equal(max_pool(images, 2), windows.max(axis=(2, 4)))
    np.testing.assert_allclose(mean_pool(images, 2), windows.mean(axis=(2, 4)), **CLOSE)
    gradient = jax.grad(lambda x: jnp.sum(max_pool(x, 2) * 3))(images)
    expected = np.where(windows == windows.max(axis=(2, 4), keepdims=True), 3.0, 0.0).reshape(2, 4, 4, 3)
    np.testing.assert_array_equal(gradient, np.concatenate([expected, np.zeros((2, 1, 4, 3))], axis=1))
    flat = jax.grad(lambda x: jnp.sum(max_pool(x, 2)))(jnp.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(flat[0, :, :, 0], [[1, 0], [0, 0]])


def test_the_gradient_of_pooling_finds_the_largest_however_a_pass_is_rounded():
    """A mixture of layers is formed anew in the reverse pass, where products and sums may be rounded otherwise."""
    model = CNN(8, 8, 1, 3, filters=(2, 3), hidden=4)
    routes = routed_model(model, "", (8, 4))
    shared, local = (model.init(jax.random.key(place)) for place in range(2))
    images, margins = normal(0, 2, 4, 8, 8, 1), normal(1, 2, 4, len(routes.names))

    def value(shared, local, images, margins):
        shares = Shares(jax.nn.sigmoid(margins), jax.nn.sigmoid(-margins), None)
        return jnp.sum(jnp.square(routes.mixed(shares, shared, local, images)))

    gradients = jax.jit(jax.vmap(jax.grad(value), in_axes=(None, None, 0, 0)))
    exact = (shared, local, images, margins)
    single = gradients(*jax.tree.map(lambda leaf: leaf.astype(jnp.float32), exact))
    for mine, other in zip(jax.tree.leaves(single), jax.tree.leaves(gradients(*exact)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4 * float(jnp.abs(other).max()))


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
