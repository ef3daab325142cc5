# SPDX-License-Identifier: Apache-2.0
"""L2GD and L2SGD+ against plain NumPy loops, their unbiasedness coin by coin, and where they converge to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.accounting.bytes import bytes_of, model_units, wire
from idiolect.algorithms.l2gd import L2GD, Broadcast, ClientState, Working
from idiolect.algorithms.l2sgd_plus import L2SGDPlus
from idiolect.algorithms.schedule import AHEAD
from idiolect.core import RequestError, batches, keys
from idiolect.core.algorithm import fit_of
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose
from idiolect.core.settings import check_settings
from idiolect.core.tree import take
from idiolect.engines import door
from idiolect.engines.start import wire_types
from idiolect.models import Linear
from idiolect.objectives import ClientLoss, GlobalModel
from idiolect.objectives.mx2 import MX2

ROUNDS, CLIENTS, SEED, PENALTY = 4, 5, 3, 0.7
COIN = {"step_size": 0.4, "averaging_probability": 0.03}
ALL_PRESENT = np.ones((ROUNDS, CLIENTS), bool)
PARTIAL = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0]], bool)


@pytest.fixture
def softmax(lab):
    """(objective, device data, gradient of client m on some rows, rows per client)."""
    client_loss, data, rows = lab.softmax_problem()

    def gradient(v, m, chosen):
        return lab.softmax_gradient(v, rows[m][0][chosen], rows[m][1][chosen])

    return MX2(client_loss, penalty=PENALTY, clients=CLIENTS), data, gradient, [len(y) for _, y in rows]


def drawn_by_the_package(algorithm, server, data):
    """Iterations [round], and component numbers [round][client][iteration]."""
    root = keys.root_key(SEED)
    iterations, components = [], []
    for r in range(ROUNDS):
        sent = algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, r), server)
        iterations.append(int(sent.iterations))
        lines = []
        for m in range(CLIENTS):
            key, line = keys.client_key(root, Purpose.STEP, r, m), []
            for t in range(0, iterations[-1], AHEAD):
                line += list(np.asarray(batches.draw_with_replacement(keys.step_key(key, t), AHEAD, 1, take(data, m))))
            lines.append(np.array(line, int).ravel())
        components.append(lines)
    return iterations, components


def plain_loop(plus, x, gradient, sizes, iterations, components, present):
    """L2GD or L2SGD+, one client and one coin at a time; the table is kept whole and its mean taken anew every time."""
    a, p = COIN["step_size"], COIN["averaging_probability"]
    x, psi = x.copy(), np.zeros_like(x)
    table = [np.zeros((n, x.shape[1])) for n in sizes]
    for r in range(ROUNDS):
        cohort = np.flatnonzero(present[r])
        for m in cohort:
            for j in components[r][m][: iterations[r]]:
                if not plus:
                    x[m] = x[m] - a / (CLIENTS * (1 - p)) * gradient(x[m], m, np.arange(sizes[m]))
                    continue
                new = gradient(x[m], m, [j])
                g = (new - table[m][j]) / (CLIENTS * (1 - p)) + table[m].mean(0) / CLIENTS + psi[m] / CLIENTS
                table[m][j] = new
                x[m] = x[m] - a * g
        old = x.copy()
        for m in cohort:
            pull = PENALTY * (old[m] - old[cohort].mean(0))
            g = pull / (CLIENTS * p)
            if plus:
                g = g - (1 / p - 1) * psi[m] / CLIENTS + table[m].mean(0) / CLIENTS
                psi[m] = pull
            x[m] = x[m] - a * g
    return x, table, psi


@pytest.mark.parametrize("cls", [L2GD, L2SGDPlus])
def test_rounds_equal_a_plain_loop(lab, softmax, cls):
    objective, data, gradient, sizes = softmax
    algorithm = cls(objective, clients=CLIENTS, **COIN)
    assert fit_of(algorithm).refused is None
    server, states = lab.begin(algorithm, data, SEED, scale=0.5)
    iterations, components = drawn_by_the_package(algorithm, server, data)
    assert max(iterations) > AHEAD  # rows are drawn more than once in a round
    for present in (ALL_PRESENT, PARTIAL):
        run = lab.simulate(algorithm, data, ROUNDS, present=present, start=(server, states), seed=SEED)
        truth = plain_loop(
            cls is L2SGDPlus, lab.flat_rows(states.personal), gradient, sizes, iterations, components, present
        )
        np.testing.assert_allclose(lab.flat_rows(run.states.personal), truth[0], rtol=1e-12, atol=1e-12)
        work = np.array(iterations) @ present  # coin-0 iterations per client
        counts = dict.fromkeys(("shared", "both", "forward", "full_shared", "full_personal", "proximal"), 0)
        if cls is L2SGDPlus:
            for m, n in enumerate(sizes):
                table = lab.flat_rows(jax.tree.map(lambda leaf, m=m: leaf[m], run.states.gradients))
                np.testing.assert_allclose(table[:n], truth[1][m], rtol=1e-12, atol=1e-12)
                assert not table[n:].any()
                mean = lab.flat(take(run.states.mean_gradient, m))
                np.testing.assert_allclose(mean, truth[1][m].mean(0), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(lab.flat_rows(run.states.pull), truth[2], rtol=1e-12, atol=1e-12)
            counts |= dict.fromkeys(("personal", "samples"), work.sum())
        else:
            counts |= dict.fromkeys(("personal", "samples"), work @ sizes) | {"full_personal": work.sum()}
        assert run.tally() == counts
    np.testing.assert_array_equal(
        lab.personal_models(algorithm, data, run, ROUNDS, SEED), lab.flat_rows(run.states.personal)
    )


def anywhere(objective, data, plus):
    """Stacked client states at arbitrary places, tables included."""
    draw = np.random.default_rng(8)
    model = objective.client_loss.init(None)

    def block(*shape):
        return jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=(CLIENTS, *shape, *leaf.shape))), model)

    if not plus:
        return ClientState(block(), (), (), ())
    table, own = block(data.targets.shape[1]), np.arange(data.targets.shape[1]) < np.asarray(data.count)[:, None]

    def mean(leaf):
        mask = own.reshape(*own.shape, *(1,) * (leaf.ndim - 2))
        return jnp.asarray((np.asarray(leaf) * mask).sum(1) / mask.sum(1))

    return ClientState(block(), table, jax.tree.map(mean, table), block())


@pytest.mark.parametrize("cls", [L2GD, L2SGDPlus])
def test_the_mean_over_coins_and_components_is_the_gradient(lab, softmax, cls):
    # whatever x, J and Psi are: (1 - p) mean_j g(0, j) + p g(1) = grad_m F = (grad f'_m(x_m) + lam (x_m - xbar)) / M
    objective, data, gradient, sizes = softmax
    a, p = 0.9, 0.3
    algorithm = cls(objective, clients=CLIENTS, step_size=a, averaging_probability=p)
    states = anywhere(objective, data, cls is L2SGDPlus)
    x = lab.flat_rows(states.personal)
    mean = jax.tree.map(lambda leaf: leaf.mean(0), states.personal)
    sent, key = Broadcast(mean, jnp.ones((), jnp.int32)), keys.root_key(0)

    @jax.jit
    def coin_0(state, rows, j):
        drawn = jnp.full((AHEAD, 1), j) if cls is L2SGDPlus else ()  # iteration 1 takes what was drawn before
        return algorithm.step(key, jnp.asarray(1), sent, Working(state, drawn), rows)[0].state.personal

    for m, n in enumerate(sizes):
        state, rows = take(states, m), take(data, m)
        at_home = [x[m] - lab.flat(coin_0(state, rows, jnp.asarray(j, jnp.int32))) for j in range(n)]
        toward = x[m] - lab.flat(algorithm.settle(key, sent, state, rows).personal)
        estimate = ((1 - p) * np.mean(at_home, axis=0) + p * toward) / a
        truth = (gradient(x[m], m, np.arange(n)) + PENALTY * (x[m] - x.mean(0))) / CLIENTS
        np.testing.assert_allclose(estimate, truth, rtol=1e-12, atol=1e-12)
        assert np.abs(toward / a - truth).max() > 0.01  # one coin alone is not


def test_table_and_pull_start_at_zero(lab, softmax):
    # unbiased whatever they are, see above; so the start costs no pass over the rows
    objective, data, _, _ = softmax
    algorithm = L2SGDPlus(objective, clients=CLIENTS, **COIN)
    _, states = lab.begin(algorithm, data, SEED)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((states.gradients, states.mean_gradient, states.pull)))
    assert lab.flat_rows(jax.tree.map(lambda leaf: leaf[0], states.gradients)).shape == (7, 12)  # capacity, parameters


def test_pulls_sum_to_zero_once_set(lab, softmax):
    objective, data, _, _ = softmax
    algorithm = L2SGDPlus(objective, clients=CLIENTS, **COIN)
    start = lab.begin(algorithm, data, SEED, scale=0.5)
    run = lab.simulate(algorithm, data, 3, present=ALL_PRESENT[:3], start=start, seed=SEED)
    pulls = lab.flat_rows(run.states.pull)
    assert np.abs(pulls).max() > 0.01
    np.testing.assert_allclose(pulls.sum(0), 0, atol=1e-13)


def test_the_averaging_step_of_l2gd_keeps_the_mean(lab, softmax):
    objective, data, _, _ = softmax
    algorithm = L2GD(objective, clients=CLIENTS, **COIN)
    states = anywhere(objective, data, plus=False)
    sent = Broadcast(jax.tree.map(lambda leaf: leaf.mean(0), states.personal), jnp.zeros((), jnp.int32))
    settled = jax.vmap(lambda state, rows: algorithm.settle(keys.root_key(0), sent, state, rows))(states, data)
    x, moved = lab.flat_rows(states.personal), lab.flat_rows(settled.personal)
    np.testing.assert_allclose(moved.mean(0), x.mean(0), rtol=1e-12, atol=1e-14)
    # every distance to it shrinks by the same factor 1 - a lam / (p M)
    shrunk = 1 - COIN["step_size"] * PENALTY / (COIN["averaging_probability"] * CLIENTS)
    np.testing.assert_allclose(moved - x.mean(0), shrunk * (x - x.mean(0)), rtol=1e-11, atol=1e-14)


def least_squares(same=False, sizes=(20,) * CLIENTS, penalty=0.3):
    """Least squares: unit-norm features, d = 4; (objective, data, optimum x*, smallest mu')."""
    draw = np.random.default_rng(2)
    capacity, d = max(sizes), 4
    x = draw.normal(size=(CLIENTS, capacity, d))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    goal = draw.normal(size=(CLIENTS, d)) * (0 if same else 1) + 1
    y = np.einsum("mnd,md->mn", x, goal) + (0 if same else 0.3) * draw.normal(size=(CLIENTS, capacity))
    hessians = [x[m, :n].T @ x[m, :n] / n for m, n in enumerate(sizes)]
    gradients = [x[m, :n].T @ y[m, :n] / n for m, n in enumerate(sizes)]
    # (H_m + lam) x_m - lam xbar = b_m: one linear system in all x_m
    system = np.kron(penalty * (np.eye(CLIENTS) - 1 / CLIENTS), np.eye(d))
    for m, hessian in enumerate(hessians):
        system[m * d : (m + 1) * d, m * d : (m + 1) * d] += hessian
    optimum = np.linalg.solve(system, np.concatenate(gradients)).reshape(CLIENTS, d)
    data = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.asarray(sizes, jnp.int32))
    client_loss = ClientLoss(model=Linear(d, bias=False), criterion="squared")
    smallest = min(np.linalg.eigvalsh(hessian)[0] for hessian in hessians)
    return MX2(client_loss, penalty=penalty, clients=CLIENTS), data, optimum, smallest


