# SPDX-License-Identifier: Apache-2.0
"""Theorem 4 of Scafflix 2023, exactly: the expectation over the coin and over components by enumeration; its constants.

A one-row view of a client's data makes every draw pick that row, as in test_block_descent_rates.py.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.scafflix import Broadcast, ClientState, Scafflix, ServerState, Working
from idiolect.algorithms.schedule import no_rows
from idiolect.core.addressing import PerClient, address, axes
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import root_key
from idiolect.experiments.build import build_method
from idiolect.experiments.known_optimum import optimum_measure
from idiolect.experiments.spec import MethodSpec, Resolved
from idiolect.experiments.strict import fill
from idiolect.models import Linear
from idiolect.objectives import FLIX, ClientLoss, GlobalModel
from idiolect.objectives.flix import Prepared
from idiolect.theory import (
    block_constants,
    client_constants,
    from_theory,
    joint_problem,
    local_optima,
    predict,
    scafflix,
)

CLIENTS, ROWS, FEATURES = 3, 2, 2
NAMES = ("one", "two", "three")


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def least_squares(seed, clients=CLIENTS, rows=ROWS, features=FEATURES):
    draw = np.random.default_rng(seed)
    inputs = draw.normal(size=(clients, rows, features)) * draw.uniform(0.3, 2, size=(clients, 1, features))
    targets = 3 * draw.normal(size=(clients, rows))
    alpha = draw.uniform(0.1, 1, clients)
    loss = ClientLoss(model=Linear(features, 0, bias=False), criterion="squared", l2=0.1)
    rows = Rows(inputs.reshape(-1, features), targets.ravel(), np.arange(clients + 1) * rows)
    return FLIX(loss, personalization=PerClient(alpha)), rows


def device(rows):
    return jax.tree.map(jnp.asarray, rows.pad(np.arange(rows.clients)))


def one_row(data, rows):
    """Every client with the one chosen row."""
    rows, every = jnp.asarray(rows), jnp.arange(data.count.shape[0])
    return ClientData(data.inputs[every, rows][:, None], data.targets[every, rows][:, None], jnp.ones_like(data.count))


@jax.jit
def outcome(algorithm, iterates, control, prepared, view):
    """(x, h) after an iteration of coin 0, and after one of coin 1."""
    key, clients = root_key(0), jnp.arange(view.count.shape[0])
    own, own_axes = address(algorithm, clients), axes(algorithm)
    working = Working(iterates, control, prepared, no_rows(algorithm.batch_size))
    row_axes = Working(0, 0, 0, None)

    def local(mine, work, rows):
        return mine.step(key, 0, None, work, rows)[0].iterate

    def exchange(mine, work, rows):
        return mine.send(key, None, work, ClientState((), work.control, ()), rows)[0]

    quiet = jax.vmap(local, in_axes=(own_axes, row_axes, 0))(own, working, view), control
    uploads = jax.vmap(exchange, in_axes=(own_axes, row_axes, 0))(own, working, view)
    reduction = algorithm.reduction
    received = reduction.lower(reduction.collect(uploads, clients, jnp.ones(len(clients), bool)))
    mean = algorithm.server_step(key, ServerState(received.mean.iterate), None, received).shared
    states = ClientState(uploads.iterate, control, ())
    settled = jax.vmap(lambda mine, state: mine.settle(key, Broadcast(mean, 0), state, None), in_axes=(own_axes, 0))(
        own, states
    )
    return quiet, (settled.iterate, settled.control)


def stacked(values):
    return {"weights": jnp.asarray(values)}


def psi_of(objective, at, algorithm, gamma):
    alpha, solution = np.asarray(objective.personalization.values), at.shared["weights"]

    def psi(x, h):
        distances = (alpha[:, None] * (np.asarray(x["weights"]) - solution)) ** 2
        errors = (np.asarray(h["weights"]) - at.gradients[..., 0]) ** 2
        chance = float(algorithm.communication_probability)
        # mean (gmin/gamma_m) |xt_m - xt*_m|^2 + (gmin/p^2) mean gamma_m |h_m - grad f'_m(xt*_m)|^2
        return gamma.min() * (np.mean(distances.sum(1) / gamma) + np.mean(gamma * errors.sum(1)) / chance**2)

    return psi


@pytest.mark.parametrize("batch_size", [0, 1])
def test_one_iteration_shrinks_psi_as_theorem_4_says(batch_size):
    worst = 0.0
    for seed in range(25):
        objective, rows = least_squares(seed)
        own, data, draw = client_constants(objective, rows), device(rows), np.random.default_rng(100 + seed)
        algorithm, _ = from_theory(
            ALGORITHMS["scafflix"].theory, Scafflix(objective, clients=CLIENTS, batch_size=batch_size), own, float(ROWS)
        )
        gamma = np.asarray(algorithm.local_step.values)
        if seed % 2:  # smaller steps and another p are covered too
            gamma, p = gamma * draw.uniform(0.2, 1, CLIENTS), float(draw.uniform(0.1, 1))
            algorithm = dataclasses.replace(
                algorithm, local_step=PerClient(jnp.asarray(gamma)), communication_probability=p
            )
        p = float(algorithm.communication_probability)
        at = scafflix.solution(objective, rows)
        terms = scafflix.noise_constants(objective, rows, batch_size)
        psi = psi_of(objective, at, algorithm, gamma)
        alpha = np.asarray(objective.personalization.values)
        x = at.shared["weights"] + draw.normal(size=(CLIENTS, FEATURES)) * 10 ** draw.uniform(-3, 0)
        h = at.gradients[..., 0] + draw.normal(size=(CLIENTS, FEATURES)) * 10 ** draw.uniform(-3, 0)
        h -= np.outer(alpha / gamma, alpha @ h) / (alpha @ (alpha / gamma))  # sum alpha h = 0, as the theorem needs
        prepared = Prepared(stacked(local_optima(objective, rows)["weights"]), jnp.ones(CLIENTS, bool))
        choices = list(itertools.product(range(ROWS), repeat=CLIENTS))
        views = [data] if batch_size == 0 else [one_row(data, chosen) for chosen in choices]
        expected = 0.0
        for view in views:
            quiet, loud = outcome(algorithm, stacked(x), stacked(h), prepared, view)
            expected += ((1 - p) * psi(*quiet) + p * psi(*loud)) / len(views)
        zeta = scafflix.contraction(gamma, own, alpha, p)
        bound = (1 - zeta) * psi(stacked(x), stacked(h)) + gamma.min() * np.mean(gamma * terms)
        worst = max(worst, expected / bound)
        assert expected <= bound * (1 + 1e-12)
    assert worst > (0.9 if batch_size == 0 else 0.5)  # and it is not far from that


def test_larger_steps_break_the_inequality():
    """The test above can fail: at 2.5/L one iteration makes Psi larger."""
    objective, rows = least_squares(0)
    own = client_constants(objective, rows)
    algorithm = Scafflix(
        objective, clients=CLIENTS, local_step=PerClient(2.5 / own.client_smoothness), communication_probability=0.5
    )
    at, gamma = scafflix.solution(objective, rows), 2.5 / own.client_smoothness
    psi = psi_of(objective, at, algorithm, gamma)
    worst = [np.linalg.eigh(rows.of(m)[0].T @ rows.of(m)[0])[1][:, -1] for m in range(CLIENTS)]
    x, h = at.shared["weights"] + np.array(worst), at.gradients[..., 0]
    prepared = Prepared(stacked(local_optima(objective, rows)["weights"]), jnp.ones(CLIENTS, bool))
    quiet, _ = outcome(algorithm, stacked(x), stacked(h), prepared, device(rows))
    assert psi(*quiet) > 2 * psi(stacked(x), stacked(h))


def test_constants_of_flix_bound_its_hessian():
    objective, rows = least_squares(3)
    own = client_constants(objective, rows)
    blocks = block_constants(objective, own)
    alpha = np.asarray(objective.personalization.values)
    hessians = [rows.of(m)[0].T @ rows.of(m)[0] / ROWS + 0.1 * np.eye(FEATURES) for m in range(CLIENTS)]
    spectrum = np.linalg.eigvalsh(sum(a**2 * h for a, h in zip(alpha, hessians)) / CLIENTS)
    assert blocks.strong_convexity <= spectrum[0] <= spectrum[-1] <= blocks.shared_smoothness
    assert blocks.personal_smoothness == 0
    assert blocks.shared_smoothness == pytest.approx(np.mean(alpha**2 * own.client_smoothness))
    assert blocks.component_shared_smoothness == pytest.approx(np.mean(alpha**2 * own.client_component_smoothness))


@pytest.mark.parametrize("shares", [(0.9, 0.2, 0.5), (1.0, 0.0, 0.3), (1e-4, 1e-4, 2e-4)])
def test_the_joint_optimum_solves_the_normal_equations(shares):
    objective, rows = least_squares(4)
    objective = dataclasses.replace(objective, personalization=PerClient(np.array(shares)))
    alpha = np.array(shares)
    hessians = np.array([rows.of(m)[0].T @ rows.of(m)[0] / ROWS + 0.1 * np.eye(FEATURES) for m in range(CLIENTS)])
    gradients = np.array([rows.of(m)[0].T @ rows.of(m)[1] / ROWS for m in range(CLIENTS)])
    own = np.linalg.solve(hessians, gradients[..., None])[..., 0]
    # sum_m alpha_m H_m (alpha_m w + (1 - alpha_m) x*_m - x*_m) = 0
    weighted = alpha[:, None, None] ** 2 * hessians
    expected = np.linalg.solve(weighted.sum(0), (weighted @ own[..., None]).sum(0))[:, 0]
    problem = joint_problem(objective, rows)
    best = problem.optimum()
    np.testing.assert_allclose(best.shared["weights"], expected, rtol=1e-9)
    mixed = alpha[:, None] * expected + (1 - alpha[:, None]) * own
    values = [
        0.5 * np.mean((rows.of(m)[0] @ mixed[m] - rows.of(m)[1]) ** 2) + 0.05 * mixed[m] @ mixed[m]
        for m in range(CLIENTS)
    ]
    assert best.value == pytest.approx(np.mean(values), rel=1e-12)
    assert optimum_measure(objective, rows) is not None


def test_parameters_follow_the_theorem():
    objective, rows = least_squares(5)
    own = client_constants(objective, rows)
    smooth, component, mu = own.client_smoothness, own.client_component_smoothness, own.client_strong_convexity
    blank = Scafflix(objective, clients=CLIENTS)

    def chosen(name, **changes):
        found, advice = from_theory(ALGORITHMS[name].theory, dataclasses.replace(blank, **changes), own, float(ROWS))
        step = found.local_step.values if isinstance(found.local_step, PerClient) else found.local_step
        return np.asarray(step), float(found.communication_probability), advice

    step, p, advice = chosen("scafflix")
    np.testing.assert_allclose(step, 1 / smooth)
    assert p == pytest.approx(1 / np.sqrt((smooth / mu).max()))
    assert "theorem 4" in advice.explanation()
    assert " to " in advice.explanation()
    step, p, _ = chosen("scaffnew")
    assert float(step) == pytest.approx(1 / smooth.max())
    assert p == pytest.approx(np.sqrt(mu.min() / smooth.max()))
    step, p, _ = chosen("scafflix", batch_size=1)  # single rows: A = 2 Lc
    np.testing.assert_allclose(step, 1 / (2 * component))
    assert p == pytest.approx(np.sqrt((mu / (2 * component)).min()))
    step, _, _ = chosen("scafflix", batch_size=8)
    np.testing.assert_allclose(step, 1 / (2 * component / 8 + 0.75 * smooth))
    step, p, _ = chosen("flix_gd", communication_probability=1.0)
    np.testing.assert_allclose(step, 1 / smooth)
    assert p == 1
    # corollary 6, with noise of variance C = noise^2 added to exact gradients
    step, p, _ = chosen("scafflix", noise=2.0, target_accuracy=0.1)
    np.testing.assert_allclose(step, np.minimum(1 / smooth, 0.1 * mu.min() / (2 * 4.0)))
    assert p == pytest.approx(np.sqrt((step * mu).min()))
    # and of single rows: the variance at the mixed optimum, doubled
    step, _, _ = chosen("scafflix", batch_size=1, target_accuracy=0.1)
    at = scafflix.solution(objective, rows)
    for m in range(CLIENTS):
        x, y = rows.of(m)
        each = x * (x @ at.models["weights"][m] - y)[:, None]
        variance = ((each - each.mean(0)) ** 2).sum(1).mean()
        assert step[m] == pytest.approx(min(1 / (2 * component[m]), 0.1 * mu.min() / (4 * variance)))


def test_clients_that_never_take_part_decide_nothing():
    objective, rows = least_squares(5)
    shares = np.array([0.0, 0.5, 0.7])
    objective = dataclasses.replace(objective, personalization=PerClient(shares))
    own = client_constants(objective, rows)
    found, _ = from_theory(ALGORITHMS["scafflix"].theory, Scafflix(objective, clients=CLIENTS), own, float(ROWS))
    kappa = (own.client_smoothness / own.client_strong_convexity)[1:].max()
    assert float(found.communication_probability) == pytest.approx(kappa**-0.5)
    assert scafflix.contraction(found.local_step.values, own, shares, 1.0) == pytest.approx(1 / kappa)


def test_a_step_beyond_the_theorem_earns_a_warning():
    objective, rows = least_squares(6)
    own = client_constants(objective, rows)
    steps = 1 / own.client_smoothness
    steps[1] *= 1.5
    algorithm = Scafflix(objective, clients=CLIENTS, local_step=PerClient(steps), communication_probability=0.3)
    _, advice = from_theory(ALGORITHMS["scafflix"].theory, algorithm, own, float(ROWS))
    (sentence,) = advice.warnings
    assert sentence.startswith(
        f"local_step {steps[1]:.3g} of client number 1 is above {1 / own.client_smoothness[1]:.3g}, from 1/L_m"
    )
    assert "Scafflix 2023, theorem 4" in sentence
    _, fine = from_theory(
        ALGORITHMS["scafflix"].theory, dataclasses.replace(algorithm, local_step=0.9 * steps.min()), own, float(ROWS)
    )
    assert fine.warnings == ()


def test_theory_without_strong_convexity_says_what_to_do():
    loss = ClientLoss(model=Linear(FEATURES, 0, bias=False), criterion="logistic")
    rows = Rows(np.random.default_rng(0).normal(size=(6, 2)), np.array([0, 1] * 3), np.array([0, 3, 6]))
    own = client_constants(loss, rows)
    with pytest.raises(RequestError, match=r"strongly convex, and mu' = 0 here .*; set model\.l2, or communication"):
        from_theory(ALGORITHMS["i_scaffnew"].theory, Scafflix(GlobalModel(loss), clients=2), own, 3.0)
    told, _ = from_theory(
        ALGORITHMS["i_scaffnew"].theory, Scafflix(GlobalModel(loss), clients=2, communication_probability=0.2), own, 3.0
    )
    np.testing.assert_allclose(told.local_step.values, 1 / own.client_smoothness)


def test_a_singular_local_problem_is_named_with_the_way_out():
    inputs = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0], [2.0, 4.0]])  # the second client sees one direction only
    rows = Rows(inputs, np.ones(4), np.array([0, 2, 4]))
    loss = ClientLoss(model=Linear(2, 0, bias=False), criterion="squared")
    build = functools.partial(build_method, clients=2, rows=2.0, names=NAMES)
    settings = {"local_step": 0.1, "communication_probability": 0.5}
    with pytest.raises(RequestError, match=r"^Client 'two' has no unique optimum .*; give l2 a value above 0"):
        build(MethodSpec("a", "scafflix", None, settings), loss, client_constants(loss, rows))
    # one model for all needs none, nor does a ridge leave any freedom
    build(
        MethodSpec("a", "scafflix", None, settings | {"personalization": [0.5, 1.0]}),
        loss,
        client_constants(loss, rows),
    )
    ridge = dataclasses.replace(loss, l2=0.1)
    build(MethodSpec("a", "scafflix", None, settings), ridge, client_constants(ridge, rows))
    softmax = ClientLoss(model=Linear(2, 3), criterion="cross_entropy")
    with pytest.raises(RequestError, match="Client 'one' has no unique optimum"):
        build(
            MethodSpec("a", "scafflix", None, settings),
            softmax,
            client_constants(softmax, Rows(inputs, np.array([0, 1, 2, 0]), rows.offsets)),
        )


def test_a_list_of_the_wrong_length_is_refused():
    objective, rows = least_squares(5)
    with pytest.raises(RequestError, match=r"personalization must be one number or have an entry for each of the 3"):
        build_method(
            MethodSpec("a", "scafflix", None, {"personalization": [0.5, 0.5]}),
            objective.client_loss,
            client_constants(objective, rows),
            3,
            2.0,
        )
    built = build_method(
        MethodSpec("a", "scafflix", None, {"personalization": [0.5, 0.5, 1.0]}),
        objective.client_loss,
        client_constants(objective, rows),
        3,
        2.0,
    )
    steps = built.chosen["local_step"]
    assert len(steps) == 3  # as a spec can hold it
    resolved = fill(Resolved, {"executor": "batched", "chunk": 0, "block": 1, "chosen": built.chosen}, "resolved")
    again = build_method(
        MethodSpec("a", "scafflix", None, {"personalization": [0.5, 0.5, 1.0]}),
        objective.client_loss,
        client_constants(objective, rows),
        3,
        2.0,
        resolved.chosen,
    )
    np.testing.assert_array_equal(again.algorithm.local_step.values, built.algorithm.local_step.values)


def test_local_sgd_on_flix_steps_by_the_mixed_curvature():
    objective, rows = least_squares(5)
    own = client_constants(objective, rows)
    alpha = np.asarray(objective.personalization.values)
    found, advice = from_theory(
        ALGORITHMS["flix_sgd"].theory, LocalSGD(objective, clients=3), own, 2.0, wanted=["step_size"]
    )
    assert found.step_size == pytest.approx(1 / (alpha**2 * own.client_smoothness).max())
    assert advice.warnings == ()


def test_what_is_promised():
    objective, rows = least_squares(7)
    own = client_constants(objective, rows)
    blocks = block_constants(objective, own)
    found, _ = from_theory(ALGORITHMS["scafflix"].theory, Scafflix(objective, clients=CLIENTS), own, float(ROWS))
    p, zeta = float(found.communication_probability), float(found.communication_probability) ** 2
    promise = predict(ALGORITHMS["scafflix"].theory, found, own, blocks, float(ROWS), 1e-8)
    assert promise.cost.rounds == pytest.approx(p * promise.iterations)
    assert promise.cost.full_shared_gradients == promise.iterations
    # Psi^0/(2 gmin) over the gap at zero, both written out
    alpha, at = np.asarray(objective.personalization.values), scafflix.solution(objective, rows)
    gamma = 1 / own.client_smoothness
    w = at.shared["weights"]
    start = np.mean(alpha**2 / gamma) * w @ w + np.mean(gamma * (at.gradients[..., 0] ** 2).sum(1)) / p**2
    problem = joint_problem(objective, rows)
    gap = problem.value({"weights": np.zeros(FEATURES)}, ()) - at.value
    assert promise.iterations == np.ceil(np.log(start / (2 * gap) / 1e-8) / -np.log1p(-zeta))
    # where rows are not known, what h = 0 adds is left out
    unseen = predict(
        ALGORITHMS["scafflix"].theory, found, dataclasses.replace(own, rows=None), blocks, float(ROWS), 1e-8
    )
    assert unseen.iterations == np.ceil(np.log(1 / zeta / 1e-8) / -np.log1p(-zeta))
    drawn = dataclasses.replace(found, batch_size=1)
    assert predict(ALGORITHMS["scafflix"].theory, drawn, own, blocks, float(ROWS), 1e-8) is None  # it stops at a floor
    descent = dataclasses.replace(found, communication_probability=1.0)
    steps = predict(ALGORITHMS["flix_gd"].theory, descent, own, blocks, float(ROWS), 1e-8)
    assert steps.iterations == steps.cost.rounds
    assert steps.iterations == np.ceil(np.log(1e8) / -np.log1p(-blocks.strong_convexity / blocks.shared_smoothness))
