# SPDX-License-Identifier: Apache-2.0
"""Scafflix, i-Scaffnew, Scaffnew and GD on FLIX: plain loops, the invariant, reductions, limits, errata."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.scafflix import Scafflix, Working
from idiolect.algorithms.schedule import AHEAD
from idiolect.core import batches, keys
from idiolect.core.addressing import PerClient, address
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import RequestError
from idiolect.core.keys import Purpose
from idiolect.core.settings import check_settings, settings
from idiolect.core.tree import take
from idiolect.engines import door
from idiolect.engines.debug import debug
from idiolect.engines.evaluate import Moment, client_models
from idiolect.engines.simulate import Training, simulate
from idiolect.objectives import FLIX, MX2, GlobalModel

ROUNDS, SEED, P = 4, 3, 0.03
ALPHAS = np.array([1.0, 0.5, 0.3, 0.9, 0.0])  # one client for all, one for itself
STEPS = np.array([0.1, 0.05, 0.2, 0.03, 0.1])
ALL_PRESENT = np.ones((ROUNDS, 5), bool)
PARTIAL = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1], [0, 0, 0, 0, 1], [1, 0, 1, 1, 0]], bool)


@pytest.fixture
def softmax(lab):
    """(client loss, device data, gradient of client m on some rows, rows per client)."""
    client_loss, data, rows = lab.softmax_problem()

    def gradient(v, m, chosen):
        return lab.softmax_gradient(v, rows[m][0][chosen], rows[m][1][chosen])

    return client_loss, data, gradient, [len(y) for _, y in rows]


def drawn_by_the_package(algorithm, server, data, sizes):
    """Iterations [round], and the rows of every iteration [round][client], that of the exchange last."""
    root, draw = keys.root_key(SEED), functools.partial(batches.draw_with_replacement, batch_size=algorithm.batch_size)
    iterations, components = [], []
    for r in range(ROUNDS):
        count = int(algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, r), server).iterations)
        lines = []
        for m, n in enumerate(sizes):
            if algorithm.batch_size == 0:
                lines.append([np.arange(n)] * (count + 1))
                continue
            step, send = (keys.client_key(root, purpose, r, m) for purpose in (Purpose.STEP, Purpose.SEND))
            line = []
            for t in range(0, count, AHEAD):
                line += list(np.asarray(draw(keys.step_key(step, t), AHEAD, data=take(data, m))))
            last = draw(send, 1, data=take(data, m))
            lines.append([*line[:count], np.asarray(last)[0]])
        iterations.append(count)
        components.append(lines)
    return iterations, components


def plain_loop(w, control, optima, gradient, components, present):
    """Algorithm 1, one client and one coin at a time; a client with alpha = 0 never takes part."""
    h = control.copy()
    for lines, here in zip(components, present):
        cohort = [m for m in np.flatnonzero(here) if ALPHAS[m] > 0]
        ends = {}
        for m in cohort:
            x = w.copy()
            for rows in lines[m]:
                mixed = ALPHAS[m] * x + (1 - ALPHAS[m]) * optima[m]
                x = x - STEPS[m] / ALPHAS[m] * (gradient(mixed, m, rows) - h[m])
            ends[m] = x
        if not cohort:
            continue
        weights = {m: ALPHAS[m] ** 2 / STEPS[m] for m in cohort}
        w = sum(weights[m] * ends[m] for m in cohort) / sum(weights.values())
        for m in cohort:
            h[m] = h[m] + P * ALPHAS[m] / STEPS[m] * (w - ends[m])
    return w, h


@pytest.mark.parametrize("batch_size", [0, 2])
def test_rounds_equal_a_plain_loop(lab, softmax, batch_size):
    client_loss, data, gradient, sizes = softmax
    objective = FLIX(client_loss, personalization=PerClient(jnp.asarray(ALPHAS)))
    algorithm = Scafflix(
        objective,
        clients=5,
        local_step=PerClient(jnp.asarray(STEPS)),
        communication_probability=P,
        batch_size=batch_size,
    )
    assert fit_of(algorithm).refused is None
    server, states = lab.begin(algorithm, data, SEED, scale=0.5)
    iterations, components = drawn_by_the_package(algorithm, server, data, sizes)
    assert max(iterations) > AHEAD  # rows are drawn more than once in a round
    optima = lab.flat_rows(states.prepared.optimum)
    start = lab.flat(server.shared), np.zeros_like(optima)
    for present in (ALL_PRESENT, PARTIAL):
        run = lab.simulate(algorithm, data, ROUNDS, present=present, start=(server, states), seed=SEED)
        w, h = plain_loop(*start, optima, gradient, components, present)
        np.testing.assert_allclose(lab.flat(run.server.shared), w, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(lab.flat_rows(run.states.control), h, rtol=1e-11, atol=1e-12)
        models, _ = client_models(
            Moment(algorithm, keys.root_key(SEED), ROUNDS, run.server, jnp.arange(5), run.states, data)
        )
        mixed = ALPHAS[:, None] * w + (1 - ALPHAS[:, None]) * optima
        np.testing.assert_allclose(lab.flat_rows(models.personal), mixed, rtol=1e-11, atol=1e-12)
        work = (np.array(iterations) + 1) @ present  # one gradient per iteration, that of the exchange included
        rows = work @ (np.full(5, batch_size) if batch_size else sizes)
        tally = run.tally()
        assert (tally["shared"], tally["samples"]) == (rows, rows)
        assert tally["full_shared"] == (0 if batch_size else work.sum())
        assert tally["personal"] == tally["both"] == 0


def test_own_optima_are_solved_where_they_are_mixed_in_and_counted(lab, softmax):
    client_loss, data, gradient, sizes = softmax
    objective = FLIX(client_loss, personalization=PerClient(jnp.asarray(ALPHAS)), tolerance=1e-9)
    for m, n in enumerate(sizes):
        prepared, tally = address(objective, m).prepare(keys.root_key(0), take(data, m))
        optimum = lab.flat(prepared.optimum)
        if ALPHAS[m] == 1:
            assert not optimum.any()
            assert all(int(count) == 0 for count in tally)
            continue
        assert np.linalg.norm(gradient(optimum, m, np.arange(n))) <= 1e-9
        count = int(tally.full_personal)
        assert 10 < count < 500
        assert (int(tally.personal), int(tally.samples), int(tally.full_shared)) == (count * n, count * n, 0)


def test_networks_are_solved_by_epochs(lab, softmax):
    client_loss, data, gradient, sizes = softmax
    chosen = {"solver": "epochs", "solver_epochs": 3, "solver_batch_size": 2, "solver_step_size": 0.2}
    objective = FLIX(client_loss, **chosen)
    m, n = 3, sizes[3]
    prepared, tally = objective.prepare(keys.root_key(4), take(data, m))
    orders = np.asarray(batches.draw_orders(keys.root_key(4), 3, take(data, m)))
    v = np.zeros(lab.flat(prepared.optimum).shape)
    for order in orders:
        for first in range(0, n, 2):
            v = v - 0.2 * gradient(v, m, order[first : min(first + 2, n)])
    np.testing.assert_allclose(lab.flat(prepared.optimum), v, rtol=1e-12)
    assert (int(tally.personal), int(tally.full_personal), bool(prepared.reached)) == (3 * n, 0, True)


# Six quadratics in R^4, L in [1, 20], unequal alpha.
SHARES = np.array([1.0, 0.8, 0.5, 0.3, 0.9, 0.2])


class CheckF:
    """f'_m(v) = (1/2) sum_j h_mj (v_j - o_mj)^2: x*_m = o_m, so that everything is known in closed form."""

    def __init__(self, lab, shares=SHARES):
        draw = np.random.default_rng(6)
        self.lab, self.shares = lab, shares
        self.curvature = np.exp(draw.uniform(0, np.log(20), (6, 4)))
        self.curvature[0, :2] = [1.0, 20.0]
        self.own = 2 * draw.normal(size=(6, 4))
        self.loss, self.data = lab.quadratic_problem(self.curvature, self.own)
        self.smoothness, self.convexity = self.curvature.max(1), self.curvature.min(1)
        self.steps = 1 / self.smoothness
        self.chance = float(np.sqrt((self.steps * self.convexity).min()))

    def gradient(self, w):
        """grad f'_m at the mixed points, (6, 4)."""
        return self.curvature * self.shares[:, None] * (w - self.own)

    def solve(self, total=0.0):
        """w with sum_m alpha_m grad f'_m = `total`: 0 is the optimum, sum_m alpha_m h_m^0 any other limit."""
        weights = self.shares[:, None] ** 2 * self.curvature
        return ((weights * self.own).sum(0) + total) / weights.sum(0)

    def algorithm(self, cls=Scafflix, **changes):
        objective = FLIX(self.loss, personalization=PerClient(jnp.asarray(self.shares)), tolerance=1e-14)
        given = {"local_step": PerClient(jnp.asarray(self.steps)), "communication_probability": self.chance}
        return cls(objective, clients=6, **{**given, **changes})

    def start(self, algorithm, control=None):
        server, states = self.lab.begin(algorithm, self.data, SEED)
        if control is not None:
            states = states._replace(control={"location": jnp.asarray(control)})
        return server, states

    def run(self, algorithm, rounds, control=None, present=None, seed=SEED):
        """(w, h) after some rounds."""
        start = self.start(algorithm, control)
        run = self.lab.simulate(algorithm, self.data, rounds, start=start, present=present, seed=seed)
        return self.lab.flat(run.server.shared), self.lab.flat_rows(run.states.control)


