# SPDX-License-Identifier: Apache-2.0
"""Constants of the objectives of Unified 2023 against eigenvalues of the Hessian that JAX finds in F itself."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from idiolect.core.addressing import PerClient, address
from idiolect.core.data import Batch, Rows
from idiolect.models import MLP, Linear, Location
from idiolect.objectives import APFL2, MAML, MT2, MX2, WS2, Additive, ClientLoss, GlobalModel, LocalOnly, Residual
from idiolect.theory import block_constants, client_constants, condition, table_constants

FEATURES, CLIENTS, ROWS = 4, 3, 9
LOSSES = {
    "squared": ClientLoss(model=Linear(FEATURES), criterion="squared", l2=0.1),
    "bare": ClientLoss(model=Linear(FEATURES, bias=False), criterion="squared"),
    "logistic": ClientLoss(model=Linear(FEATURES, bias=False), criterion="logistic", l2=0.05),
}
MIXING = PerClient(np.array([0.1, 0.4, 0.7]))
CASES = {
    "mt2": (MT2, {"penalty": 0.3, "relaxation": 20.0}),
    "mt2_condition_broken": (MT2, {"penalty": 0.5, "relaxation": 1.0}),
    "mt2_without_penalty": (MT2, {"penalty": 0.0, "relaxation": 0.5}),
    "mx2": (MX2, {"penalty": 1.0}),
    "mx2_condition_broken": (MX2, {"penalty": 0.02}),
    "apfl2": (APFL2, {"relaxation": 1.0, "mixing": 0.4}),
    "apfl2_condition_broken": (APFL2, {"relaxation": 0.05, "mixing": 0.5}),
    "apfl2_each_its_own": (APFL2, {"relaxation": 1.0, "mixing": MIXING}),
    "ws2": (WS2, {"personal_part": "weights[2:]"}),
    "residual": (Residual, {"shared_inputs": "0:3", "personal_inputs": "3:"}),
    "residual_overlapping": (Residual, {"shared_inputs": "0:3", "personal_inputs": "1:"}),
    "global_model": (GlobalModel, {}),
    "local_only": (LocalOnly, {}),
    "additive": (Additive, {}),
}
PLAIN = ("global_model", "local_only", "additive")


def make(name, loss, rescale=True, clients=CLIENTS):
    kind, given = CASES[name]
    return kind(loss, **given, **({} if name in PLAIN else {"clients": clients, "rescale": rescale}))


def make_rows(loss, seed):
    draw = np.random.default_rng(seed)
    total = CLIENTS * ROWS
    inputs = draw.normal(size=(total, FEATURES)) * draw.uniform(0.3, 1.5, FEATURES)
    targets = draw.normal(size=total) if loss.criterion == "squared" else draw.integers(0, 2, total)
    return Rows(inputs, targets, np.arange(CLIENTS + 1) * ROWS)


def hessian_of(objective, clients=CLIENTS):
    """A function of stacked data: Hessian of F(w, beta_1..beta_M) at zero, and the number of shared parameters."""
    blocks = objective.init_shared(jax.random.key(0)), objective.init_personal(jax.random.key(0))
    (w, b), (to_w, to_b) = zip(
        *(ravel_pytree(block) if jax.tree.leaves(block) else (np.zeros(0), None) for block in blocks)
    )
    read = [(lambda flat, to=to: to(flat) if to else ()) for to in (to_w, to_b)]

    def mean(flat, inputs, targets):
        each = flat[w.size :].reshape(clients, b.size)
        own = [address(objective, client) for client in range(clients)]
        points = [(read[0](flat[: w.size]), read[1](each[client])) for client in range(clients)]
        terms = [own[m].loss(None, *points[m], Batch(inputs[m], targets[m]))[0] for m in range(clients)]
        return sum(terms) / clients

    hessian = jax.jit(jax.hessian(mean))
    return (lambda *data: np.asarray(hessian(jnp.zeros(w.size + clients * b.size), *data))), w.size


def stacked(rows):
    shapes = (CLIENTS, ROWS, FEATURES), (CLIENTS, ROWS)
    return [jnp.asarray(part.reshape(shape)) for part, shape in zip((rows.inputs, rows.targets), shapes)]


def of_one_row(rows):
    """Every client has its first row alone, so often that the program is the same."""
    return [jnp.repeat(part[:, :1], ROWS, axis=1) for part in stacked(rows)]


def top(matrix):
    return np.linalg.eigvalsh(matrix)[-1] if matrix.size else 0.0


@pytest.mark.parametrize(
    ("name", "loss", "rescale"),
    [(name, loss, True) for name in CASES for loss in ("squared", "logistic")]
    + [(name, "bare", False) for name in CASES if name not in PLAIN],
)
def test_constants_bound_the_hessian_of_the_mean(name, loss, rescale):
    objective = make(name, LOSSES[loss], rescale)
    hessian, split = hessian_of(objective)
    for seed in range(3):
        rows = make_rows(LOSSES[loss], seed)
        blocks = block_constants(objective, client_constants(objective, rows))
        whole = hessian(*stacked(rows))
        assert np.linalg.eigvalsh(whole)[0] >= blocks.strong_convexity - 1e-12
        assert top(whole[:split, :split]) <= blocks.shared_smoothness + 1e-12
        assert top(whole[split:, split:]) <= blocks.personal_smoothness + 1e-12
        one_row = hessian(*of_one_row(rows))
        assert top(one_row[:split, :split]) <= blocks.component_shared_smoothness + 1e-12
        assert top(one_row[split:, split:]) <= blocks.component_personal_smoothness + 1e-12


@pytest.mark.parametrize("loss", ["squared", "bare"])
def test_blocks_of_one_model_are_exact(loss):
    # the beta_m do not mix: L^beta is attained by the worst client; so is L^w where only one client is left
    for name in ("ws2", "residual"):
        objective = make(name, LOSSES[loss])
        rows = make_rows(LOSSES[loss], 0)
        blocks = block_constants(objective, client_constants(objective, rows))
        hessian, split = hessian_of(objective)
        assert top(hessian(*stacked(rows))[split:, split:]) == pytest.approx(blocks.personal_smoothness, rel=1e-10)
        own = client_constants(objective, rows)
        assert blocks.shared_smoothness < own.smoothness / CLIENTS  # fewer columns, less curvature
        single = Rows(rows.inputs[:ROWS], rows.targets[:ROWS], np.array([0, ROWS]))
        alone = make(name, LOSSES[loss], clients=1)
        hessian, split = hessian_of(alone, clients=1)
        found = hessian(jnp.asarray(single.inputs)[None], jnp.asarray(single.targets)[None])
        known = block_constants(alone, client_constants(alone, single))
        assert top(found[:split, :split]) == pytest.approx(known.shared_smoothness, rel=1e-10)
        if name == "residual" and loss == "bare":
            assert np.linalg.eigvalsh(found)[0] == pytest.approx(known.strong_convexity, rel=1e-8)


def scalar_problem(curvature, clients=10):
    """f'_m(v) = (curvature/2) v^2 in one dimension."""
    rows = Rows(np.full((clients, 1), np.sqrt(curvature)), np.zeros((clients, 1)), np.arange(clients + 1))
    return ClientLoss(model=Location(1), criterion="squared"), rows


