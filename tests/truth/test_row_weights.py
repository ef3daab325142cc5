# SPDX-License-Identifier: Apache-2.0
"""Weights of rows: a row of weight 2 is the same row twice, in training, in constants, at optima and in scores."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from idiolect.algorithms import find
from idiolect.core.batches import draw_orders
from idiolect.core.data import ClientData, masked_mean
from idiolect.core.keys import step_key
from idiolect.data.federation import Federation
from idiolect.data.store import open_rows, save_rows
from idiolect.engines.debug import debug
from idiolect.engines.door import Training
from idiolect.engines.simulate import Options, simulate
from idiolect.experiments.folds import with_validation_rows
from idiolect.models import Linear
from idiolect.objectives import OBJECTIVES, ClientLoss, GlobalModel, LocalOnly
from idiolect.objectives.local_solve import until_no_better
from idiolect.theory.constants import client_constants
from idiolect.theory.heterogeneity import gradient_noise
from idiolect.theory.optimum import client_values, local_optima, optimal_value, shared_optimum

CLIENTS, ROWS, FEATURES, L2 = 3, 8, 2, 0.1
WEIGHTS = np.array([2, 1, 1, 3, 0, 1, 2, 2])  # of every client, in another order: 12 rows where they are written out
PARTS = np.array(["train"] * ROWS + ["test"] * ROWS + ["validation"] * ROWS)
SCORES = {
    "regression": ("squared_error", "mae", "rmse", "r2", "pinball_90"),
    "classification": ("log_loss", "accuracy", "balanced_accuracy", "auc", "brier"),
}


def make(kind, repeated):
    """The same rows with weights, or written out as often as their weights say."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(CLIENTS, 3 * ROWS, FEATURES))
    score = x[..., 0] + np.arange(CLIENTS)[:, None] * x[..., 1] / 2 + draw.normal(size=x.shape[:2])
    y = score if kind == "regression" else (score > 0).astype(int)
    weights = np.stack([np.concatenate([draw.permutation(WEIGHTS) for _ in range(3)]) for _ in range(CLIENTS)])
    owner, parts = np.repeat(np.arange(CLIENTS), 3 * ROWS), np.tile(PARTS, CLIENTS)
    columns = [x.reshape(-1, FEATURES), y.reshape(-1), owner, parts]
    options = {"task": kind, "dtype": np.float64}
    if repeated:
        columns = [np.repeat(column, weights.reshape(-1), axis=0) for column in columns]
    else:
        options["weights"] = 5.0 * weights.reshape(-1)  # their scale does not matter
    return Federation.from_arrays(*columns[:3], parts=columns[3], **options)


@pytest.fixture(scope="module", params=["regression", "classification"])
def pair(request):
    with jax.enable_x64(True):
        return request.param, make(request.param, False), make(request.param, True)


def client_loss(kind):
    criterion = {"regression": "squared", "classification": "logistic"}[kind]
    return ClientLoss(model=Linear(FEATURES, 0), criterion=criterion, l2=L2)


def train(kind, federation, name, rounds=3, **options):
    executor = options.pop("executor", "batched")
    training = Training(rounds=rounds, precision="float64", executor=executor, chunk=2 if executor == "chunked" else 0)
    algorithm = make_algorithm(name, client_loss(kind), **options)
    return simulate(algorithm, federation, training, scores=SCORES[kind])


def make_algorithm(name, loss, **settings):
    method = find(name)
    objective = OBJECTIVES[method.objective](client_loss=loss, **method.objective_preset)
    return method.algorithm(objective, **{**method.preset, "step_size": 0.1, "local_steps": 2, **settings})


def same(first, second, tolerance=1e-9):
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", ["fedavg", "local", "ditto"])
def test_weight_two_is_the_row_twice(pair, name):
    kind, weighted, repeated = pair
    found, expected = (train(kind, federation, name) for federation in (weighted, repeated))
    same(found.server, expected.server)
    same(found.states, expected.states)
    assert found.ledger.samples < expected.ledger.samples  # what is counted are rows
    for split, models in expected.recorder.selected.items():
        for model, named in models.items():
            for score, values in named.items():
                np.testing.assert_allclose(found.recorder.selected[split][model][score], values, atol=1e-6)


@pytest.mark.parametrize("executor", ["chunked", "looped", "looped_steps"])
def test_executors_and_plain_python_agree(pair, executor):
    kind, weighted, _ = pair
    drawn = {"batch_size": 3, "local_steps": 4}
    expected = train(kind, weighted, "ditto", **drawn)
    found = train(kind, weighted, "ditto", executor=executor, **drawn)
    same(found.server, expected.server)
    same(found.states, expected.states)
    plain = debug(
        make_algorithm("ditto", client_loss(kind), **drawn), weighted, Training(rounds=3, precision="float64")
    )
    same(plain.server, expected.server)