def relative_gap(lab, run, optimum):
    return np.linalg.norm(lab.flat_rows(run.states.personal) - optimum) / np.linalg.norm(optimum)


@pytest.mark.parametrize("sizes", [(20,) * CLIENTS, (20, 11, 15, 9, 20)])
def test_l2sgd_plus_converges_linearly_to_the_optimum(lab, sizes):
    # with Lc' = 1: p = (4 lam + mu') / (4 lam + 4 Lc' + (n+1) mu'), a = M min{...}
    objective, data, optimum, mu = least_squares(sizes=sizes)
    n, lam = max(sizes), objective.penalty
    p = (4 * lam + mu) / (4 * lam + 4 + (n + 1) * mu)
    a = CLIENTS * min((1 - p) / (4 + mu * n), p / (4 * lam + mu))
    algorithm = L2SGDPlus(objective, clients=CLIENTS, step_size=a, averaging_probability=p)
    early, later, last = (relative_gap(lab, lab.simulate(algorithm, data, rounds), optimum) for rounds in (32, 64, 300))
    assert early < 0.1
    assert 1.5 < np.log(later) / np.log(early) < 2.6  # a line on a logarithmic scale: 2, but for the coins
    assert last < 1e-12


def test_l2gd_stops_at_a_floor_that_shrinks_with_the_step(lab):
    # the mean squared distance left is of order a, so 16 times less of a is about 4 times less distance
    objective, data, optimum, _ = least_squares()

    def distance_left(a, rounds):
        algorithm = L2GD(objective, clients=CLIENTS, step_size=a, averaging_probability=0.25)
        runs = [lab.simulate(algorithm, data, rounds, seed=seed) for seed in range(12)]
        return np.sqrt(np.mean([relative_gap(lab, run, optimum) ** 2 for run in runs]))

    coarse, fine = distance_left(1.0, 400), distance_left(1 / 16, 4000)
    assert 0.03 < coarse < 0.5
    assert 2.5 < coarse / fine < 6


