# SPDX-License-Identifier: Apache-2.0
"""Synthetic problems, those of papers as well: the stated facts hold for the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from idiolect.core.checks import RequestError
from idiolect.data import synthetic
from papers import afa_problems, plsgd_trajectory, unified_problems


def losses(problem, vectors):
    """f_m at client m's vector, from the rows alone, without the additive constants."""
    values = []
    for client, vector in enumerate(np.broadcast_to(vectors, (problem.clients, problem.dimension))):
        inputs, targets = problem.federation.train.of(client)
        outputs = inputs @ vector if problem.model == "linear" else inputs * vector
        if problem.criterion == "squared":
            rows = 0.5 * (outputs - targets) ** 2
            value = rows.reshape(len(rows), -1).sum(axis=1).mean()
        else:
            value = np.mean(np.logaddexp(0, outputs) - targets * outputs)
        values.append(value + 0.5 * problem.l2 * vector @ vector)
    return np.array(values)


def row_gradients(problem, client, vector):
    inputs, targets = problem.federation.train.of(client)
    if problem.model == "linear":
        return inputs * (inputs @ vector - targets)[:, None]
    return inputs * (inputs * vector - targets)


QUADRATIC = {
    "linear": synthetic.quadratics(4, 5, (0.2, 3.0), 2.0, seed=1, dtype=np.float64),
    "common": synthetic.quadratics(3, 4, (0.5, 1.0, 2.0, 8.0), seed=2, common_hessian=True, dtype=np.float64),
    "scalar": synthetic.quadratics(3, 1, (0.5, 2.0), seed=2, dtype=np.float64),
    "noisy": synthetic.noisy_quadratics(4, 3, 6, (0.1, 2.0), 1.5, noise=0.7, seed=3, dtype=np.float64),
    "two": synthetic.two_clients(1.5, center=0.5, dtype=np.float64),
    "trajectory": plsgd_trajectory.trajectory_instance(),
}


@pytest.mark.parametrize("problem", QUADRATIC.values(), ids=QUADRATIC)
def test_rows_are_the_stated_quadratic(problem):
    draws = np.random.default_rng(0)
    for _ in range(3):
        vector = draws.normal(size=problem.dimension)
        gap = vector - problem.optimum
        stated = 0.5 * np.einsum("mi,mij,mj->m", gap, problem.hessians, gap)
        floor = losses(problem, problem.optimum)
        np.testing.assert_allclose(losses(problem, vector), stated + floor, rtol=1e-10, atol=1e-12)
        for client in range(problem.clients):
            mean = row_gradients(problem, client, vector).mean(axis=0)
            np.testing.assert_allclose(mean, problem.hessians[client] @ gap[client], atol=1e-10)


@pytest.mark.parametrize("problem", QUADRATIC.values(), ids=QUADRATIC)
def test_shared_optimum_zeroes_the_mean_gradient(problem):
    pulls = np.einsum("mij,mj->mi", problem.hessians, problem.shared_optimum - problem.optimum)
    np.testing.assert_allclose(pulls.mean(axis=0), 0, atol=1e-10)


@pytest.mark.parametrize("problem", QUADRATIC.values(), ids=QUADRATIC)
def test_curvatures_bound_the_hessian(problem):
    values = np.linalg.eigvalsh(problem.hessians)
    np.testing.assert_allclose(values[:, 0], problem.strong_convexity)
    np.testing.assert_allclose(values[:, -1], problem.smoothness)
    assert (problem.component_smoothness >= problem.smoothness - 1e-9).all()


def test_spectrum_and_heterogeneity_are_obeyed():
    problem = QUADRATIC["linear"]
    np.testing.assert_allclose(problem.smoothness, 3.0)
    np.testing.assert_allclose(problem.strong_convexity, 0.2)
    assert not np.allclose(problem.hessians[0], problem.hessians[1])
    common = QUADRATIC["common"]
    np.testing.assert_allclose(common.hessians, np.broadcast_to(common.hessians[0], common.hessians.shape))
    np.testing.assert_allclose(np.linalg.eigvalsh(common.hessians[0]), [0.5, 1.0, 2.0, 8.0])
    alike = synthetic.quadratics(3, 2, heterogeneity=0.0)
    np.testing.assert_allclose(alike.optimum, np.broadcast_to(alike.optimum[0], (3, 2)))


def test_noise_has_the_stated_variance_everywhere():
    problem = QUADRATIC["noisy"]
    assert problem.noise_variance == pytest.approx(0.49)
    for vector in (np.zeros(3), np.array([5.0, -2.0, 1.0])):
        for client in range(4):
            rows = row_gradients(problem, client, vector)
            spread = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean()
            assert spread == pytest.approx(0.49, rel=1e-10)
    # the stated f_m vanishes at its optimum; the rows' loss there is minus the constant
    np.testing.assert_allclose(losses(problem, problem.optimum) + problem.constants, 0, atol=1e-12)


