# SPDX-License-Identifier: Apache-2.0
"""Scaffold and FedProx: invariants, fixed points and special cases."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.algorithms import LocalSGD, Scaffold, find
from idiolect.objectives import GlobalModel

# sum_m h_m (w - o_m) = 0 at w = sum h o / sum h = (1 * 0 + 0.2 * 6) / 1.2 = 1
CURVATURES, OPTIMA, OPTIMUM = [[1.0], [0.2]], [[0.0], [6.0]], 1.0


@pytest.mark.parametrize("option", [1, 2])
def test_the_control_is_the_mean_of_all_controls(lab, option):
    client_loss, data, _ = lab.softmax_problem()
    present = np.random.default_rng(2).random((8, 5)) < 0.5
    present[3] = False  # a round from which all clients drop out changes nothing
    present[:, 4] = False  # a client that never takes part
    algorithm = Scaffold(GlobalModel(client_loss), clients=5, option=option, epochs=1, batch_size=2)
    run = lab.simulate(algorithm, data, 8, present=present)
    own = lab.flat_rows(run.states.control)
    assert np.abs(own[:4]).max(axis=1).min() > 1e-3
    assert not own[4].any()
    np.testing.assert_allclose(lab.flat(run.server.control), own.mean(0), atol=1e-15)


def test_scaffold_reaches_the_optimum_that_local_sgd_misses(lab):
    client_loss, data = lab.quadratic_problem(CURVATURES, OPTIMA)
    common = {"step_size": 0.3, "local_steps": 5}
    plain = lab.simulate(LocalSGD(GlobalModel(client_loss), **common), data, 400)
    # K steps pull client m by a_m = 1 - (1 - eta h_m)^K: local SGD stops at sum a o / sum a
    pull = 1 - (1 - 0.3 * np.array([1.0, 0.2])) ** 5
    np.testing.assert_allclose(lab.flat(plain.server.shared), pull[1] * 6 / pull.sum(), rtol=1e-12)
    for option in (1, 2):
        algorithm = Scaffold(GlobalModel(client_loss), clients=2, option=option, **common)
        run = lab.simulate(algorithm, data, 400)
        np.testing.assert_allclose(lab.flat(run.server.shared), OPTIMUM, rtol=1e-12)


def test_fedprox_without_penalty_is_fedavg(lab):
    client_loss, data, _ = lab.softmax_problem()
    ends = []
    for name, extra in (("fedavg", {}), ("fedprox", {"penalty": 0.0})):
        method = find(name)
        algorithm = method.algorithm(GlobalModel(client_loss), local_steps=3, **{**method.preset, **extra})
        ends.append(lab.flat(lab.simulate(algorithm, data, 4).server.shared))
    np.testing.assert_allclose(*ends, rtol=1e-15)


def test_a_huge_penalty_holds_fedprox_at_the_shared_model(lab):
    # eta mu = 1: every step lands at w - eta grad f(w_m), so K steps end one gradient step from w
    client_loss, data = lab.quadratic_problem(CURVATURES, OPTIMA)
    algorithm = LocalSGD(GlobalModel(client_loss), step_size=1e-3, penalty=1e3, local_steps=1)
    far = LocalSGD(GlobalModel(client_loss), step_size=1e-3, penalty=1e3, local_steps=9)
    one, many = (lab.flat(lab.simulate(a, data, 1).server.shared) for a in (algorithm, far))
    # after the first, a step changes the gradient by at most eta h of itself: 1e-3
    np.testing.assert_allclose(many, one, rtol=1.1e-3)
