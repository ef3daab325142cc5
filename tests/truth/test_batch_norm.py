# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation and its running moments: against plain NumPy, padding, prediction, who keeps them, refusals."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS, Ditto, Local, LocalSGD, PartialAveraging, find
from idiolect.core import RequestError, keys, statistics, tree
from idiolect.core.algorithm import fit_of
from idiolect.core.data import Batch, Rows
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.engines.simulate import Training, simulate
from idiolect.models import CNN, MLP, Model, ResNet18
from idiolect.models.layers import BatchNorm
from idiolect.objectives import MAML, OBJECTIVES, WS2, ClientLoss, GlobalModel, LocalOnly

MODEL = MLP(3, 3, (4,), normalize="batch")
L2, MOMENTUM, EPSILON, STEP = 0.1, 0.1, 1e-5, 0.3
NORM = ("running_mean", "running_variance", "scale", "shift")


@pytest.fixture
def problem(lab):
    """(client loss, ragged data whose padding is 1e6, rows per client)."""
    _, data, rows = lab.softmax_problem(sizes=(5, 4, 6))
    return ClientLoss(model=MODEL, l2=L2), data, rows


def start(lab, algorithm, data):
    """A common start away from the objective's own, with scale, shift and moments that matter."""
    server, clients = lab.begin(algorithm, data)
    draw = np.random.default_rng(4)
    values = {}

    def moved(path, leaf):
        name = statistics.name_of(path).rpartition("shared.")[2].rpartition("personal.")[2]
        shape = MODEL_SHAPES[name]
        if name not in values:
            values[name] = np.abs(1 + 0.3 * draw.normal(size=shape)) if "v" in name else 0.4 * draw.normal(size=shape)
        return jnp.broadcast_to(jnp.asarray(values[name]), leaf.shape)

    parts = [
        state._replace(
            **{block: jax.tree_util.tree_map_with_path(moved, getattr(state, block))} if hasattr(state, block) else {}
        )
        if state != ()
        else state
        for state, block in ((server, "shared"), (clients, "personal"))
    ]
    return parts[0], parts[1], values


MODEL_SHAPES = {
    statistics.name_of(path): leaf.shape
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.eval_shape(MODEL.init, jax.random.key(0)))
}


def step_by_hand(v, x, y, pull=0.0, toward=None):
    """One step of SGD in plain NumPy from {dotted path: array}: dense, batch norm, rectifier, dense, cross-entropy."""
    n, rows = {}, len(y)
    z = x @ v["dense_0.weights"] + v["dense_0.bias"]
    mean, variance = z.sum(0) / rows, ((z - z.sum(0) / rows) ** 2).sum(0) / rows
    root = np.sqrt(variance + EPSILON)
    normal = (z - mean) / root
    y_hat = normal * v["norm_0.scale"] + v["norm_0.shift"]
    hidden = np.maximum(y_hat, 0)
    logits = hidden @ v["dense_1.weights"] + v["dense_1.bias"]
    off = np.exp(logits - logits.max(1, keepdims=True))
    off /= off.sum(1, keepdims=True)
    off[np.arange(rows), y] -= 1
    off /= rows
    n["dense_1.weights"], n["dense_1.bias"] = hidden.T @ off, off.sum(0)
    back = (off @ v["dense_1.weights"].T) * (y_hat > 0)
    n["norm_0.scale"], n["norm_0.shift"] = (back * normal).sum(0), back.sum(0)
    back = back * v["norm_0.scale"]
    # the batch's moments depend on every row: the two means are their share of the gradient
    back = (back - back.mean(0) - normal * (back * normal).mean(0)) / root
    n["dense_0.weights"], n["dense_0.bias"] = x.T @ back, back.sum(0)
    new = {k: v[k] - STEP * (g + L2 * v[k] + (pull * (v[k] - toward[k]) if pull else 0)) for k, g in n.items()}
    new["norm_0.running_mean"] = (1 - MOMENTUM) * v["norm_0.running_mean"] + MOMENTUM * mean
    new["norm_0.running_variance"] = (1 - MOMENTUM) * v["norm_0.running_variance"] + MOMENTUM * variance
    return new