def test_instances_of_paper_000():
    two = QUADRATIC["two"]
    np.testing.assert_allclose(two.optimum, [[-1.0], [2.0]])  # center -+ zeta
    np.testing.assert_allclose(two.smoothness, 1.0)
    plane = QUADRATIC["trajectory"]
    # mean gradient zero: 2 (v1 - 7) + 4 (v1 - 18) = 0 and 4 (v2 - 18) + 2 (v2 - 13) = 0
    np.testing.assert_allclose(plane.shared_optimum, [43 / 3, 49 / 3])
    point = np.array([1.0, 2.0])
    stated = [(1 - 7) ** 2 + 2 * (2 - 18) ** 2 - 1, 2 * (1 - 18) ** 2 + (2 - 13) ** 2 - 1]
    np.testing.assert_allclose(losses(plane, point) + plane.constants, stated)
    assert plane.smoothness.tolist() == [4, 4]
    assert plane.strong_convexity.tolist() == [2, 2]


LOGISTIC = {
    "mixture": unified_problems.logistic_mixture(0.3, clients=4, rows=60, dimension=5, dtype=np.float64),
    "sharing": unified_problems.logistic_weight_sharing(5, clients=4, rows=60, dtype=np.float64),
    "libsvm": synthetic.logistic_libsvm_like(4, 60, 6, dtype=np.float64),
}


@pytest.mark.parametrize("problem", LOGISTIC.values(), ids=LOGISTIC)
def test_logistic_curvature_bounds_hold(problem):
    draws = np.random.default_rng(0)
    for client in range(problem.clients):
        inputs, targets = problem.federation.train.of(client)
        assert set(targets) <= {0, 1}
        assert targets.dtype == np.int32
        for vector in (np.zeros(problem.dimension), draws.normal(size=problem.dimension)):
            chance = expit(inputs @ vector)
            hessian = (inputs * (chance * (1 - chance))[:, None]).T @ inputs / len(inputs)
            values = np.linalg.eigvalsh(hessian + problem.l2 * np.eye(problem.dimension))
            assert values[-1] <= problem.smoothness[client] * (1 + 1e-12)
            assert values[0] >= problem.strong_convexity[client] - 1e-12
        # at zero the bound is met exactly: s (1 - s) = 1/4
        at_zero = np.linalg.eigvalsh(inputs.T @ inputs / (4 * len(inputs)))[-1] + problem.l2
        assert at_zero == pytest.approx(problem.smoothness[client])
    assert (problem.component_smoothness >= problem.smoothness - 1e-12).all()
    assert problem.curvature_at_truth > 0


def test_libsvm_like_clients_differ_with_heterogeneity():
    alike = synthetic.logistic_libsvm_like(4, 500, 6, heterogeneity=0.0)
    apart = synthetic.logistic_libsvm_like(4, 500, 6, heterogeneity=2.0)

    def spread(problem):
        means = [problem.federation.train.of(client)[0].mean(axis=0) for client in range(4)]
        return np.std(means, axis=0).mean()

    assert set(np.unique(apart.federation.train.inputs)) == {0.0, 1.0}
    assert spread(apart) > 3 * spread(alike)
    assert alike.l2 == 0.1


def test_test_rows_leave_training_rows_as_they_are():
    for make in (
        lambda rows: unified_problems.logistic_mixture(0.3, clients=3, rows=20, test_rows=rows),
        lambda rows: unified_problems.logistic_weight_sharing(5, clients=3, rows=20, test_rows=rows),
        lambda rows: synthetic.logistic_libsvm_like(3, 20, 4, test_rows=rows),
        lambda rows: afa_problems.bernoulli_means(3, 20, test_rows=rows),
    ):
        without, with_test = make(0).federation, make(7).federation
        np.testing.assert_array_equal(without.train.inputs, with_test.train.inputs)
        np.testing.assert_array_equal(without.train.targets, with_test.train.targets)
        assert without.test.counts.tolist() == [0, 0, 0]
        assert with_test.test.counts.tolist() == [7, 7, 7]
        assert with_test.validation.inputs.shape == (0, *with_test.input_shape)


def test_seeds_decide():
    first, again, other = (synthetic.quadratics(2, 3, seed=seed).optimum for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: synthetic.quadratics(2, 3, (0.0, 1.0)), "positive eigenvalues"),
        (lambda: synthetic.quadratics(2, 4, (1.0, 2.0, 3.0)), "or 4 eigenvalues, got 3"),
        (lambda: synthetic.noisy_quadratics(2, 3, 1), "at least 2 rows"),
    ],
)
def test_wrong_requests_say_the_rule(call, words):
    with pytest.raises(RequestError, match=words):
        call()