def scalar_hessian(objective, rows):
    hessian, split = hessian_of(objective, rows.clients)
    data = jnp.asarray(rows.inputs)[:, None], jnp.asarray(rows.targets)[:, None]
    return hessian(*data), split


def test_the_printed_constants_of_mt2_are_no_bounds():
    loss, rows = scalar_problem(1.0)
    objective = MT2(loss, penalty=0.5, relaxation=2.0, clients=10)
    whole, split = scalar_hessian(objective, rows)
    found = top(whole[:split, :split]), top(whole[split:, split:])
    # E002-7: (Lam L' + lam)/(2M) and (L' + lam)/(2M) are half of what is there
    assert found[0] == pytest.approx(2.5 / 10)
    assert found[0] > 1.9 * 2.5 / 20
    assert found[1] == pytest.approx(1.5 / 10)
    assert found[1] > 1.9 * 1.5 / 20
    blocks = block_constants(objective, client_constants(loss, rows))
    assert (blocks.shared_smoothness, blocks.personal_smoothness) == pytest.approx(found)


def test_mu_of_mt2_is_tight_without_curvature_of_its_own():
    # Lam mu' = 3 lam/2 and mu' -> 0: the smallest eigenvalue of [[5/2, -1], [-1, 1]] lam/M is lam/(2M)
    loss, rows = scalar_problem(1e-6)
    objective = MT2(loss, penalty=1.0, relaxation=1.5e6, clients=10)
    blocks = block_constants(objective, client_constants(loss, rows))
    assert blocks.strong_convexity == 0.05
    assert np.linalg.eigvalsh(scalar_hessian(objective, rows)[0])[0] == pytest.approx(0.05, rel=1e-5)


