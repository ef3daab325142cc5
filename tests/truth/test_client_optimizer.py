# SPDX-License-Identifier: Apache-2.0
"""Client optimizers: momentum and Adam by hand, a memory that is kept or starts anew, statistics left alone."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import Flow, LocalSGD
from idiolect.algorithms.optimizers import CLIENT_OPTIMIZERS, Descent
from idiolect.core import keys
from idiolect.core.data import ClientData, Rows
from idiolect.models import MLP, Linear
from idiolect.objectives import ClientLoss, GlobalModel
from idiolect.theory import client_constants
from idiolect.theory.step_sizes import LOCAL_SGD, advise

ROWS = ((1.0, 2.0), (3.0, -1.0))  # of two clients with one row each: (x, y), loss (b + w x - y)^2 / 2
ETA, STEPS, ROUNDS = 0.05, 3, 2


def federation():
    x, y = np.array(ROWS).T
    return ClientData(jnp.asarray(x[:, None, None]), jnp.asarray(y[:, None, None]), jnp.ones(2, jnp.int32))


def gradient(w, row):
    return (w[0] + w[1] * row[0] - row[1]) * np.array([1.0, row[0]])


def momentum(w, memory, g):
    memory = g if memory is None else 0.9 * memory + g
    return w - ETA * memory, memory


def adam(w, memory, g):
    t, m, v = (0, 0.0, 0.0) if memory is None else memory
    t, m, v = t + 1, 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    return w - ETA * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8), (t, m, v)


def by_hand(rule, start, kept):
    w, memories = start, [None, None]
    for _ in range(ROUNDS):
        ends = []
        for client, row in enumerate(ROWS):
            own, memory = w, memories[client] if kept else None
            for _ in range(STEPS):
                own, memory = rule(own, memory, gradient(own, row))
            memories[client] = memory
            ends.append(own)
        w = np.mean(ends, axis=0)
    return w


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("name", "rule"), [("momentum", momentum), ("adam", adam)])
def test_rounds_equal_plain_code(lab, standard_dtypes, name, rule, kept):
    objective = GlobalModel(ClientLoss(model=Linear(1, 1), criterion="squared"))
    settings = {"step_size": ETA, "local_steps": STEPS, "clients": 2, "client_optimizer": name, "keep_memory": kept}
    algorithm, data = LocalSGD(objective, **settings), federation()
    server, states = lab.begin(algorithm, data, 0, scale=0.3)
    assert bool(jax.tree.leaves(states)) == kept  # a client that keeps nothing has no state
    bias, weights = (np.asarray(server.shared[part]).ravel() for part in ("bias", "weights"))
    run = lab.simulate(algorithm, data, ROUNDS, start=(server, states), seed=0)
    wanted = by_hand(rule, np.concatenate([bias, weights]), kept)
    found = np.concatenate([np.ravel(run.server.shared[part]) for part in ("bias", "weights")])
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_fine_tuning_uses_it_too(standard_dtypes):
    objective = GlobalModel(ClientLoss(model=Linear(1, 1), criterion="squared"))
    algorithm = LocalSGD(
        objective, step_size=ETA, clients=2, fine_tuning_steps=STEPS, client_optimizer="momentum", keep_memory=True
    )
    data = jax.tree.map(lambda leaf: leaf[1], federation())
    start = {"bias": jnp.zeros(1), "weights": jnp.zeros((1, 1))}
    server = algorithm.init_server(keys.root_key(0))._replace(shared=start)
    sent = algorithm.broadcast(keys.root_key(0), server)
    state = algorithm.init_client(keys.StartKeys(keys.root_key(0), keys.root_key(1)), data)[0]
    model = algorithm.models(keys.root_key(0), sent, state, data)[0].personal
    own, memory = np.zeros(2), None
    for _ in range(STEPS):
        own, memory = momentum(own, memory, gradient(own, ROWS[1]))
    np.testing.assert_allclose([model["bias"].item(), model["weights"].item()], own, rtol=1e-9)


@pytest.mark.parametrize("name", CLIENT_OPTIMIZERS)
def test_running_statistics_take_their_change_whole(standard_dtypes, name):
    descent = Descent(name, 0.1)
    params = {"weights": jnp.ones((2, 2)), "running_mean": jnp.zeros(2)}
    change = {"weights": jnp.ones((2, 2)), "running_mean": jnp.full(2, -3.0)}
    moved, _ = descent.step(params, descent.start(params), change)
    np.testing.assert_array_equal(moved["running_mean"], 3.0)
    assert np.isfinite(moved["weights"]).all()
    assert name == "rprop" or np.abs(np.asarray(moved["weights"]) - 1).max() > 1e-6  # it first looks where it is


def test_flow_remembers_within_a_round_alone(lab, standard_dtypes):
    """A first step has nothing to remember; a second one has."""
    draw = np.random.default_rng(0)
    data = ClientData(
        jnp.asarray(draw.normal(size=(2, 6, 3))), jnp.asarray(draw.integers(0, 2, (2, 6))), jnp.full(2, 6, jnp.int32)
    )
    plain = Flow(GlobalModel(ClientLoss(model=MLP(3, 2, (4,)))), clients=2, routing_widths=(4,), step_size=0.1)
    start = lab.begin(plain, data, 0)

    def end(steps, optimizer):
        algorithm = dataclasses.replace(plain, local_steps=steps, client_optimizer=optimizer)
        return lab.flat(lab.simulate(algorithm, data, 2, start=start, seed=0).server._replace(optimizer=()))

    np.testing.assert_allclose(end(1, "momentum"), end(1, "sgd"), rtol=1e-12)
    assert np.abs(end(2, "momentum") - end(2, "sgd")).max() > 1e-3


def test_theory_speaks_of_plain_steps_alone():
    objective = GlobalModel(ClientLoss(model=Linear(1, 1), criterion="squared"))
    constants = client_constants(objective.client_loss, Rows(np.ones((2, 1)), np.ones((2, 1)), np.arange(3)))
    assert advise(LOCAL_SGD, LocalSGD(objective), constants) is not None
    assert advise(LOCAL_SGD, LocalSGD(objective, client_optimizer="adam"), constants) is None
