# SPDX-License-Identifier: Apache-2.0
"""What algorithms do, measured, against what theory says they do."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms.local import Local
from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.lsgd_pfl import LSGDPFL
from idiolect.algorithms.personalized_local_sgd import PersonalizedLocalSGD
from idiolect.objectives import Additive, GlobalModel, LocalOnly
from idiolect.theory import (
    block_constants,
    client_constants,
    client_heterogeneity,
    local_optima,
    optimal_value,
    rates,
    shared_optimum,
)
from idiolect.theory.optimum import client_values
from idiolect.theory.step_sizes import lsgd_pfl_step, theorem_1_step, theorem_2_step, theorem_2_tuned_step


def personalized(loss, **settings):
    return PersonalizedLocalSGD(Additive(loss), **settings)


@pytest.mark.parametrize("local_steps", [1, 7])
@pytest.mark.parametrize("seed", range(3))
def test_theorem_1_holds_on_different_hessians(regression, train, squared_distance, seed, local_steps):
    loss, rows = regression(seed)
    constants, optima = client_constants(loss, rows), local_optima(loss, rows)
    radius = client_heterogeneity(loss, rows).radius
    for scale in (1.0, 2.0, 5.0):
        for fraction in (0.3, 0.99):
            step_size = fraction * theorem_1_step(constants.smoothness, scale)
            algorithm = personalized(loss, personal_step_scale=scale, step_size=step_size, local_steps=local_steps)
            for rounds in (1, 40):
                bound = rates.theorem_1_bound(
                    personal_step_scale=scale,
                    server_step_size=1.0,
                    step_size=step_size,
                    local_steps=local_steps,
                    rounds=rounds,
                    clients=rows.clients,
                    strong_convexity=constants.strong_convexity,
                    radius=radius,
                )
                assert squared_distance(train(algorithm, rows, rounds), optima) <= bound


# E000-5: one client of curvature 1 pulls w to its own optimum +1, away from the others, flat ones with optimum -1. Two
# and three clients: settings at which random searches saw 1.82 and 2.11; more clients and smaller alpha tend to 4.
@pytest.mark.parametrize(
    ("clients", "alpha", "eta", "local_steps", "rounds", "ratio"),
    [(2, 0.05, 0.6 / 1.05, 1, 20, 1.8165), (3, 0.0327, 0.349, 4, 9, 2.3213), (20, 0.001, 0.349, 4, 100, 3.4485)],
)
def test_theorem_1_fails_below_alpha_1_on_different_hessians(
    quadratic, train, squared_distance, clients, alpha, eta, local_steps, rounds, ratio
):
    signs = np.array([1.0] + [-1.0] * (clients - 1))[:, None]
    loss, rows = quadratic(np.where(signs > 0, 1.0, 0.001), signs)
    settings = {"personal_step_scale": alpha, "step_size": eta, "local_steps": local_steps}
    bound = rates.theorem_1_bound(
        **settings, server_step_size=1.0, rounds=rounds, clients=clients, strong_convexity=0.001, radius=1.0
    )
    error = squared_distance(train(personalized(loss, **settings), rows, rounds), local_optima(loss, rows))
    assert error / bound == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize("server_step_size", [1.0, 2.5])
@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0])
def test_modes_of_a_common_hessian_shrink_exactly(quadratic, train, scale, server_step_size):
    optima = np.random.default_rng(1).normal(size=(4, 3)) + 1.0
    curvatures = np.array([1.0, 0.3, 0.05])
    loss, rows = quadratic(np.tile(curvatures, (4, 1)), optima)
    settings = {"personal_step_scale": scale, "step_size": 0.45, "local_steps": 6}
    models = train(personalized(loss, **settings, server_step_size=server_step_size), rows, 5)["location"]
    error = np.asarray(models) - optima
    for axis, curvature in enumerate(curvatures):
        phi = rates.deviation_multiplier(**settings, curvature=curvature)
        psi = rates.mean_multiplier(**settings, server_step_size=server_step_size, curvature=curvature)
        start, end = -optima[:, axis], error[:, axis]
        assert end.mean() == pytest.approx(psi**5 * start.mean(), rel=1e-9)
        np.testing.assert_allclose(end - end.mean(), phi**5 * (start - start.mean()), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("clients", "stable"), [(4, True), (9, False), (16, False), (100, False)])
def test_outer_step_sqrt_m_breaks_theorem_1_as_predicted(quadratic, train, squared_distance, clients, stable):
    # E000-4: alpha = 1, K = 20, R = 10, eta = 0.45: nu = 0.1 on the stiffest axis, so a round
    # multiplies the mean by psi = 1 - (1+sqrt(M))/2: -0.5, -1 (stands still), -1.5, -4.5
    optima = np.random.default_rng(2).normal(size=(clients, 3)) * 0.1 + 1.0
    loss, rows = quadratic(np.tile([1.0, 0.3, 0.05], (clients, 1)), optima)
    goal, radius = local_optima(loss, rows), client_heterogeneity(loss, rows).radius

    def outcome(server_step_size):
        settings = {"personal_step_scale": 1.0, "step_size": 0.45, "local_steps": 20}
        settings["server_step_size"] = server_step_size
        problem = {"rounds": 10, "clients": clients, "strong_convexity": 0.05, "radius": radius}
        error = squared_distance(train(personalized(loss, **settings), rows, 10), goal)
        return rates.is_stable(**settings), error, rates.theorem_1_bound(**settings, **problem)

    predicted, error, bound = outcome(math.sqrt(clients))
    assert predicted == stable
    assert bool(error <= bound) == stable
    if clients >= 16:
        # only the stiffest axis grows: 1.5^20 = 3325 and 4.5^20 = 1.2e13 times its squared start
        grown = (1 - (1 + math.sqrt(clients)) / 2) ** 20 * optima[:, 0].mean() ** 2
        assert grown < error < 4 * grown
    predicted, error, bound = outcome(1.0)
    assert predicted
    assert error <= bound


def test_noise_falls_with_the_number_of_clients_exactly_as_predicted(noisy_means, train):
    settings = {"personal_step_scale": 0.2, "step_size": 0.3, "local_steps": 4}
    noise, seeds, rounds = 0.8, 400, 12
    exact = []
    for clients in (1, 4, 16):
        optima = np.random.default_rng(clients).normal(size=(clients, 2))
        loss, rows = noisy_means(optima, noise)
        algorithm = personalized(loss, **settings, batch_size=1)
        models = jax.vmap(lambda seed: train(algorithm, rows, rounds, seed)["location"])(jnp.arange(seeds))  # noqa: B023
        errors = ((np.asarray(models) - optima) ** 2).sum(axis=2).mean(axis=1)
        centre = optima.mean(axis=0)
        run = settings | {"server_step_size": 1.0, "rounds": rounds, "clients": clients, "noise": noise}
        predicted = rates.common_hessian_error(
            **run,
            start_deviation=((optima - centre) ** 2).sum(axis=1).mean(),
            start_mean=(centre**2).sum(),
        )
        standard_error = errors.std(ddof=1) / math.sqrt(seeds)
        assert abs(errors.mean() - predicted) < 4 * standard_error  # 4: one false alarm in 16000
        radius = np.linalg.norm(optima, axis=1).max()
        assert errors.mean() < rates.theorem_1_bound(**run, strong_convexity=1.0, radius=radius)
        exact.append(rates.common_hessian_error(**run | {"rounds": 10**4}, start_deviation=0, start_mean=0))
    assert exact[0] > 2 * exact[1] > 4 * exact[2]


@pytest.mark.parametrize(
    ("local_steps", "step_size", "value"), [(3, 0.5, 0.2708333), (10, 0.3, 0.5480870), (20, 0.05, 0.1638887)]
)
def test_equation_20(quadratic, consensus, local_steps, step_size, value):
    # the error starts anew every round, so two rounds give the average of any number
    loss, rows = quadratic([[1.0], [1.0]], [[1.5], [3.5]])
    predicted = rates.local_sgd_consensus(step_size=step_size, local_steps=local_steps)
    algorithm = LocalSGD(GlobalModel(loss), step_size=step_size, local_steps=local_steps)
    assert predicted == pytest.approx(value, abs=5e-8)
    assert consensus(algorithm, rows, 2).mean() == pytest.approx(predicted, rel=1e-12)
    assert rates.personalized_consensus(
        personal_step_scale=0.0, step_size=step_size, local_steps=local_steps, rounds=7
    ) == pytest.approx(predicted, rel=1e-12)


def test_figure_2_values(quadratic, consensus):
    # closed form, zeta = 1, K = 5: local SGD (1-2^-k)^2; personalized a quarter of it, then times 0.2659 a round
    loss, rows = quadratic([[1.0], [1.0]], [[-1.0], [1.0]])
    plain = consensus(LocalSGD(GlobalModel(loss), step_size=0.5, local_steps=5), rows, 2)
    np.testing.assert_allclose(plain, 2 * [0, 0.25, 0.5625, 0.765625, 0.87890625], rtol=1e-12)
    settings = {"personal_step_scale": 1.0, "step_size": 0.25, "local_steps": 5}
    errors = consensus(personalized(loss, **settings), rows, 3)
    np.testing.assert_allclose(errors, [rates.consensus_at(t, **settings) for t in range(15)], rtol=1e-10)
    np.testing.assert_allclose(errors[:5], [0, 0.0625, 0.140625, 0.19140625, 0.2197265625], rtol=1e-12)
    np.testing.assert_allclose(errors[6:10] / errors[1:5], ((1 + 0.5**5) / 2) ** 2, rtol=1e-10)


@pytest.mark.parametrize("scale", [0.0, 0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize(("fraction", "local_steps"), [(0.2, 2), (0.935, 5)])
def test_equation_21_corrected(quadratic, consensus, scale, fraction, local_steps):
    loss, rows = quadratic([[1.0], [1.0]], [[1.3], [2.7]])  # zeta = 0.7
    settings = {"personal_step_scale": scale, "step_size": fraction / (1 + scale), "local_steps": local_steps}
    measured = consensus(personalized(loss, **settings), rows, 6).mean()
    settings |= {"rounds": 6, "spread": 0.7}
    assert rates.personalized_consensus(**settings) == pytest.approx(measured, rel=1e-10)
    assert measured <= rates.personalized_consensus_bound(**settings)


def test_equation_21_as_printed_is_no_bound(quadratic, consensus):
    # E000-2: alpha = 0.1, eta = 0.85, K = 5, R = 50: true 0.0736, printed 0.0153, corrected 0.156
    loss, rows = quadratic([[1.0], [1.0]], [[-1.0], [1.0]])
    settings = {"personal_step_scale": 0.1, "step_size": 0.85, "local_steps": 5}
    measured = consensus(personalized(loss, **settings), rows, 50).mean()
    printed = rates.printed_wrong_personalized_consensus_bound(**settings, rounds=50)
    corrected = rates.personalized_consensus_bound(**settings, rounds=50)
    assert measured == pytest.approx(0.0736, abs=5e-5)
    assert printed == pytest.approx(0.0153, abs=5e-5)
    assert corrected == pytest.approx(0.156, abs=5e-4)
    assert printed < measured < corrected


def test_figure_1_local_gd_misses_what_personalization_reaches(quadratic, train, squared_distance):
    loss, rows = quadratic([[2.0, 4.0], [4.0, 2.0]], [[7.0, 18.0], [18.0, 13.0]])
    optima, settings = local_optima(loss, rows), {"step_size": 0.05, "local_steps": 3}
    plain = train(LocalSGD(GlobalModel(loss), **settings), rows, 200)
    # the fixed point averages v*_m with weights 1 - nu_m^3, nu = 1 - 0.05 h: 0.9 and 0.8
    weights = np.array([[1 - 0.9**3, 1 - 0.8**3], [1 - 0.8**3, 1 - 0.9**3]])
    limit = (weights * optima["location"]).sum(axis=0) / weights.sum(axis=0)
    np.testing.assert_allclose(plain["location"], np.tile(limit, (2, 1)), rtol=1e-10)
    assert np.abs(limit - shared_optimum(loss, rows)["location"]).max() > 0.05
    assert squared_distance(train(personalized(loss, **settings), rows, 200), optima) < 1e-8


@pytest.mark.parametrize("output", ["own_mean", "mean_of_means"])
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_theorem_2_without_noise(regression, train, consensus, scale, output):
    loss, rows = regression(7)
    constants, radius = client_constants(loss, rows), client_heterogeneity(loss, rows).radius
    step_size = theorem_2_step(constants.smoothness, scale)
    algorithm = personalized(loss, personal_step_scale=scale, step_size=step_size, local_steps=5, output=output)
    drift = consensus(algorithm, rows, 6).mean() if output == "mean_of_means" else 0.0
    models = jax.tree.map(np.asarray, train(algorithm, rows, 6))
    gap = client_values(loss, rows, models, stacked=True).mean() - optimal_value(LocalOnly(loss), rows)
    bound = rates.theorem_2_bound(
        personal_step_scale=scale,
        step_size=step_size,
        total_steps=30,
        clients=rows.clients,
        radius=radius,
        smoothness=constants.smoothness,
        mean_consensus=drift,
    )
    assert 0 < gap <= bound


def test_theorem_2_with_noise_at_its_tuned_step(noisy_means, train):
    optima = np.array([[1.0, 0.5], [0.5, -1.0], [0.2, 0.9]])
    loss, rows = noisy_means(optima, 2.0)
    radius = np.linalg.norm(optima, axis=1).max()
    step_size = theorem_2_tuned_step(1.0, radius, 2.0, 200)
    assert step_size < 0.25  # the noise decides
    algorithm = personalized(loss, step_size=step_size, local_steps=5, batch_size=1, output="own_mean")
    models = jax.vmap(lambda seed: train(algorithm, rows, 40, seed)["location"])(jnp.arange(50))
    gap = 0.5 * ((np.asarray(models) - optima) ** 2).sum(axis=2).mean()
    common = {"personal_step_scale": 1.0, "total_steps": 200, "clients": 3, "radius": radius, "noise": 2.0}
    bound = rates.theorem_2_bound(**common, step_size=step_size)
    assert gap <= bound
    for factor in (0.5, 0.9, 1.1, 2.0):  # the tuned step minimises the bound
        assert rates.theorem_2_bound(**common, step_size=factor * step_size) > bound


@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_local_training_bound(noisy_means, train, noise):
    optima = np.array([[1.0, 0.5], [0.5, -1.0]])
    loss, rows = noisy_means(optima, noise)
    for step_size in (0.2, 0.9):
        algorithm = Local(LocalOnly(loss), step_size=step_size, local_steps=3, batch_size=1 if noise else 0)
        models = jax.vmap(lambda seed: train(algorithm, rows, 5, seed)["location"])(jnp.arange(200))  # noqa: B023
        radius = np.linalg.norm(optima, axis=1).max()
        bound = rates.local_training_bound(
            step_size=step_size, steps=15, strong_convexity=1.0, radius=radius, noise=noise
        )
        assert ((np.asarray(models) - optima) ** 2).sum(axis=2).mean() <= bound


@pytest.mark.parametrize("kind", [GlobalModel, LocalOnly])
@pytest.mark.parametrize("local_steps", [1, 5])
def test_lsgd_pfl_bound(regression, train, kind, local_steps):
    loss, rows = regression(11, clients=12)  # M > 8: the printed beta step, without 1/M, diverges (E002-6)
    objective, clients = kind(loss), rows.clients
    blocks = block_constants(objective, client_constants(loss, rows))
    step_size = lsgd_pfl_step(blocks.shared_smoothness, blocks.personal_smoothness, local_steps)
    algorithm = LSGDPFL(
        objective,
        step_size=step_size,
        local_steps=local_steps,
        clients=clients,
        output="weighted_average",
        strong_convexity=blocks.strong_convexity,
    )
    if kind is GlobalModel:
        distance = (shared_optimum(loss, rows)["weights"] ** 2).sum()
        zeta = client_heterogeneity(loss, rows).gradient_dissimilarity
    else:
        distance, zeta = (local_optima(loss, rows)["weights"] ** 2).sum(), 0.0
    for rounds in (2, 60):
        models = jax.tree.map(np.asarray, train(algorithm, rows, rounds))
        gap = client_values(loss, rows, models, stacked=True).mean() - optimal_value(objective, rows)
        bound = rates.lsgd_pfl_bound(
            step_size=step_size,
            steps=local_steps * rounds,
            local_steps=local_steps,
            strong_convexity=blocks.strong_convexity,
            shared_smoothness=blocks.shared_smoothness,
            start_distance=distance,
            heterogeneity=zeta,
            clients=clients,
        )
        assert 0 <= gap <= bound
        without_convexity = rates.lsgd_pfl_bound(
            step_size=step_size,
            steps=local_steps * rounds,
            local_steps=local_steps,
            strong_convexity=0.0,
            shared_smoothness=blocks.shared_smoothness,
            start_distance=distance,
            heterogeneity=zeta,
            clients=clients,
        )
        assert gap <= without_convexity