def test_the_printed_mu_of_apfl2_is_impossible():
    loss, rows = scalar_problem(1.0)
    objective = APFL2(loss, relaxation=3.0, mixing=0.4, clients=10)  # 3 a^2 + (1-a)^2/2 = 0.66 <= 3: as the paper asks
    least = np.linalg.eigvalsh(scalar_hessian(objective, rows)[0])[0]
    printed = 0.6**2 / 10
    assert least < 0.98 * printed
    assert block_constants(objective, client_constants(loss, rows)).strong_convexity == pytest.approx(printed / 2)
    assert least >= printed / 2


def test_the_printed_constants_of_ws2_are_m_times_too_large():
    rows = Rows(np.tile(np.eye(2), (10, 1)) * np.sqrt(2.0), np.zeros(20), np.arange(11) * 2)  # every Hessian is I
    loss = ClientLoss(model=Linear(2, bias=False), criterion="squared")
    objective = WS2(loss, personal_part="weights[1:]", clients=10)
    hessian, split = hessian_of(objective, 10)
    whole = hessian(jnp.asarray(rows.inputs).reshape(10, 2, 2), jnp.zeros((10, 2)))
    blocks = block_constants(objective, client_constants(loss, rows))
    assert np.linalg.eigvalsh(whole)[0] == pytest.approx(0.1) == blocks.strong_convexity  # printed: 1
    assert top(whole[:split, :split]) == pytest.approx(0.1) == blocks.shared_smoothness
    assert top(whole[split:, split:]) == pytest.approx(0.1) == blocks.personal_smoothness


@pytest.mark.parametrize(
    ("kind", "kept", "broken"),
    [
        (MT2, {"penalty": 0.5, "relaxation": 0.75}, {"penalty": 0.5, "relaxation": 0.74}),  # 3 * 0.5 / 2 = 0.75
        (MX2, {"penalty": 2.0}, {"penalty": 1.9}),  # mu' = 1 <= lam/2
        (APFL2, {"mixing": 0.4, "relaxation": 0.34}, {"mixing": 0.4, "relaxation": 0.33}),  # 0.16 + 0.36/2
    ],
)
def test_beyond_the_condition_the_2_by_2_bound_is_attained(kind, kept, broken):
    loss, rows = scalar_problem(1.0)
    own = client_constants(loss, rows)
    inside, outside = kind(loss, clients=10, **kept), kind(loss, clients=10, **broken)
    assert condition(inside, own) is None
    assert block_constants(inside, own) == table_constants(inside, own)
    sentence = condition(outside, own)
    assert sentence.startswith(f"{kind.__name__}.")
    assert "must be at least" in sentence
    assert sentence.endswith("Raise it, or go on with the smaller mu that holds without it.")
    least = np.linalg.eigvalsh(scalar_hessian(outside, rows)[0])[0]
    blocks = block_constants(outside, own)
    assert blocks.strong_convexity == pytest.approx(least, rel=1e-10)
    assert "2 x 2" in blocks.source
    assert dataclasses.replace(blocks, strong_convexity=0.0, source="") == dataclasses.replace(
        table_constants(outside, own), strong_convexity=0.0, source=""
    )
    free = dataclasses.replace(outside, rescale=False)  # the same mu still bounds F without rescaling
    assert np.linalg.eigvalsh(scalar_hessian(free, rows)[0])[0] >= block_constants(free, own).strong_convexity - 1e-12