def cohorts(rounds, size, seed=0):
    draw = np.random.default_rng(seed)
    return np.array([np.isin(np.arange(6), draw.choice(6, size, replace=False)) for _ in range(rounds)])


@pytest.mark.parametrize("seed", range(3))
def test_the_sum_of_alpha_h_never_changes(lab, seed):
    check = CheckF(lab)
    control = np.random.default_rng(seed).normal(size=(6, 4))  # whatever it is
    total = check.shares @ control
    dropout = np.random.default_rng(seed).random((40, 6)) < 0.4  # rounds without a client among them
    for batch_size in (0, 1):
        algorithm = check.algorithm(batch_size=batch_size)
        for present in (None, cohorts(40, 3, seed), dropout):
            _, h = check.run(algorithm, 40, control, present, seed)
            assert np.abs(h - control).max() > 0.1
            np.testing.assert_allclose(check.shares @ h, total, atol=1e-12 * np.abs(h).max())


def test_alpha_one_is_i_scaffnew(lab):
    check = CheckF(lab, np.ones(6))
    w, h = check.run(check.algorithm(), 30)
    plain = Scafflix(
        GlobalModel(check.loss),
        clients=6,
        local_step=PerClient(jnp.asarray(check.steps)),
        communication_probability=check.chance,
    )
    other = check.run(plain, 30)
    np.testing.assert_allclose(w, other[0], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(h, other[1], rtol=1e-13, atol=1e-13)
    # and that is algorithm 2: the 1/gamma-weighted mean, h_i + (p/gamma_i)(xbar - xh_i)
    iterations = coin_0_iterations(plain, 30)
    mean, own = np.zeros(4), np.zeros((6, 4))
    for count in iterations:
        x = np.tile(mean, (6, 1))
        for _ in range(count + 1):
            x = x - check.steps[:, None] * (check.curvature * (x - check.own) - own)
        mean = (x / check.steps[:, None]).sum(0) / (1 / check.steps).sum()
        own = own + check.chance / check.steps[:, None] * (mean - x)
    np.testing.assert_allclose(other[0], mean, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(other[1], own, rtol=1e-12, atol=1e-12)


def coin_0_iterations(algorithm, rounds):
    """As the server draws them."""
    root = keys.root_key(SEED)
    server = algorithm.init_server(root)
    draw = jax.vmap(lambda r: algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, r), server).iterations)
    return np.asarray(draw(jnp.arange(rounds)))


