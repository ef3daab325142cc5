# SPDX-License-Identifier: Apache-2.0
"""Optima against JAX's own gradients, and the heterogeneity measured at them."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.core.data import Batch, Rows
from idiolect.models import MLP, Linear, Location
from idiolect.objectives import Additive, ClientLoss, GlobalModel, LocalOnly
from idiolect.theory import (
    arrow,
    client_heterogeneity,
    gradient_noise,
    local_optima,
    optimal_value,
    shared_optimum,
)

FEATURES, CLIENTS, CAPACITY = 3, 4, 12
LOSSES = {
    "regression": ClientLoss(model=Linear(FEATURES), criterion="squared", l2=0.2),
    "two_targets": ClientLoss(model=Linear(FEATURES, outputs=2), criterion="squared"),
    "location": ClientLoss(model=Location(FEATURES), criterion="squared"),
    "logistic": ClientLoss(model=Linear(FEATURES), criterion="logistic", l2=1e-3),
    "softmax": ClientLoss(model=Linear(FEATURES, outputs=4), criterion="cross_entropy", l2=1e-3),
}


def make_rows(name, seed=0):
    draw = np.random.default_rng(seed)
    counts = draw.integers(5, CAPACITY + 1, CLIENTS)
    total = int(counts.sum())
    targets = {
        "regression": draw.normal(size=total),
        "two_targets": draw.normal(size=(total, 2)),
        "location": draw.normal(size=(total, FEATURES)),
        "logistic": draw.integers(0, 2, total),
        "softmax": draw.integers(0, 4, total),
    }[name]
    return Rows(2 * draw.normal(size=(total, FEATURES)), targets, np.concatenate([[0], np.cumsum(counts)]))


@functools.cache
def compiled(name):
    """One compiled gradient per loss: rows are padded and masked, so that all clients share it."""
    return jax.jit(jax.value_and_grad(lambda params, batch: LOSSES[name].value(None, params, batch)[0]))


def value_and_gradient(name, rows, client, params):
    data = rows.pad(np.array([client]), CAPACITY)
    batch = Batch(data.inputs[0], data.targets[0], np.arange(CAPACITY) < data.count[0])
    value, gradient = compiled(name)(params, batch)
    return float(value), np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(gradient)])


@pytest.mark.parametrize("dense_size", [1500, 0], ids=["factorised", "conjugate_gradients"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_vanish_at_the_optima(name, dense_size, monkeypatch):
    monkeypatch.setattr(arrow, "DENSE_SIZE", dense_size)
    loss, rows = LOSSES[name], make_rows(name)
    own = local_optima(loss, rows)
    for client in range(CLIENTS):
        params = {leaf: values[client] for leaf, values in own.items()}
        assert np.linalg.norm(value_and_gradient(name, rows, client, params)[1]) < 1e-11
    shared = shared_optimum(loss, rows)
    gradients = [value_and_gradient(name, rows, client, shared)[1] for client in range(CLIENTS)]
    assert np.linalg.norm(np.mean(gradients, axis=0)) < 1e-11
    assert np.linalg.norm([1.0, 2.0, 0.5, 3.0] @ np.array(gradients)) > 1e-3  # with other weights it is another one


@pytest.mark.parametrize("name", LOSSES)
def test_optimal_values_are_those_of_the_trained_loss(name):
    loss, rows = LOSSES[name], make_rows(name)
    own, shared = local_optima(loss, rows), shared_optimum(loss, rows)
    apart = [value_and_gradient(name, rows, c, {k: v[c] for k, v in own.items()})[0] for c in range(CLIENTS)]
    together = [value_and_gradient(name, rows, c, shared)[0] for c in range(CLIENTS)]
    assert optimal_value(GlobalModel(loss), rows) == pytest.approx(np.mean(together), rel=1e-12)
    assert optimal_value(LocalOnly(loss), rows) == pytest.approx(np.mean(apart), rel=1e-12)
    # the same optimum, found by other sums: equal to rounding, which differs between processors
    assert optimal_value(Additive(loss), rows) == pytest.approx(optimal_value(LocalOnly(loss), rows), rel=1e-14)
    assert np.mean(apart) < np.mean(together)


def test_least_squares_with_more_parameters_than_rows_takes_the_least_norm():
    rows = Rows(np.array([[1.0, 1.0]]), np.array([2.0]), np.array([0, 1]))
    # v1 + v2 = 2 has the least-norm solution (1, 1)
    own = local_optima(ClientLoss(model=Linear(2, bias=False), criterion="squared"), rows)
    np.testing.assert_allclose(own["weights"], [[1.0, 1.0]], rtol=1e-12)


def test_unknown_optima_are_none():
    rows = make_rows("softmax")
    assert local_optima(ClientLoss(model=MLP(FEATURES, 4), l2=0.1), rows) is None
    without_l2 = ClientLoss(model=Linear(FEATURES, outputs=4))
    # one row of each class: scores may grow for ever, the gradient vanishes only there
    rows = Rows(np.eye(4)[:, :FEATURES], np.arange(4), np.array([0, 4]))
    assert local_optima(without_l2, rows) is None
    assert shared_optimum(without_l2, rows) is None
    assert optimal_value(GlobalModel(without_l2), rows) is None
    assert client_heterogeneity(without_l2, rows) is None


def test_rows_that_no_plane_separates_have_an_optimum_without_l2():
    loss = ClientLoss(model=Linear(1, bias=False), criterion="logistic")
    rows = Rows(np.array([[1.0], [1.0], [1.0]]), np.array([1, 1, 0]), np.array([0, 3]))
    np.testing.assert_allclose(local_optima(loss, rows)["weights"], [[np.log(2.0)]], rtol=1e-12)  # sigmoid(v) = 2/3
    # sigmoid(v + b) = 2/3 can be met and sigmoid(b - v) = 0 only at infinity
    with_bias = ClientLoss(model=Linear(1), criterion="logistic")
    rows = Rows(np.array([[1.0], [1.0], [1.0], [-1.0]]), np.array([1, 1, 0, 0]), np.array([0, 4]))
    assert local_optima(with_bias, rows) is None


def test_a_client_without_rows_rests_at_zero():
    loss = ClientLoss(model=Linear(2), criterion="logistic", l2=0.1)
    rows = Rows(np.ones((3, 2)), np.array([0, 1, 1]), np.array([0, 3, 3]))
    own = local_optima(loss, rows)
    assert not own["weights"][1].any()
    assert own["weights"][0].any()


def test_an_optimum_that_cannot_be_reached_is_refused(monkeypatch):
    monkeypatch.setattr(arrow, "NEWTON_STEPS", 1)
    with pytest.raises(RequestError, match="Raise l2"):
        local_optima(LOSSES["logistic"], make_rows("logistic"))


def test_figure_1_optima(quadratic):
    # PLSGD 2023, figure 1(b): F_1 = (v1-7)^2 + 2(v2-18)^2 - 1, F_2 = 2(v1-18)^2 + (v2-13)^2 - 1;
    # v* solves 2(v1-7) + 4(v1-18) = 0 and 4(v2-18) + 2(v2-13) = 0: (43/3, 49/3)
    loss, rows = quadratic([[2.0, 4.0], [4.0, 2.0]], [[7.0, 18.0], [18.0, 13.0]])
    np.testing.assert_allclose(local_optima(loss, rows)["location"], [[7, 18], [18, 13]], rtol=1e-14)
    np.testing.assert_allclose(shared_optimum(loss, rows)["location"], [43 / 3, 49 / 3], rtol=1e-14)
    measured = client_heterogeneity(loss, rows)
    assert measured.condition_number == pytest.approx(2.0)
    assert measured.radius == pytest.approx(np.hypot(18, 13))


def test_heterogeneity_of_the_two_client_instance(quadratic):
    # targets v* -+ zeta with L = 1: distances zeta, gradients -+zeta at v*, value gap zeta^2/2 (E000-3)
    loss, rows = quadratic([[1.0], [1.0]], [[3.0 - 0.7], [3.0 + 0.7]])
    measured = client_heterogeneity(loss, rows)
    assert measured.optimum_spread == pytest.approx(0.49)
    assert measured.zeta == pytest.approx(0.7)
    assert measured.value_gap == pytest.approx(0.245)
    assert measured.gradient_dissimilarity == pytest.approx(0.49)
    assert measured.radius == pytest.approx(3.7)


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_dissimilarity_is_at_most_zeta_squared(name):
    measured = client_heterogeneity(LOSSES[name], make_rows(name))
    assert 0 < measured.gradient_dissimilarity <= measured.zeta**2
    assert measured.value_gap > 0


@pytest.mark.parametrize("name", LOSSES)
def test_noise_is_the_variance_of_single_row_gradients(name):
    loss, rows = LOSSES[name], make_rows(name)
    draw = np.random.default_rng(5)
    start = loss.init(jax.random.key(0))
    point = jax.tree.map(lambda leaf: draw.normal(size=leaf.shape), start)
    noise = gradient_noise(loss, rows, point, stacked=False)
    for client in range(CLIENTS):
        inputs, targets = rows.of(client)
        single = Rows(inputs, targets, np.arange(len(inputs) + 1))
        gradients = np.array([value_and_gradient(name, single, row, point)[1] for row in range(len(inputs))])
        assert noise[client] == pytest.approx(gradients.var(axis=0).sum(), rel=1e-10)


def test_noise_of_location_does_not_depend_on_the_point(noisy_means):
    loss, rows = noisy_means([[1.0, 2.0], [3.0, -1.0]], 0.6)
    for place in (0.0, 5.0):
        noise = gradient_noise(loss, rows, {"location": np.full((2, 2), place)}, stacked=True)
        np.testing.assert_allclose(noise, 0.36, rtol=1e-12)
