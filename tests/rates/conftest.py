# SPDX-License-Identifier: Apache-2.0
"""Problems with known answers, and real runs of real algorithms on them, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.core import keys
from idiolect.core.data import Rows
from idiolect.core.tree import squared_norm
from idiolect.engines.block import Lane, Rounds, run_lane
from idiolect.engines.round import How
from idiolect.engines.start import init_clients, init_server
from idiolect.models import Linear, Location
from idiolect.objectives import ClientLoss


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def _equal_rows(inputs, targets):
    clients, rows = np.shape(targets)[:2]
    return Rows(
        np.concatenate(np.asarray(inputs, float)),
        np.concatenate(np.asarray(targets, float)),
        np.arange(clients + 1) * rows,
    )


@pytest.fixture
def quadratic():
    """(curvatures, optima), each (M, d): f'_m(v) = 1/2 sum_j h_mj (v_j - v*_mj)^2, as a loss and its rows."""

    def build(curvatures, optima):
        roots = np.sqrt(np.asarray(curvatures, float))[:, None, :]
        optima = np.asarray(optima, float)[:, None, :]
        return ClientLoss(model=Location(optima.shape[2]), criterion="squared"), _equal_rows(roots, roots * optima)

    return build


@pytest.fixture
def noisy_means():
    """Hessian I; one row drawn uniformly has gradient noise of variance exactly `noise`^2 at every point."""

    def build(optima, noise):
        optima = np.asarray(optima, float)[:, None, :]
        size = noise / np.sqrt(optima.shape[2])
        targets = np.concatenate([optima - size, optima + size], axis=1)
        loss = ClientLoss(model=Location(optima.shape[2]), criterion="squared")
        return loss, _equal_rows(np.ones_like(targets), targets)

    return build


@pytest.fixture
def regression():
    """Least squares with a different, random Hessian on every client."""

    def build(seed, clients=4, rows=12, features=3):
        draw = np.random.default_rng(seed)
        inputs = draw.normal(size=(clients, rows, features)) * draw.uniform(0.3, 1.5, size=(clients, 1, features))
        targets = inputs @ draw.normal(size=(clients, features, 1)) + 0.1 * draw.normal(size=(clients, rows, 1))
        loss = ClientLoss(model=Linear(features, bias=False), criterion="squared")
        return loss, _equal_rows(inputs, targets[..., 0])

    return build


@pytest.fixture
def train():
    """Run `rounds` full rounds in the compiled engine; returns the stacked models the clients end up with."""

    def build(algorithm, rows, rounds, seed=0):
        data = jax.tree.map(jnp.asarray, rows.pad(np.arange(rows.clients)))
        clients = jnp.arange(rows.clients, dtype=jnp.int32)
        root = keys.root_key(seed)
        server = init_server(algorithm, root)
        states, _ = init_clients(algorithm, root, clients, data)
        server, states, _ = run_lane(
            Lane(algorithm, root, server, states, None),
            data,
            Rounds(jnp.arange(rounds, dtype=jnp.int32), np.int32(rounds)),
            how=How(uniform=True, chunk=0),
        )
        sent = algorithm.deliver(root, server)
        return jax.vmap(lambda state, own: algorithm.models(root, sent, state, own)[0].personal)(states, data)

    return build


@pytest.fixture
def consensus():
    """Run `rounds` rounds stage by stage; returns mean_m |w_m,t - wbar_t|^2 for t = 0..KR-1."""

    def build(algorithm, rows, rounds):
        data = jax.tree.map(jnp.asarray, rows.pad(np.arange(rows.clients)))
        root = keys.root_key(0)
        clients = jnp.arange(rows.clients, dtype=jnp.int32)
        server = init_server(algorithm, root)
        states, _ = init_clients(algorithm, root, clients, data)
        everyone_there = jnp.ones(rows.clients, bool)

        @jax.jit
        def one_round(server, states):
            sent = algorithm.broadcast(root, server)
            working = jax.vmap(lambda s, d: algorithm.receive(root, sent, s, d)[0])(states, data)
            errors = []
            for t in range(algorithm.local_steps):
                deviations = jax.tree.map(lambda leaf: leaf - leaf.mean(axis=0), working.shared)
                errors.append(squared_norm(deviations) / rows.clients)
                working = jax.vmap(lambda w, d: algorithm.step(root, t, sent, w, d)[0])(working, data)  # noqa: B023
            uploads, kept, _ = jax.vmap(lambda w, s, d: algorithm.send(root, sent, w, s, d))(working, states, data)
            received = algorithm.reduction.lower(algorithm.reduction.collect(uploads, clients, everyone_there))
            return algorithm.server_step(root, server, sent, received), kept, jnp.stack(errors)

        errors = []
        for _ in range(rounds):
            server, states, of_round = one_round(server, states)
            errors.extend(np.asarray(of_round))
        return np.array(errors)

    return build


@pytest.fixture
def squared_distance():
    """mean_m |v_m - v*_m|^2 of two stacked parameter trees."""

    def build(models, optima):
        pairs = zip(jax.tree.leaves(models), jax.tree.leaves(optima))
        return sum(float(((np.asarray(a) - np.asarray(b)) ** 2).sum()) / len(b) for a, b in pairs)

    return build