def test_far_beyond_the_condition_the_table_is_no_bound():
    # mu' = 1 and lam = 0.01: w is held by the penalty alone, so mu is about lam/M and not mu'/(3M)
    loss, rows = scalar_problem(1.0)
    objective = MX2(loss, penalty=0.01, clients=10)
    own = client_constants(loss, rows)
    least = np.linalg.eigvalsh(scalar_hessian(objective, rows)[0])[0]
    assert table_constants(objective, own).strong_convexity == pytest.approx(1 / 30)
    assert least < 0.05 * table_constants(objective, own).strong_convexity
    assert block_constants(objective, own).strong_convexity == pytest.approx(least, rel=1e-10)


def test_mx2_has_half_of_mu_where_the_table_says_a_third():
    loss, rows = scalar_problem(0.01)
    objective = MX2(loss, penalty=1.0, clients=10)
    ratio = np.linalg.eigvalsh(scalar_hessian(objective, rows)[0])[0] / (0.01 / 10)
    assert 0.44 < ratio < 0.5


def test_the_image_experiments_break_their_own_condition():
    # Unified 2023, section 6.1: Lam = 1, lam = 1/2, mu' = 0.01 needs 3 * 0.5 / 0.02 = 75
    loss, rows = scalar_problem(1.0, clients=20)
    own = client_constants(loss, rows).assuming(0.01)
    objective = MT2(loss, penalty=0.5, relaxation=1.0, clients=20)
    assert "3 lam/(2 mu') = 75 " in condition(objective, own)
    assert "given, not proven" in own.source
    blocks, table = block_constants(objective, own), table_constants(objective, own)
    assert table.strong_convexity == 0.5 / 40
    assert blocks.strong_convexity < table.strong_convexity

    def w_share(kind, **given):
        found = table_constants(kind(loss, clients=20, **given), own)
        return found.component_shared_smoothness / (
            found.component_shared_smoothness + found.component_personal_smoothness
        )

    # the p_w that the paper reports for K = 2, with Lc' = 1: 1.5/3, 0.5/(0.5 + 1.5), 1.01/(1.01 + 0.81)
    assert w_share(MT2, penalty=0.5, relaxation=1.0) == pytest.approx(0.5)
    assert w_share(MX2, penalty=0.5) == pytest.approx(0.25)
    assert w_share(APFL2, relaxation=1.0, mixing=0.1) == pytest.approx(0.55, abs=0.005)


def test_no_curvature_means_no_strong_convexity():
    loss, rows = scalar_problem(0.0)
    own = client_constants(loss, rows)
    for objective in (MT2(loss, clients=10), MX2(loss, clients=10), APFL2(loss, clients=10)):
        assert block_constants(objective, own).strong_convexity == 0.0
    assert "= inf" in condition(MT2(loss, clients=10), own)
    assert condition(MT2(loss, penalty=0.0, clients=10), own) is None


def test_a_bias_divided_between_the_blocks_keeps_the_bounds_of_the_whole():
    loss = ClientLoss(model=Linear(FEATURES, 3), criterion="cross_entropy", l2=0.1)
    rows = make_rows(LOSSES["logistic"], 0)
    own = client_constants(loss, rows)
    blocks = block_constants(WS2(loss, personal_part="bias[1:]", clients=CLIENTS), own)
    assert blocks.shared_smoothness == blocks.personal_smoothness == own.smoothness / CLIENTS


def test_nothing_is_known_of_other_objectives_and_models():
    rows = make_rows(LOSSES["bare"], 0)
    own = client_constants(LOSSES["bare"], rows)
    assert block_constants(MAML(LOSSES["bare"]), own) is None
    assert condition(MAML(LOSSES["bare"]), own) is None
    assert block_constants(MX2(ClientLoss(model=MLP(FEATURES, 2))), None) is None
    assert block_constants(make("residual", LOSSES["bare"]), dataclasses.replace(own, loss=None)) is None
