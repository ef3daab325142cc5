# SPDX-License-Identifier: Apache-2.0
"""Constants against eigenvalues of the Hessians that JAX finds in the very losses that are trained."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from idiolect.core.data import Batch, Rows
from idiolect.models import MLP, Linear, Location
from idiolect.objectives import Additive, ClientLoss, GlobalModel, LocalOnly
from idiolect.theory import block_constants, client_constants

FEATURES, CLIENTS, CAPACITY = 3, 3, 8
LOSSES = {
    "regression": ClientLoss(model=Linear(FEATURES), criterion="squared", l2=0.2),
    "two_targets": ClientLoss(model=Linear(FEATURES, outputs=2, bias=False), criterion="squared"),
    "location": ClientLoss(model=Location(FEATURES), criterion="squared", l2=0.1),
    "logistic": ClientLoss(model=Linear(FEATURES), criterion="logistic", l2=0.05),
    "softmax": ClientLoss(model=Linear(FEATURES, outputs=4), criterion="cross_entropy", l2=0.05),
    "two_classes": ClientLoss(model=Linear(FEATURES, outputs=2), criterion="cross_entropy"),
}


def make_rows(name, seed):
    draw = np.random.default_rng(seed)
    counts = draw.integers(1, CAPACITY + 1, CLIENTS)  # some clients have fewer rows than parameters
    total = int(counts.sum())
    inputs = draw.normal(size=(total, FEATURES)) * draw.uniform(0.2, 3.0, FEATURES)
    targets = {
        "regression": draw.normal(size=total),
        "two_targets": draw.normal(size=(total, 2)),
        "location": draw.normal(size=(total, FEATURES)),
        "logistic": draw.integers(0, 2, total),
        "softmax": draw.integers(0, 4, total),
        "two_classes": draw.integers(0, 2, total),
    }[name]
    return Rows(inputs, targets, np.concatenate([[0], np.cumsum(counts)]))


@functools.cache
def hessian_of(name):
    """One compiled Hessian per loss: rows are padded and masked, so that all clients share it."""
    loss = LOSSES[name]
    start, unravel = ravel_pytree(loss.init(jax.random.key(0)))
    value = lambda flat, batch: loss.value(None, unravel(flat), batch)[0]  # noqa: E731
    return jax.jit(jax.hessian(value)), start.size


def eigenvalues(name, inputs, targets, point):
    hessian, size = hessian_of(name)
    missing = CAPACITY - len(inputs)
    padded = [np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) for part in (inputs, targets)]
    batch = Batch(*padded, np.arange(CAPACITY) < len(inputs))
    return np.linalg.eigvalsh(np.asarray(hessian(np.zeros(size) + point, batch)))


def points(name, seed):
    return [0.0, *np.random.default_rng(seed + 100).normal(size=(3, hessian_of(name)[1]))]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", LOSSES)
def test_bounds_hold_at_every_point_for_every_client_and_row(name, seed):
    loss, rows = LOSSES[name], make_rows(name, seed)
    constants = client_constants(loss, rows)
    for client in range(CLIENTS):
        inputs, targets = rows.of(client)
        for point in points(name, seed):
            spectrum = eigenvalues(name, inputs, targets, point)
            assert spectrum[0] >= constants.client_strong_convexity[client] - 1e-10
            assert spectrum[-1] <= constants.client_smoothness[client] + 1e-10
            row = eigenvalues(name, inputs[:1], targets[:1], point)
            assert row[-1] <= constants.client_component_smoothness[client] + 1e-10


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["regression", "two_targets", "location", "logistic", "two_classes"])
def test_smoothness_is_attained_at_zero_where_it_is_called_exact(name, seed):
    # squared: constant Hessian; logistic: s(1-s) = 1/4; two classes: |diag(p) - pp'| = 1/2 at p = (1/2, 1/2)
    loss, rows = LOSSES[name], make_rows(name, seed)
    constants = client_constants(loss, rows)
    assert constants.exact == (name != "two_classes")
    for client in range(CLIENTS):
        spectrum = eigenvalues(name, *rows.of(client), 0.0)
        assert constants.client_smoothness[client] == pytest.approx(spectrum[-1], rel=1e-10)
        if loss.criterion == "squared":
            assert constants.client_strong_convexity[client] == pytest.approx(spectrum[0], abs=1e-10)
        largest_row = max(eigenvalues(name, x[None], y[None], 0.0)[-1] for x, y in zip(*rows.of(client)))
        assert constants.client_component_smoothness[client] == pytest.approx(largest_row, rel=1e-10)


def test_properties_take_the_worst_client():
    # Location: the Hessian is the diagonal of mean squares: client 0 diag(4, 1), client 1 diag(9, 9)
    rows = Rows(np.array([[2.0, 1.0], [3.0, 3.0]]), np.zeros((2, 2)), np.array([0, 1, 2]))
    constants = client_constants(ClientLoss(model=Location(2), criterion="squared"), rows)
    assert constants.client_smoothness.tolist() == [4.0, 9.0]
    assert constants.client_strong_convexity.tolist() == [1.0, 9.0]
    assert (constants.smoothness, constants.strong_convexity, constants.condition_number) == (9.0, 1.0, 9.0)
    assert constants.clients == 2


def test_a_batch_lies_between_one_row_and_all_rows():
    constants = client_constants(LOSSES["regression"], make_rows("regression", 0))
    sizes = [constants.batch_smoothness(size) for size in (1, 2, 10, 10**9)]
    assert sizes[0] == constants.component_smoothness
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(constants.batch_smoothness(0))
    assert constants.batch_smoothness(0) == constants.smoothness


def test_no_constants_are_invented():
    rows = make_rows("softmax", 0)
    assert client_constants(ClientLoss(model=MLP(FEATURES, 4)), rows) is None
    assert client_constants(ClientLoss(model=Linear(FEATURES, outputs=2), criterion="logistic"), rows) is None
    assert client_constants(ClientLoss(model=Linear(FEATURES), criterion="cross_entropy"), rows) is None
    assert block_constants(GlobalModel(ClientLoss(model=MLP(FEATURES, 4))), None) is None


def test_a_client_without_rows_has_only_l2():
    rows = Rows(np.ones((2, FEATURES)), np.ones(2), np.array([0, 2, 2]))
    constants = client_constants(LOSSES["regression"], rows)
    assert constants.client_smoothness[1] == constants.client_strong_convexity[1] == 0.2


def hessian_of_mean(objective, rows):
    """Hessian of F(w, beta_1..beta_M) and the number of shared parameters."""
    shared, unravel_shared = ravel_pytree(objective.init_shared(jax.random.key(0)))
    personal, unravel_personal = ravel_pytree(objective.init_personal(jax.random.key(0)))

    def mean(flat):
        blocks = flat[shared.size :].reshape(CLIENTS, personal.size)
        total = 0.0
        for client in range(CLIENTS):
            batch = Batch(*(jnp.asarray(part) for part in rows.of(client)))
            own = unravel_shared(flat[: shared.size]), unravel_personal(blocks[client])
            total += objective.loss(None, *own, batch)[0]
        return total / CLIENTS

    return np.asarray(jax.jit(jax.hessian(mean))(jnp.zeros(shared.size + CLIENTS * personal.size))), shared.size


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [GlobalModel, LocalOnly, Additive])
def test_block_constants_bound_the_blocks_of_the_mean(kind, seed):
    rows = make_rows("regression", seed)
    objective = kind(LOSSES["regression"])
    own = client_constants(objective, rows)
    blocks = block_constants(objective, own)
    hessian, split = hessian_of_mean(objective, rows)
    assert np.linalg.eigvalsh(hessian)[0] >= blocks.strong_convexity - 1e-10
    shared, personal = hessian[:split, :split], hessian[split:, split:]
    if kind is not LocalOnly:
        assert np.linalg.eigvalsh(shared)[-1] <= blocks.shared_smoothness + 1e-10
    if kind is not GlobalModel:  # blocks do not mix, so the largest over clients is attained
        assert np.linalg.eigvalsh(personal)[-1] == pytest.approx(blocks.personal_smoothness, rel=1e-10)
    if kind is LocalOnly:
        assert np.linalg.eigvalsh(hessian)[0] == pytest.approx(blocks.strong_convexity, rel=1e-8)
        assert blocks.shared_smoothness == blocks.component_shared_smoothness == 0.0
    if kind is GlobalModel:
        assert (blocks.strong_convexity, blocks.shared_smoothness) == (own.strong_convexity, own.smoothness)
        assert blocks.personal_smoothness == 0.0
    assert blocks.component_personal_smoothness >= blocks.personal_smoothness
