# SPDX-License-Identifier: Apache-2.0
"""Lists of neighbours against plain matrices: products, radius, reach, thresholds, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.core import mixing
from idiolect.core.checks import RequestError
from idiolect.theory.all_for_all import spectral_radius

AGENTS = 12


def random_weights(agents=AGENTS, share=0.3, seed=0):
    draw = np.random.default_rng(seed)
    matrix = draw.random((agents, agents)) * (draw.random((agents, agents)) < share)
    matrix[np.arange(agents), draw.integers(0, agents, agents)] += 0.5  # no empty row; some do not hear themselves
    return matrix / matrix.sum(axis=1, keepdims=True)


def star(agents=100):
    """Every client listens to itself and to client 0, which listens to all: neighbourhoods, all within reach."""
    matrix = (np.eye(agents) + np.eye(agents)[0]) / 2
    matrix[0] = 1 / agents
    return matrix


@pytest.mark.parametrize("dense", [False, True])
def test_products_are_those_of_the_matrix(dense):
    matrix = random_weights()
    tree = {"a": np.random.default_rng(1).normal(size=(AGENTS, 2, 3)), "b": np.arange(AGENTS, dtype=float)}
    with jax.enable_x64(True):
        neighbours = jax.tree.map(jnp.asarray, mixing.from_dense(matrix, dense=dense))
        assert neighbours.is_dense == dense
        for product, expected in ((mixing.mix, matrix), (mixing.mix_back, matrix.T)):
            eager, compiled = (run(neighbours, jax.tree.map(jnp.asarray, tree)) for run in (product, jax.jit(product)))
            for name, leaf in tree.items():
                truth = np.tensordot(expected, leaf, axes=1)
                np.testing.assert_allclose(eager[name], truth, rtol=0, atol=1e-14)
                np.testing.assert_allclose(compiled[name], truth, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(mixing.dense(neighbours), matrix)


def test_long_lists_become_a_matrix_and_short_ones_do_not():
    chain = (np.eye(AGENTS) + np.roll(np.eye(AGENTS), 1, axis=1)) / 2
    assert not mixing.from_dense(chain).is_dense
    assert mixing.from_dense(np.full((AGENTS, AGENTS), 1 / AGENTS)).is_dense
    assert mixing.from_dense(star()).is_dense  # short rows, but agent 0 has a hundred listeners


@pytest.mark.parametrize("dense", [False, True])
def test_spectral_radius_counts_and_reach(dense):
    everybody_hears_one = np.zeros((100, 100))
    everybody_hears_one[:, 0] = 1
    blocks = np.kron(np.eye(3), np.full((4, 4), 0.25))  # doubly stochastic, three blocks with the same radius
    known = {"star": (star(), 25.0, 0.3), "one": (everybody_hears_one, 100.0, 1e-9), "blocks": (blocks, 1.0, 1e-9)}
    for matrix, radius, slack in (*known.values(), (random_weights(30), None, None)):
        neighbours = mixing.from_dense(matrix, dense=dense)
        product = matrix @ matrix.T
        eigenvalues = np.linalg.eigvalsh(product)
        assert eigenvalues.min() > -1e-12  # W is symmetric and positive semidefinite
        np.testing.assert_allclose(spectral_radius(neighbours), eigenvalues.max(), rtol=1e-6)  # its promise
        assert radius is None or abs(eigenvalues.max() - radius) < slack  # E004-4
        np.testing.assert_array_equal(mixing.counts(neighbours), (matrix > 0).sum(axis=1))
        np.testing.assert_array_equal(mixing.reach(neighbours), (product > 0).sum(axis=0))


@pytest.mark.parametrize("accuracy", [0.0, 0.02, 0.3, 2.0, np.inf])
def test_neighbourhoods_inside_a_program(accuracy):
    places = np.random.default_rng(2).random(AGENTS)
    b = 0.5 * (places[:, None] - places[None]) ** 2
    close = b <= accuracy / 2
    expected = close / close.sum(axis=1, keepdims=True)
    with jax.enable_x64(True):
        for form in (mixing.discrepancies_from_dense(b, dense=True), mixing.discrepancies_from_dense(b, dense=False)):
            found = jax.jit(mixing.within)(jax.tree.map(jnp.asarray, form), jnp.asarray(accuracy))
            np.testing.assert_allclose(mixing.dense(found), expected, rtol=0, atol=1e-15)
            back = mixing.mix_back(found, jnp.eye(AGENTS))
            np.testing.assert_allclose(back, expected.T, rtol=0, atol=1e-15)


def test_far_pairs_need_not_be_listed():
    b = np.where(np.eye(4) > 0, 0.0, 0.5)
    b[0, 1] = b[1, 0] = 0.1
    lists = mixing.discrepancies_from_pairs(4, [0, 1], [1, 0], [0.1, 0.1])
    with jax.enable_x64(True):
        found = mixing.within(jax.tree.map(jnp.asarray, lists), jnp.asarray(0.2))
    np.testing.assert_array_equal(mixing.dense(found)[:2, :2], 0.5)
    np.testing.assert_array_equal(
        mixing.dense(found)[2:, 2:], np.eye(2)
    )  # a client without neighbours listens to itself


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.ones((2, 3)) / 3, "square"),
        (np.array([[0.5, 0.6], [0.5, 0.5]]), "row 0 sums to 1.1"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "at least 0, got -0.5"),
        (np.array([[0.5, 0.5], [0.0, 0.0]]), "listen to itself"),
        (np.array([[0.5, np.nan], [0.5, 0.5]]), "at least 0, got nan"),
    ],
)
def test_wrong_weights_are_refused(matrix, words):
    with pytest.raises(RequestError, match=words):
        mixing.from_dense(matrix)


def test_wrong_pairs_are_refused():
    with pytest.raises(RequestError, match="numbered from 0 to 1, got 2"):
        mixing.from_pairs(2, [0, 1], [0, 2], [1.0, 1.0])
    with pytest.raises(RequestError, match="given once"):
        mixing.from_pairs(2, [0, 0, 1], [0, 0, 1], [0.5, 0.5, 1.0])
    with pytest.raises(RequestError, match="as many"):
        mixing.from_pairs(2, [0, 1], [0], [1.0, 1.0])