def test_l2gd_is_exact_when_all_clients_agree(lab):
    # at a common optimum both coins' steps vanish, so that there is no noise to leave a floor
    objective, data, optimum, _ = least_squares(same=True)
    np.testing.assert_allclose(optimum, 1, rtol=1e-10)
    algorithm = L2GD(objective, clients=CLIENTS, step_size=1.0, averaging_probability=0.25)
    run = lab.simulate(algorithm, data, 1500)
    np.testing.assert_allclose(lab.flat_rows(run.states.personal), optimum, rtol=1e-10)


@pytest.mark.parametrize("cls", [L2GD, L2SGDPlus])
def test_one_model_each_way_and_none_delivered(lab, softmax, cls):
    objective, data, _, _ = softmax
    algorithm = cls(objective, clients=CLIENTS, **COIN)
    model = objective.client_loss.init(None)
    sent, upload, delivered, _ = wire_types(algorithm, data)
    assert (model_units(sent, model), model_units(upload, model), model_units(delivered, model)) == (1, 1, 0)
    assert bytes_of((sent, upload)) - 2 * bytes_of(model) == 4 + 8  # the number of iterations, the weight
    assert wire(sent, upload).warnings  # the personal model goes up, openly
    run = lab.simulate(algorithm, data, 1, present=ALL_PRESENT[:1])
    assert algorithm.shared_model(run.server) is run.server.mean  # for newcomers: no client is sent it at the end
    client = take(run.states, 0)
    assert algorithm.point(algorithm.deliver(None, run.server), client) == ((), client.personal)


def test_what_does_not_fit_is_refused(softmax):
    objective, _, _, _ = softmax
    assert "mx2" in fit_of(L2GD(GlobalModel(objective.client_loss), **COIN)).refused
    assert "mx2" in fit_of(L2SGDPlus(GlobalModel(objective.client_loss), **COIN)).refused
    for size in (0, 2):
        assert "set batch_size = 1" in fit_of(L2SGDPlus(objective, batch_size=size, **COIN)).refused
    for name in ("epochs", "local_steps", "batch_size"):  # it has no use for them, so they are no settings
        with pytest.raises(TypeError, match=name):
            L2GD(objective, **{name: 1}, **COIN)
    with pytest.raises(RequestError, match=r"L2GD\.averaging_probability must be above 0 and below 1, got 1"):
        check_settings(L2GD(objective, step_size=0.1, averaging_probability=1.0))
    with pytest.raises(RequestError, match="L2SGDPlus needs step_size, averaging_probability"):
        door.admit(L2SGDPlus(objective), CLIENTS, "float64")
    with pytest.raises(RequestError, match=r"L2SGDPlus cannot minimise GlobalModel: .* mx2"):
        door.admit(L2SGDPlus(GlobalModel(objective.client_loss), **COIN), CLIENTS, "float64")
