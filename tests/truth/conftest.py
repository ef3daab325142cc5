# SPDX-License-Identifier: Apache-2.0
"""What every truth test needs: float64, small federations, the compiled engine, and the same rounds walked by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.core import keys
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose
from idiolect.core.tally import Tally
from idiolect.engines.block import Lane, Rounds, run_lane
from idiolect.engines.round import Cohort, How, whole_cohort
from idiolect.engines.start import init_clients, init_server
from idiolect.models import Linear, Location
from idiolect.objectives import ClientLoss

FEATURES, CLASSES, L2 = 3, 3, 0.1


class Run(NamedTuple):
    """Where a simulation ended."""

    server: Any
    states: Any
    costs: Any = None

    def tally(self):
        """Per-example counts of all rounds and all clients that were present."""
        there = self.costs.present
        return {block: int(np.where(there, count, 0).sum()) for block, count in zip(Tally._fields, self.costs.counts)}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def softmax_problem(sizes=(3, 5, 4, 7, 2)):
    """Ragged, heterogeneous softmax regression: (client loss, device data, list of (inputs, targets) per client)."""
    draw = np.random.default_rng(5)
    rows = [(draw.normal(size=(n, FEATURES)) + m % 3, draw.integers(0, CLASSES, n)) for m, n in enumerate(sizes)]
    capacity = max(sizes)
    inputs = np.full((len(sizes), capacity, FEATURES), 1e6)  # padding that would be seen if it ever leaked
    targets = np.zeros((len(sizes), capacity), np.int32)
    for m, (x, y) in enumerate(rows):
        inputs[m, : len(y)], targets[m, : len(y)] = x, y
    data = ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(sizes, jnp.int32))
    return ClientLoss(model=Linear(FEATURES, CLASSES), criterion="cross_entropy", l2=L2), data, rows


def softmax_gradient(v, x, y):
    """grad f'_m of `softmax_problem` in NumPy: inputs^T (softmax - one hot) / n + l2 v; v is bias, then weights."""
    logits = x @ v[CLASSES:].reshape(CLASSES, x.shape[1]).T + v[:CLASSES]
    off = np.exp(logits - logits.max(1, keepdims=True))
    off /= off.sum(1, keepdims=True)
    off[np.arange(len(y)), y] -= 1
    return np.concatenate([off.mean(0), (off.T @ x / len(y)).ravel()]) + L2 * v


def quadratic_problem(curvatures, optima):
    """f'_m(v) = (1/2) sum_j h_mj (v_j - o_mj)^2 as one row per client: input sqrt(h), target sqrt(h) o."""
    optima = np.atleast_2d(np.asarray(optima, float))
    root = np.sqrt(np.broadcast_to(np.asarray(curvatures, float), optima.shape))
    count = jnp.ones(len(optima), jnp.int32)
    data = ClientData(jnp.asarray(root)[:, None], jnp.asarray(root * optima)[:, None], count)
    return ClientLoss(model=Location(optima.shape[1]), criterion="squared"), data


def begin(algorithm, data, seed=0, scale=0.0):
    """Start states; `scale` > 0 moves both blocks away from the objective's start, clients each to their own place."""
    root = keys.root_key(seed)
    clients = jnp.arange(data.count.shape[0], dtype=jnp.int32)
    server, (states, _) = init_server(algorithm, root), init_clients(algorithm, root, clients, data)

    def moved(state, block, coordinate):
        leaves, form = jax.tree.flatten(getattr(state, block))
        draw = np.random.default_rng(coordinate)
        away = [leaf + scale * draw.normal(size=leaf.shape) for leaf in leaves]
        return state._replace(**{block: jax.tree.unflatten(form, away)})

    if scale and hasattr(server, "shared"):
        server = moved(server, "shared", 1)
    if scale and hasattr(states, "personal"):
        states = moved(states, "personal", 2)
    return server, states


def simulate(algorithm, data, rounds, *, present=None, start=None, seed=0):
    """`rounds` rounds of the compiled engine; `present` is (rounds, clients), None for all."""
    server, states = start or begin(algorithm, data, seed)
    room = 64 if rounds <= 64 else rounds  # short runs share one program, whatever their length
    cohorts = None
    if present is not None:
        there = jnp.zeros((room, data.count.shape[0]), bool).at[:rounds].set(present)
        clients = jnp.broadcast_to(jnp.arange(there.shape[1], dtype=jnp.int32), there.shape)
        cohorts = Cohort(clients, clients, there)
    lane = Lane(algorithm, keys.root_key(seed), server, states, cohorts)
    numbers = Rounds(jnp.arange(room, dtype=jnp.int32), jnp.asarray(rounds, jnp.int32))
    return Run(*run_lane(lane, data, numbers, how=How(uniform=False, chunk=0)))


def trajectory(algorithm, data, rounds, *, start=None, seed=0):
    """The same rounds by hand, one list of stacked Working states per round: before each step and after the last."""
    root, everyone = keys.root_key(seed), whole_cohort(data)
    server, states = start or begin(algorithm, data, seed)
    receive, step, send = (
        jax.jit(jax.vmap(method, in_axes=axes))
        for method, axes in (
            (algorithm.receive, (0, None, 0, 0)),
            (algorithm.step, (0, None, None, 0, 0)),
            (algorithm.send, (0, None, 0, 0, 0)),
        )
    )
    walked, servers = [], [server]
    for number in range(rounds):
        at = {p: keys.client_keys(root, p, number, everyone.clients) for p in Purpose}
        sent = algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, number), server)
        working, _ = receive(at[Purpose.RECEIVE], sent, states, data)
        walked.append([working])
        for t in range(algorithm.steps(sent, data.targets.shape[1])):
            working, _ = step(at[Purpose.STEP], jnp.asarray(t), sent, working, data)
            walked[-1].append(working)
        uploads, states, _ = send(at[Purpose.SEND], sent, working, states, data)
        collected = algorithm.reduction.collect(uploads, everyone.clients, everyone.present)
        server = algorithm.server_step(root, server, sent, algorithm.reduction.lower(collected))
        servers.append(server)
    return SimpleNamespace(working=walked, servers=servers, states=states)


@jax.jit
def _personal_models(algorithm, root, rounds, server, states, data):
    sent = algorithm.deliver(keys.round_key(root, Purpose.DELIVER, rounds), server)
    own = keys.client_keys(root, Purpose.PERSONAL_MODEL, rounds, whole_cohort(data).clients)
    return jax.vmap(lambda key, state, rows: algorithm.models(key, sent, state, rows)[0].personal)(own, states, data)


def personal_models(algorithm, data, run, rounds, seed=0):
    """(clients, parameters): what every client would predict with now."""
    return flat_rows(_personal_models(algorithm, keys.root_key(seed), rounds, run.server, run.states, data))


def flat(params):
    """Parameters as one NumPy vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def flat_rows(stacked):
    """Stacked parameters as a (clients, parameters) NumPy matrix."""
    return np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(stacked)], axis=1)


@pytest.fixture
def lab():
    """The functions of this file; test files cannot import one another."""
    return SimpleNamespace(
        Run=Run,
        softmax_problem=softmax_problem,
        softmax_gradient=softmax_gradient,
        quadratic_problem=quadratic_problem,
        begin=begin,
        simulate=simulate,
        trajectory=trajectory,
        personal_models=personal_models,
        flat=flat,
        flat_rows=flat_rows,
        classes=CLASSES,
        l2=L2,
    )