def by_hand(values, rows, kept=(), pull=0.0, rounds=2, steps=2):
    """Rounds of local steps on all rows; what `kept` names stays with its client, the rest is averaged by rows."""
    weights = np.array([len(y) for _, y in rows]) / sum(len(y) for _, y in rows)
    clients = [dict(values) for _ in rows]
    for _ in range(rounds):
        sent = clients[0]
        for m, (x, y) in enumerate(rows):
            for _ in range(steps):
                clients[m] = step_by_hand(clients[m], x, y, pull, sent)
        mean = {k: sum(share * v[k] for share, v in zip(weights, clients)) for k in values}
        clients = [{k: v[k] if k in kept else mean[k] for k in v} for v in clients]
    return clients


def flat(params, client=None):
    named = {statistics.name_of(p): np.asarray(leaf) for p, leaf in jax.tree_util.tree_leaves_with_path(params)}
    return named if client is None else {name: leaf[client] for name, leaf in named.items()}


def close(found, expected):
    for name, leaf in found.items():
        np.testing.assert_allclose(leaf, expected[name], rtol=1e-9, atol=1e-11, err_msg=name)


def test_moments_are_averaged_and_never_pulled_or_decayed(lab, problem):
    client_loss, data, rows = problem
    proximal = 0.5
    settings = {"step_size": STEP, "local_steps": 2, "clients": 3, "weighting": "samples", "penalty": proximal}
    algorithm = LocalSGD(GlobalModel(client_loss), **settings)
    server, clients, values = start(lab, algorithm, data)
    done = lab.simulate(algorithm, data, 2, start=(server, clients))
    expected = by_hand(values, rows, pull=proximal)
    close(flat(done.server.shared), expected[0])
    assert set(expected[0]) == set(flat(done.server.shared))


def test_fedbn_keeps_them_and_sends_none(lab, problem):
    client_loss, data, rows = problem
    preset = find("fedbn").objective_preset
    algorithm = PartialAveraging(
        WS2(client_loss, **preset, clients=3), step_size=STEP, local_steps=2, clients=3, weighting="samples"
    )
    server, clients, values = start(lab, algorithm, data)
    done = lab.simulate(algorithm, data, 2, start=(server, clients))
    kept = [f"norm_0.{name}" for name in NORM]
    assert sorted(done.states.personal) == sorted(kept)
    assert not any("norm" in name for name in done.server.shared)  # what a broadcast and an upload hold
    expected = by_hand(values, rows, kept)
    close(flat(done.server.shared), expected[0])
    for client in range(3):
        close(flat(done.states.personal, client), expected[client])
    assert np.abs(np.diff(done.states.personal["norm_0.running_mean"], axis=0)).min() > 1e-3


def test_local_and_ditto_move_their_own(lab, problem):
    client_loss, data, rows = problem
    alone = Local(LocalOnly(client_loss), step_size=STEP, local_steps=2, clients=3)
    server, clients, values = start(lab, alone, data)
    done = lab.simulate(alone, data, 2, start=(server, clients))
    for client in range(3):
        close(flat(done.states.personal, client), by_hand(values, [rows[client]])[0])
    ditto = Ditto(GlobalModel(client_loss), penalty=0.7, step_size=STEP, local_steps=2, clients=3, weighting="samples")
    server, clients, values = start(lab, ditto, data)
    done = lab.simulate(ditto, data, 1, start=(server, clients))
    close(flat(done.server.shared), by_hand(values, rows, rounds=1)[0])
    own = values
    for _ in range(2):
        own = step_by_hand(own, *rows[1], 0.7, values)
    close(flat(done.states.personal, 1), own)


def test_a_server_optimizer_leaves_moments_at_the_clients_mean(lab, problem):
    client_loss, data, rows = problem
    settings = {"step_size": STEP, "local_steps": 2, "clients": 3, "weighting": "samples"}
    algorithm = LocalSGD(GlobalModel(client_loss), server_optimizer="fedadam", server_step_size=2.0, **settings)
    server, clients, values = start(lab, algorithm, data)
    done = flat(lab.simulate(algorithm, data, 1, start=(server, clients)).server.shared)
    expected = by_hand(values, rows, rounds=1)[0]
    moments = {name: leaf for name, leaf in done.items() if "running" in name}
    assert len(moments) == 2
    close(moments, expected)  # a step of Adam could make a variance negative
    assert not np.allclose(done["dense_0.weights"], expected["dense_0.weights"])