def test_equal_steps_are_scaffnew(lab):
    # ProxSkip for consensus: a plain mean, h_i + (p/gamma)(x_i^new - xh_i), one coin per iteration
    check = CheckF(lab)
    gamma, p = float(1 / check.smoothness.max()), 0.2
    algorithm = Scafflix(GlobalModel(check.loss), clients=6, local_step=gamma, communication_probability=p)
    w, h = check.run(algorithm, 30)
    coins = [coin for count in coin_0_iterations(algorithm, 30) for coin in [0] * count + [1]]
    x, own = np.zeros((6, 4)), np.zeros((6, 4))
    for coin in coins:
        ahead = x - gamma * (check.curvature * (x - check.own) - own)
        x = np.tile(ahead.mean(0), (6, 1)) if coin else ahead
        own = own + p / gamma * (x - ahead)
    np.testing.assert_allclose(w, x[0], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(h, own, rtol=1e-12, atol=1e-12)


def test_always_communicating_is_gradient_descent_on_flix(lab):
    check = CheckF(lab)
    w, _ = check.run(check.algorithm(communication_probability=1.0), 25)
    expected, step = np.zeros(4), 1 / np.mean(check.shares**2 / check.steps)
    for _ in range(25):
        expected = expected - step * (check.shares[:, None] * check.gradient(expected)).mean(0)
    np.testing.assert_allclose(w, expected, rtol=1e-13, atol=1e-13)
    assert np.abs(w - check.solve()).max() > 1e-9  # still on its way
    assert step == pytest.approx(1 / np.mean(check.shares**2 * check.smoothness))


def test_the_solution_is_a_fixed_point_and_the_limit(lab):
    check = CheckF(lab)
    best = check.solve()
    control = check.gradient(best)
    np.testing.assert_allclose(check.shares @ control, 0, atol=1e-13)
    algorithm = check.algorithm()
    server, states = check.start(algorithm, control)
    server = server._replace(shared={"location": jnp.asarray(best)})
    run = lab.simulate(algorithm, check.data, 10, start=(server, states), seed=SEED)
    np.testing.assert_allclose(lab.flat(run.server.shared), best, atol=1e-13)
    np.testing.assert_allclose(lab.flat_rows(run.states.control), control, atol=1e-12)
    w, h = check.run(algorithm, 400)
    np.testing.assert_allclose(w, best, atol=1e-13)
    np.testing.assert_allclose(h, control, atol=1e-12)


def test_the_printed_initial_condition_has_a_wrong_limit(lab):
    # E001-1: sum h = 0 where alpha differ; the limit has sum alpha grad f' = sum alpha h^0 instead of 0
    check = CheckF(lab)
    control = np.random.default_rng(1).normal(size=(6, 4))
    control -= control.mean(0)
    np.testing.assert_allclose(control.sum(0), 0, atol=1e-14)
    w, _ = check.run(check.algorithm(), 400, control)
    assert np.linalg.norm(w - check.solve()) > 0.05
    np.testing.assert_allclose(w, check.solve(check.shares @ control), atol=1e-12)
    # projected in the metric of the weights it is as good as zero
    weights = check.shares / check.steps
    control -= np.outer(weights, check.shares @ control) / (check.shares @ weights)
    w, _ = check.run(check.algorithm(), 400, control)
    np.testing.assert_allclose(w, check.solve(), atol=1e-12)


def test_starting_control_at_the_gradients_has_a_wrong_limit(lab):
    # E001-2: h^0 = grad f'_m(xt^0), which the discussion after corollary 6 takes
    check = CheckF(lab)
    control = check.gradient(np.zeros(4))
    w, _ = check.run(check.algorithm(), 400, control)
    assert np.linalg.norm(w - check.solve()) > 0.5
    np.testing.assert_allclose(w, check.solve(check.shares @ control), atol=1e-12)


def test_steps_of_one_over_l_squared_diverge(lab):
    # E001-4: with A = L^2 as assumption 3 prints, L = 0.4 allows gamma = 6.25 > 2/L = 5
    check = CheckF(lab)
    check.curvature = np.tile([0.4, 0.3, 0.2, 0.1], (6, 1))
    check.loss, check.data = lab.quadratic_problem(check.curvature, check.own)
    fine, _ = check.run(check.algorithm(communication_probability=1.0, local_step=1 / 0.4), 60)
    broken, _ = check.run(check.algorithm(communication_probability=1.0, local_step=1 / 0.4**2), 60)
    np.testing.assert_allclose(fine, check.solve(), atol=1e-6)
    # the first coordinate is multiplied by 1 - 6.25 * 0.4 = -1.5 in every step
    growth = (broken - check.solve())[0] / (0 - check.solve())[0]
    assert growth == pytest.approx(1.5**60, rel=1e-6)


@settings
class Unsettled(Scafflix):
    """xbar comes back only with the next broadcast, when another cohort may have moved it."""

    @property
    def settles(self) -> bool:
        return False

    def receive(self, key: Any, sent: Any, client: Any, data: Any) -> tuple[Working, Any]:
        return super().receive(key, sent, self.settle(key, sent, client, data), data)

    def send(self, key: Any, sent: Any, working: Any, client: Any, data: Any) -> Any:
        return super().send(key, sent, working, client._replace(control=working.control), data)


def test_a_cohort_of_three_reaches_the_optimum_because_it_settles(lab):
    # another program, partial participation: 9e-16 and sum alpha h = 2e-14 with settling, 0.92 and 7.2 without
    check = CheckF(lab)
    rounds = 3000
    present = cohorts(rounds, 3)
    w, h = check.run(check.algorithm(), rounds, present=present)
    np.testing.assert_allclose(w, check.solve(), atol=1e-12)
    np.testing.assert_allclose(check.shares @ h, 0, atol=1e-12)
    w, h = check.run(check.algorithm(Unsettled), rounds, present=present)
    assert not np.linalg.norm(w - check.solve()) < 0.05
    assert not np.abs(check.shares @ h).max() < 0.1
    # with all clients there both are the same: the next broadcast is what settles
    ends = [check.run(check.algorithm(cls), 300)[0] for cls in (Scafflix, Unsettled)]
    np.testing.assert_allclose(*ends, atol=1e-12)


def test_messages_are_the_iterations_of_coin_1(lab):
    check = CheckF(lab)
    algorithm = check.algorithm()
    run = lab.simulate(algorithm, check.data, 300, start=check.start(algorithm), seed=SEED)
    useful = run.costs.counts[8]
    iterations = coin_0_iterations(algorithm, 300)
    np.testing.assert_array_equal(useful, np.tile(iterations[:, None], (1, 6)))
    total = int(iterations.sum()) + 300
    # each of `total` coins shows 1 with probability p: 300 of them did, within four standard deviations
    assert abs(300 - total * check.chance) < 4 * np.sqrt(total * check.chance * (1 - check.chance))
    assert run.tally()["full_shared"] == 6 * total


def test_purely_local_clients_move_no_other(lab):
    shares = np.array([0.0, 0.8, 0.5, 0.0, 0.9, 0.2])
    check = CheckF(lab, shares)
    w, h = check.run(check.algorithm(), 400)
    np.testing.assert_allclose(w, check.solve(), atol=1e-12)
    assert not h[[0, 3]].any()
    weightless = np.tile(shares == 0, (5, 1))  # a cohort without any weight leaves xbar alone
    start = check.start(check.algorithm())
    start = start[0]._replace(shared={"location": jnp.ones(4)}), start[1]
    run = lab.simulate(check.algorithm(), check.data, 5, start=start, present=weightless, seed=SEED)
    np.testing.assert_array_equal(lab.flat(run.server.shared), 1)


def test_flix_sgd_steps_along_the_objectives_gradient(lab):
    check = CheckF(lab)
    algorithm = LocalSGD(check.algorithm().objective, clients=6, step_size=0.02, local_steps=3)
    run = lab.simulate(algorithm, check.data, 5, start=check.start(algorithm), seed=SEED)
    w = np.zeros(4)
    for _ in range(5):
        ends = []
        for m in range(6):
            x = w.copy()
            for _ in range(3):
                x = x - 0.02 * check.shares[m] ** 2 * check.curvature[m] * (x - check.own[m])
            ends.append(x)
        w = np.mean(ends, axis=0)
    np.testing.assert_allclose(lab.flat(run.server.shared), w, rtol=1e-12)
    np.testing.assert_allclose(lab.flat_rows(run.states.prepared.optimum)[1:], check.own[1:], atol=1e-13)


def test_added_noise_has_the_stated_variance(lab):
    check = CheckF(lab)
    algorithm = address(check.algorithm(noise=0.7), 2)
    gradient = {"location": jnp.zeros(4)}
    draws = jax.vmap(lambda key: algorithm._noise(key, gradient)["location"])(jax.random.split(jax.random.key(0), 4000))
    # E |alpha noise|^2 = alpha^2 0.49; the mean of 4000 squares of 4 normals has a relative deviation of 0.011
    assert float((draws**2).sum(1).mean()) == pytest.approx(0.25 * 0.49, rel=0.05)
    quiet, noisy = (check.run(check.algorithm(noise=size), 400)[0] for size in (1e-9, 0.7))
    assert np.linalg.norm(quiet - check.solve()) < 1e-8 < np.linalg.norm(noisy - check.solve())


def test_what_does_not_fit_is_refused(lab, ragged):
    client_loss, _, _ = lab.softmax_problem()
    fine = {"local_step": 0.1, "communication_probability": 0.5}
    assert "flix or the global_model" in fit_of(Scafflix(MX2(client_loss), **fine)).refused
    with pytest.raises(TypeError, match="epochs"):
        Scafflix(FLIX(client_loss), epochs=1, **fine)
    admit = functools.partial(door.admit, clients=6, precision="float64")
    for value in (-0.1, 1.2):
        with pytest.raises(RequestError, match=r"FLIX\.personalization must be at least 0 and at most 1, got .* alone"):
            admit(Scafflix(FLIX(client_loss, personalization=value), **fine))
    with pytest.raises(RequestError, match=r"personalization must be at least 0 and at most 1"):
        admit(Scafflix(FLIX(client_loss, personalization=PerClient(np.array([0.5] * 5 + [2.0]))), **fine))
    with pytest.raises(RequestError, match=r"must have one row per client, 6, got shape \(4,\)"):
        admit(Scafflix(FLIX(client_loss, personalization=PerClient(np.full(4, 0.5))), **fine))
    for value in (0.0, 1.5):
        with pytest.raises(RequestError, match="communication_probability must be above 0 and at most 1, got"):
            check_settings(Scafflix(FLIX(client_loss), local_step=0.1, communication_probability=value))
    with pytest.raises(RequestError, match="Scafflix needs local_step, communication_probability: give numbers"):
        admit(Scafflix(FLIX(client_loss)))


@pytest.mark.parametrize("run", [simulate, debug])
def test_a_client_whose_solve_fails_is_named(ragged, workbench, run):
    # separable rows without l2: the gradient vanishes at infinity only
    objective = FLIX(workbench.client_loss(l2=None), solver_steps=50)
    algorithm = Scafflix(objective, local_step=0.1, communication_probability=0.5)
    training = Training(rounds=1, precision="float64", executor="batched")
    with pytest.raises(RequestError, match=r"^Client 'clinic 0' has no optimum of its own that 50 gradients find to"):
        run(algorithm, ragged, training)
    alone = FLIX(workbench.client_loss(l2=None), solver_steps=50, personalization=1.0)
    run(Scafflix(alone, local_step=0.1, communication_probability=0.5), ragged, training)


@pytest.mark.parametrize("name", ["minibatch_sgd", "scaffold", "lsgd_pfl", "acd_pfl", "scd_pfl", "pfedme"])
def test_who_does_not_carry_what_was_prepared_is_refused(workbench, ragged, name):
    with pytest.raises(RequestError, match=r"cannot minimise FLIX: .*prepared.*use scafflix, flix_gd or flix_sgd\."):
        simulate(workbench.build(name, "flix"), ragged)