def test_rows_on_disk_keep_their_weights(pair, tmp_path):
    kind, weighted, repeated = pair
    save_rows(tmp_path / "rows", weighted.train)
    mapped = dataclasses.replace(weighted, train=open_rows(tmp_path / "rows"))
    training = Training(rounds=3, precision="float64", executor="batched")
    algorithm, states = make_algorithm("fedavg", client_loss(kind)), tmp_path / "states"
    found = simulate(algorithm, mapped, training, scores=SCORES[kind], options=Options(state_folder=states))
    same(found.server, train(kind, weighted, "fedavg").server)
    save_rows(tmp_path / "rows", repeated.train)
    assert open_rows(tmp_path / "rows").weights is None


def test_drawn_batches_are_unbiased(pair):
    _, weighted, _ = pair
    whole = weighted.train.pad(np.arange(1))
    losses = np.arange(1.0, ROWS + 1)
    mean = masked_mean(losses, np.ones(ROWS, bool), whole.weights[0])
    of_one = [masked_mean(losses[i : i + 1], None, whole.weights[0, i : i + 1]) for i in range(ROWS)]
    np.testing.assert_allclose(np.mean(of_one), mean)
    np.testing.assert_allclose(mean, np.average(losses, weights=whole.weights[0]))


def test_theory_is_that_of_the_weighted_loss(pair):
    kind, weighted, repeated = pair
    loss = client_loss(kind)
    found, expected = (client_constants(loss, federation.train) for federation in (weighted, repeated))
    for name in ("client_smoothness", "client_strong_convexity", "client_rank"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-10)
    assert found.component_smoothness >= expected.component_smoothness  # one row of weight 2 is steeper than either
    for optimum in (local_optima, shared_optimum):
        same(optimum(loss, weighted.train), optimum(loss, repeated.train), 1e-8)
    for objective in (GlobalModel(client_loss=loss), LocalOnly(client_loss=loss)):
        assert optimal_value(objective, weighted.train) == pytest.approx(optimal_value(objective, repeated.train))
    point = shared_optimum(loss, weighted.train)
    same(*(client_values(loss, federation.train, point, stacked=False) for federation in (weighted, repeated)))
    assert (gradient_noise(loss, weighted.train, point, stacked=False) > 0).all()


def test_training_ends_at_the_weighted_fit_of_others(pair):
    kind, weighted, _ = pair
    run = train(kind, weighted, "local", rounds=400, step_size=0.5, local_steps=5)
    model = run.personal_models()
    optima = local_optima(client_loss(kind), weighted.train)
    for client in range(CLIENTS):
        inputs, targets = weighted.train.of(client)
        weights = weighted.train.weights_of(client)
        design = np.hstack([inputs, np.ones((ROWS, 1))])  # l2 is on the bias as well
        if kind == "regression":
            reference = Ridge(alpha=ROWS * L2, fit_intercept=False).fit(design, targets, sample_weight=weights).coef_
        else:
            fit = LogisticRegression(C=1 / (ROWS * L2), fit_intercept=False, tol=1e-12, max_iter=10_000)
            reference = fit.fit(design, targets, sample_weight=weights).coef_[0]
        exact = np.append(optima["weights"][client], optima["bias"][client])
        np.testing.assert_allclose(exact, reference, atol=1e-6)
        np.testing.assert_allclose(np.append(model["weights"][client], model["bias"][client]), exact, atol=1e-6)


def test_weights_follow_their_rows_into_a_refit(pair):
    _, weighted, repeated = pair
    found, expected = with_validation_rows(weighted), with_validation_rows(repeated)
    assert found.validation.weights.shape == (0,)
    for client in range(CLIENTS):
        own = found.train.weights_of(client)
        assert own.mean() == pytest.approx(1)
        mean = np.average(found.train.of(client)[0], weights=own, axis=0)
        np.testing.assert_allclose(mean, expected.train.of(client)[0].mean(axis=0))


def test_early_stopping_goes_on_where_held_out_rows_weigh_nothing():
    """A third of the rows is held out by lot; at the start's loss of 0 on them a solve would never have moved."""
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(6, FEATURES))
    loss = client_loss("regression")
    key, start = jax.random.key(0), loss.init(jax.random.key(1))
    held = int(np.asarray(draw_orders(step_key(key, 4), 1, ClientData(inputs, inputs[:, 0], np.int32(6))))[0, -1])
    weights = np.where(np.arange(6) == held, 0.0, 1.2)
    data = ClientData(jnp.asarray(inputs), jnp.asarray(inputs[:, 0]), jnp.asarray(6, jnp.int32), jnp.asarray(weights))
    found = until_no_better(
        loss.gradient,
        lambda params, batch: loss.value(key, params, batch)[0],
        key,
        start,
        data,
        epochs=4,
        batch_size=0,
        step_size=0.1,
        stopping_share=0.1,
        patience=1,
    )
    assert int(found.epochs) == 4
    assert np.abs(found.params["weights"] - start["weights"]).max() > 0.05