def test_prediction_uses_running_moments_and_training_the_batchs(problem):
    layer = BatchNorm(2)
    draw = np.random.default_rng(0)
    values, mask = jnp.asarray(draw.normal(size=(5, 3, 2))), jnp.asarray([1, 1, 0, 1, 0], bool)
    params = {"scale": jnp.array([2.0, 1.0]), "shift": jnp.array([0.0, 1.0])}
    params |= {"running_mean": jnp.array([1.0, -1.0]), "running_variance": jnp.array([4.0, 0.25])}
    answer = layer.apply(params, values)
    expected = (np.asarray(values) - [1, -1]) / np.sqrt(np.array([4, 0.25]) + 1e-5) * [2, 1] + [0, 1]
    np.testing.assert_allclose(answer, expected, rtol=1e-12)
    normal, moved = layer.observe(params, values, mask)
    real = np.asarray(values)[[0, 1, 3]].reshape(-1, 2)
    np.testing.assert_allclose(moved["running_mean"], 0.9 * np.array([1, -1]) + 0.1 * real.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moved["running_variance"], 0.9 * np.array([4, 0.25]) + 0.1 * real.var(0), rtol=1e-12)
    inside = (np.asarray(normal)[[0, 1, 3]].reshape(-1, 2) - [0, 1]) / [2, 1]
    np.testing.assert_allclose(inside.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(inside.var(0), 1, rtol=1e-4)  # epsilon
    whole = layer.observe(params, values[jnp.array([0, 1, 3])], None)
    np.testing.assert_allclose(whole[1]["running_variance"], moved["running_variance"], rtol=1e-12)


def test_gradients_are_those_of_finite_differences_and_none_for_moments(problem):
    client_loss, data, _ = problem
    batch = tree.take(data, 1).batch()
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + 0.3 * np.random.default_rng(len(statistics.name_of(path))).normal(size=leaf.shape),
        MODEL.init(keys.root_key(0)),
    )
    plain, moved = jax.jit(
        lambda v: (
            jax.grad(lambda v: client_loss.value(None, v, batch)[0])(v),
            client_loss.gradient(None, v, batch),
        )
    )(params)
    for name, gradient in flat(plain).items():
        assert (np.abs(gradient).max() == 0) == ("running" in name)
        if "running" not in name:
            np.testing.assert_allclose(gradient, flat(moved)[name], rtol=1e-12)
    assert np.abs(flat(moved)["norm_0.running_mean"]).max() > 0  # old minus new
    along = jax.tree.map(lambda leaf: jnp.asarray(np.random.default_rng(leaf.size).normal(size=leaf.shape)), params)
    value = jax.jit(lambda h: client_loss.value(None, tree.descend(params, -h, along), batch)[0])
    ends = [value(h) for h in (1e-6, -1e-6)]
    assert float((ends[0] - ends[1]) / 2e-6) == pytest.approx(float(tree.inner(plain, along)), rel=1e-6)


