# SPDX-License-Identifier: Apache-2.0
"""Values and optima of whole objectives against JAX's own loss and gradients, and against published numbers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from idiolect.core.addressing import PerClient, address
from idiolect.core.checks import RequestError
from idiolect.core.data import Batch, Rows
from idiolect.models import MLP, Linear, Location
from idiolect.objectives import APFL2, MAML, MT2, MX2, WS2, Additive, ClientLoss, GlobalModel, LocalOnly, Residual
from idiolect.theory import (
    arrow,
    block_constants,
    client_constants,
    joint_optimum,
    joint_problem,
    local_optima,
    optimal_value,
    shared_optimum,
)
from papers.unified_problems import logistic_mixture, logistic_weight_sharing

FEATURES, CLIENTS = 3, 4
COUNTS = (5, 9, 7, 6)  # clients of different sizes weigh equally
LOSSES = {
    "regression": ClientLoss(model=Linear(FEATURES), criterion="squared", l2=0.2),
    "two_targets": ClientLoss(model=Linear(FEATURES, outputs=2), criterion="squared", l2=0.01),
    "location": ClientLoss(model=Location(FEATURES), criterion="squared", l2=0.1),
    "logistic": ClientLoss(model=Linear(FEATURES), criterion="logistic", l2=1e-2),
    "softmax": ClientLoss(model=Linear(FEATURES, outputs=4), criterion="cross_entropy", l2=1e-2),
}
CASES = {
    "global_model": (GlobalModel, {}),
    "local_only": (LocalOnly, {}),
    "additive": (Additive, {}),
    "mt2": (MT2, {"penalty": 0.7, "relaxation": 2.5}),
    "mx2": (MX2, {"penalty": 0.7}),
    "apfl2": (APFL2, {"relaxation": 1.5, "mixing": PerClient(np.array([0.0, 0.3, 0.6, 0.9]))}),
    "ws2": (WS2, {"personal_part": "*[1:3]"}),
    "residual": (Residual, {"shared_inputs": "0:2", "personal_inputs": "1:"}),
}
PLAIN = ("global_model", "local_only", "additive")


def make_rows(name, seed=0):
    draw = np.random.default_rng(seed)
    total = sum(COUNTS)
    targets = {
        "regression": draw.normal(size=total),
        "two_targets": draw.normal(size=(total, 2)),
        "location": draw.normal(size=(total, FEATURES)),
        "logistic": draw.integers(0, 2, total),
        "softmax": draw.integers(0, 4, total),
    }[name]
    return Rows(draw.normal(size=(total, FEATURES)), targets, np.concatenate([[0], np.cumsum(COUNTS)]))


def make(case, name, **changes):
    kind, given = CASES[case]
    given = dict(given)
    if case == "ws2":  # a bias that is one number cannot be sliced
        given = {
            "personal_part": {"location": "location[1:]", "softmax": "weights[:, 1:3], bias[:2]"}.get(
                name, "weights[1:]"
            )
        }
    if case == "residual" and name == "location":
        given = {}
    return kind(LOSSES[name], **given, **({} if case in PLAIN else {"clients": CLIENTS}), **changes)


def value_and_gradients(objective, rows, shared, personal):
    """F and its gradients by w and by every beta_m, from the loss that is trained."""
    total, by_shared, by_personal = 0.0, [], []
    for client in range(rows.clients):
        own = address(objective, client)
        batch = Batch(*(jnp.asarray(part) for part in rows.of(client)))
        mine = jax.tree.map(lambda leaf, row=client: jnp.asarray(leaf)[row], personal)
        here = jax.tree.map(jnp.asarray, shared)
        total += own.loss(None, here, mine, batch)[0] / rows.clients
        (w_gradient, b_gradient), _ = own.gradients(None, here, mine, batch)
        by_shared.append(_flat(w_gradient) / rows.clients)
        by_personal.append(_flat(b_gradient) / rows.clients)
    return float(total), np.sum(by_shared, axis=0), np.array(by_personal)


def _flat(tree):
    return np.concatenate([np.zeros(0), *(np.ravel(leaf) for leaf in jax.tree.leaves(tree))])


def somewhere(objective, seed=1):
    """A shared block and stacked personal ones."""
    draw = np.random.default_rng(seed)
    shared, personal = objective.init_shared(jax.random.key(0)), objective.init_personal(jax.random.key(0))
    return (
        jax.tree.map(lambda leaf: draw.normal(size=leaf.shape), shared),
        jax.tree.map(lambda leaf: draw.normal(size=(CLIENTS, *leaf.shape)), personal),
    )


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("case", CASES)
def test_value_gradient_and_optimum_are_those_of_the_trained_loss(case, name):
    objective, rows = make(case, name), make_rows(name)
    point = somewhere(objective)
    expected, *gradients = value_and_gradients(objective, rows, *point)
    problem = joint_problem(objective, rows)
    assert problem.value(*point) == pytest.approx(expected, rel=1e-12)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    assert problem.gradient_norm(*point) == pytest.approx(norm, rel=1e-10)
    best = problem.optimum()
    value, *gradients = value_and_gradients(objective, rows, best.shared, best.personal)
    assert np.sqrt(sum((gradient**2).sum() for gradient in gradients)) < 2e-12
    assert best.gradient_norm < 2e-12
    assert best.value == pytest.approx(value, rel=1e-12)
    assert best.value < expected
    assert optimal_value(objective, rows) == best.value


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("case", CASES)
def test_conjugate_gradients_find_the_same_optimum(case, name, monkeypatch):
    objective, rows = make(case, name), make_rows(name)
    factorised = joint_optimum(objective, rows)
    monkeypatch.setattr(arrow, "DENSE_SIZE", 0)
    other = joint_optimum(objective, rows)
    assert other.value == pytest.approx(factorised.value, rel=1e-12)
    assert other.gradient_norm < 1e-11
    for mine, theirs in zip(jax.tree.leaves(other.personal), jax.tree.leaves(factorised.personal), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-8)


@pytest.mark.parametrize("name", ["regression", "logistic"])
@pytest.mark.parametrize("case", [case for case in CASES if case not in PLAIN])
def test_rescaling_changes_the_variable_and_not_the_model(case, name):
    rows = make_rows(name)
    scaled, plain = (joint_optimum(make(case, name, rescale=choice), rows) for choice in (True, False))
    assert scaled.value == pytest.approx(plain.value, rel=1e-13)
    for w, u in zip(jax.tree.leaves(scaled.shared), jax.tree.leaves(plain.shared), strict=True):
        np.testing.assert_allclose(w / np.sqrt(CLIENTS), u, rtol=1e-9, atol=1e-11)
    for one, other in zip(jax.tree.leaves(scaled.personal), jax.tree.leaves(plain.personal), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LOSSES)
def test_the_mixture_averages_and_is_the_objective_of_l2gd(name):
    objective, rows = make("mx2", name), make_rows(name)
    best = joint_optimum(objective, rows)
    for w, beta in zip(jax.tree.leaves(best.shared), jax.tree.leaves(best.personal), strict=True):
        np.testing.assert_allclose(w, np.sqrt(CLIENTS) * beta.mean(axis=0), atol=1e-10)

    # mean f'_m(x_m) + (lam/2) mean |x_m - xbar|^2, from the plain losses
    def l2gd(personal):
        plain = joint_problem(LocalOnly(LOSSES[name]), rows).value((), personal)
        spread = sum(((leaf - leaf.mean(axis=0)) ** 2).sum() / CLIENTS for leaf in jax.tree.leaves(personal))
        return plain + 0.5 * 0.7 * spread

    assert best.value == pytest.approx(l2gd(best.personal), rel=1e-12)
    anywhere = somewhere(objective)[1]
    problem = joint_problem(objective, rows)
    assert problem.value((), anywhere) == pytest.approx(l2gd(anywhere), rel=1e-12)
    assert problem.value((), anywhere) < problem.value(somewhere(objective)[0], anywhere)


@pytest.mark.parametrize("name", LOSSES)
def test_limits_are_the_plain_optima(name):
    rows, loss = make_rows(name), LOSSES[name]
    alone, together = local_optima(loss, rows), shared_optimum(loss, rows)
    own = joint_optimum(MX2(loss, penalty=0.0), rows).personal
    for mine, theirs in zip(jax.tree.leaves(own), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    one = joint_optimum(APFL2(loss, mixing=1.0, relaxation=1.0), rows).shared  # 2 f'(u), beta_m is free
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(mine / np.sqrt(CLIENTS), theirs, atol=1e-9)
    whole = joint_optimum(Additive(loss), rows)
    for w, theta, theirs in zip(*map(jax.tree.leaves, (whole.shared, whole.personal, alone)), strict=True):
        np.testing.assert_allclose(w + theta, theirs, atol=1e-9)


def test_the_optimum_lies_below_everything_around_it_by_the_constants():
    # mu/2 |x - x*|^2 <= F(x) - F*
    for case in ("mt2", "mx2", "apfl2", "ws2"):
        objective, rows = make(case, "regression"), make_rows("regression")
        best, point = joint_optimum(objective, rows), somewhere(objective)
        mu = block_constants(objective, client_constants(objective, rows)).strong_convexity
        pairs = zip(jax.tree.leaves(point), jax.tree.leaves((best.shared, best.personal)), strict=True)
        distance = sum(((a - b) ** 2).sum() for a, b in pairs)
        assert mu > 0
        assert joint_problem(objective, rows).value(*point) - best.value >= 0.5 * mu * distance


def test_least_squares_with_fewer_rows_than_unknowns():
    draw = np.random.default_rng(0)
    rows = Rows(draw.normal(size=(4, 5)), draw.normal(size=4), np.array([0, 2, 4]))
    loss = ClientLoss(model=Linear(5, bias=False), criterion="squared")
    for objective in (LocalOnly(loss), Additive(loss), WS2(loss, personal_part="weights[3:]"), MX2(loss, penalty=0.3)):
        best = joint_optimum(objective, rows)
        assert best.gradient_norm < 1e-11
        assert np.abs(_flat(best.personal)).max() < 50
    assert joint_optimum(LocalOnly(loss), rows).value == pytest.approx(0.0, abs=1e-12)  # two rows, five unknowns


# solved by a separate program: F* of the synthetic problems of Unified 2023
@pytest.mark.parametrize(
    ("heterogeneity", "value", "error"), [(0.1, 0.275408, 12.42), (0.3, 0.340562, 16.45), (1.0, 0.280405, 72.26)]
)
def test_optimum_of_the_synthetic_mixture(heterogeneity, value, error):
    problem = logistic_mixture(heterogeneity)
    loss = ClientLoss(model=Linear(15, bias=False), criterion="logistic")
    best = joint_optimum(MX2(loss, penalty=0.01 / heterogeneity), problem.federation.train)
    assert best.value == pytest.approx(value, abs=6e-7)
    assert ((best.personal["weights"] - problem.truth) ** 2).sum() == pytest.approx(error, abs=0.006)
    assert best.gradient_norm < 1e-11


@pytest.mark.parametrize(("heterogeneity", "value"), [(5.0, 0.583665), (10.0, 0.440731), (15.0, 0.339393)])
def test_optimum_of_the_synthetic_weight_sharing(heterogeneity, value):
    problem = logistic_weight_sharing(heterogeneity)
    loss = ClientLoss(model=Linear(15, bias=False), criterion="logistic")
    objective = WS2(loss, personal_part="weights[10:]")
    best = joint_optimum(objective, problem.federation.train)
    assert best.value == pytest.approx(value, abs=6e-7)
    assert best.shared["weights"].shape == (10,)
    assert best.personal["weights"].shape == (20, 5)
    whole = joint_problem(objective, problem.federation.train)
    start = whole.value({"weights": np.zeros(10)}, {"weights": np.zeros((20, 5))})
    assert start == pytest.approx(np.log(2.0), rel=1e-12)


@pytest.mark.parametrize("case", ["mx2", "ws2", "apfl2", "mt2", "residual", "additive", "local_only"])
def test_separable_rows_without_l2_have_no_optimum(case):
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(40, FEATURES))
    labels = (inputs[:, 1] > 0).astype(int)  # one plane separates every client's rows
    rows = Rows(inputs, labels, np.arange(5) * 10)
    loss = ClientLoss(model=Linear(FEATURES), criterion="logistic")
    kind, given = CASES[case]
    given = {"personal_part": "weights[1:]"} if case == "ws2" else given
    objective = kind(loss, **given)
    assert joint_optimum(objective, rows) is None
    ridged = dataclasses.replace(objective, client_loss=dataclasses.replace(loss, l2=1e-3))
    assert joint_optimum(ridged, rows) is not None


def test_whether_there_is_an_optimum_is_told_as_a_linear_program_tells_it():
    # there is none exactly where some v has sign * x . v >= 0 for every row and > 0 for one
    loss = ClientLoss(model=Linear(2, bias=False), criterion="logistic")
    answers = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        size = 10.0 ** draw.integers(-2, 3)  # neither answer may depend on the unit of the features
        inputs = np.round(draw.normal(size=(8, 2)), 1) * size
        labels = (draw.uniform(size=8) < 1 / (1 + np.exp(-4 * inputs[:, 0] / size))).astype(int)
        signed = (2 * labels - 1)[:, None] * inputs
        best = linprog(-signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(8), bounds=[(-1, 1)] * 2)
        answers.append(best.fun > -1e-9 * size)
        found = joint_optimum(LocalOnly(loss), Rows(inputs, labels, np.array([0, 8])))
        assert (found is not None) == answers[-1], seed
    assert 5 < sum(answers) < 35


def test_softmax_without_l2_has_a_flat_direction_and_yet_an_optimum():
    loss = ClientLoss(model=Linear(FEATURES, outputs=3), criterion="cross_entropy")
    draw = np.random.default_rng(0)
    rows = Rows(draw.normal(size=(90, FEATURES)), draw.integers(0, 3, 90), np.arange(4) * 30)
    for objective in (MX2(loss, penalty=0.1), WS2(loss, personal_part="bias"), GlobalModel(loss)):
        best = joint_optimum(objective, rows)
        assert best.gradient_norm < 1e-11
        assert best.value < np.log(3.0)


def test_an_optimum_that_cannot_be_reached_is_refused(monkeypatch):
    monkeypatch.setattr(arrow, "NEWTON_STEPS", 1)
    with pytest.raises(RequestError, match=r"gradient norm of .* Raise l2 \(now 0.01\) or scale the features"):
        joint_optimum(make("mx2", "logistic"), make_rows("logistic"))


def test_nothing_is_known_of_other_objectives_and_models():
    rows = make_rows("regression")
    assert joint_problem(MAML(LOSSES["regression"]), rows) is None
    assert joint_optimum(MX2(ClientLoss(model=MLP(FEATURES, 4))), rows) is None
    assert optimal_value(MAML(LOSSES["regression"]), rows) is None