def shifted(clients=3):
    """Clients whose inputs have moments of their own."""
    draw = np.random.default_rng(2)
    sizes = [7, 4, 10][:clients]
    inputs = np.concatenate([(m + 1) * draw.normal(size=(n, 3)) + 4 * m for m, n in enumerate(sizes)])
    targets = draw.integers(0, 3, len(inputs)).astype(np.int32)
    rows = Rows(inputs, targets, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
    names = tuple("abc"[:clients])
    return Federation(rows, rows, rows, names, Task.classification(("0", "1", "2")))


def test_executors_agree_on_short_batches_and_no_byte_is_billed_for_a_moment():
    objective = WS2(ClientLoss(model=MODEL), personal_part="*norm*", rescale=False)
    algorithm = PartialAveraging(objective, epochs=1, batch_size=3)
    runs = [
        simulate(algorithm, shifted(), Training(rounds=2, record_every=2, executor=executor, precision="float64"))
        for executor in ("batched", "looped")
    ]
    for found, expected in zip(*((run.server.shared, run.personal_models()) for run in runs)):
        close(flat(found), flat(expected))
    # 3 x 4 + 4 and 4 x 3 + 3 numbers of the dense layers, 8 bytes each, to three clients, twice
    assert runs[0].history[-1]["download_bytes"] == 2 * 3 * 8 * (16 + 15)


def test_moments_of_a_maml_start_move_with_both_passes(problem):
    client_loss, data, _ = problem
    objective, batch = MAML(client_loss, inner_step=0.2), tree.take(data, 0).batch()
    params = MODEL.init(keys.root_key(1))
    gradient, _ = jax.jit(lambda v: objective.gradient_shared(None, v, (), batch))(params)
    step = jax.jit(lambda v: tree.descend(v, 0.2, client_loss.gradient(None, v, batch)))
    twice = step(step(params))
    moved = flat(tree.descend(params, 0.7, gradient))
    np.testing.assert_allclose(moved["norm_0.running_mean"], flat(twice)["norm_0.running_mean"], rtol=1e-12)


CARRIED = {
    *("fedavg", "local_sgd", "fedprox", "fedavg_fine_tuning", "fedadam", "fedyogi", "pc_flow", "knn_per", "local"),
    *("ditto", "fedper", "fedrep", "lg_fedavg", "fedbabu", "fedbn", "ifca", "hypcluster", "partialfed"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_that_would_lose_them_says_so_before_it_runs(name):
    method = ALGORITHMS[name]
    objective = OBJECTIVES[method.objective](ClientLoss(model=MODEL), **method.objective_preset)
    given = dict(method.preset)
    reason = fit_of(method.algorithm(objective, **given, clients=3)).refused
    if name in CARRIED:
        assert reason is None
    else:
        assert "running statistics" in reason or "prepared" in reason, reason


def test_a_rescaled_part_and_other_objectives_are_refused():
    rescaled = PartialAveraging(WS2(ClientLoss(model=MODEL), personal_part="head"))
    assert fit_of(rescaled).refused.endswith("set rescale = false, or set normalize to 'none' or 'layer'")
    with pytest.raises(RequestError, match="running statistics"):
        simulate(rescaled, shifted(), Training(rounds=1))


@dataclasses.dataclass(frozen=True)
class Unlucky(Model):
    """Has a parameter with a name that means something else."""

    def init(self, key):
        return {"running_total": jnp.zeros(3)}

    def apply(self, params, inputs):
        return inputs @ params["running_total"]


def test_a_parameter_that_is_no_statistic_may_not_be_called_one():
    batch = Batch(jnp.ones((2, 3)), jnp.ones(2))
    with pytest.raises(RequestError, match="'running_total' becomes; give it another name"):
        ClientLoss(model=Unlucky(), criterion="squared").gradient(None, Unlucky().init(None), batch)


def test_networks_have_a_batch_norm_behind_every_convolution():
    cnn = CNN(8, 8, 1, 3, filters=(2, 3), hidden=4, normalize="batch")
    assert list(cnn.named_layers) == ["conv_0", "conv_1", "norm_0", "norm_1", "dense_0", "dense_1"]
    resnet = ResNet18(8, 8, 1, 3, filters=2, normalize="batch")
    for model, norms in ((cnn, 2), (resnet, 20)):
        assert model.keeps_statistics
        params = jax.eval_shape(model.init, keys.root_key(0))
        outputs, seen = jax.eval_shape(model.observe, None, params, jnp.zeros((3, 8, 8, 1)), jnp.ones(3, bool))
        assert outputs.shape == (3, 3)
        assert len(seen) == 2 * norms
    assert not CNN(8, 8, 1, 3).keeps_statistics
    with pytest.raises(RequestError, match="normalize must be"):
        CNN(8, 8, 1, 3, normalize="bacth").init(keys.root_key(0))


@pytest.mark.parametrize("shape", [(4, 2), (4, 3, 3, 2)])
def test_one_value_per_channel_leaves_the_running_moments(shape):
    layer, values = BatchNorm(2), jnp.asarray(np.random.default_rng(0).normal(3, 2, size=shape))
    params = {name: value.astype(values.dtype) for name, value in layer.init(None).items()}
    for rows in (1, 2):
        mask = jnp.asarray(np.arange(4) < rows, values.dtype)
        moved = jax.jit(layer.observe)(params, values, mask)[1]
        still = rows == 1 and len(shape) == 2  # one row of an image has many positions
        assert all(bool((moved[name] == params[name]).all()) == still for name in NORM[:2])
    alone = layer.observe(params, values[:1], None)[1]
    assert all(bool((alone[name] == params[name]).all()) == (len(shape) == 2) for name in NORM[:2])
