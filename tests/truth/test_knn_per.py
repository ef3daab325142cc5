# SPDX-License-Identifier: Apache-2.0
"""kNN-Per: its vote against plain NumPy, FedAvg at lam = 0, few rows, padding, and what it refuses."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import KNNPer, LocalSGD
from idiolect.core import RequestError, keys
from idiolect.core.algorithm import fit_of
from idiolect.core.data import ClientData
from idiolect.core.tree import take
from idiolect.models import MLP, Linear, Location, Model
from idiolect.objectives import ClientLoss, GlobalModel

NETWORK = MLP(3, 3, (4,))
SETTINGS = {"step_size": 0.3, "local_steps": 2}
QUERIES = np.random.default_rng(9).normal(size=(6, 3))


@pytest.fixture
def trained(lab):
    """(data, rows per client, kNN-Per on a network, its run of two rounds)."""
    _, data, rows = lab.softmax_problem()
    algorithm = KNNPer(
        GlobalModel(ClientLoss(model=NETWORK)), neighbours=3, own_share=0.4, kernel_scale=0.7, **SETTINGS
    )
    return data, rows, algorithm, lab.simulate(algorithm, data, 2)


@jax.jit
def answer(algorithm, server, rows, queries):
    """The client's model, what it cost, and its outputs."""
    sent = algorithm.deliver(None, server)
    models, cost = algorithm.models(keys.root_key(0), sent, (), rows)
    model = models.personal
    return model, cost.counters(), algorithm.predict(model, queries)


def truth(params, x, y, queries, k, lam, scale):
    """lam p_knn + (1 - lam) softmax, one query at a time; phi are the hidden units of a network of one layer."""
    w = {name: {key: np.asarray(value) for key, value in layer.items()} for name, layer in params.items()}

    def phi(rows):
        return np.maximum(rows @ w["dense_0"]["weights"] + w["dense_0"]["bias"], 0)

    chances = []
    for query in phi(queries):
        logits = query @ w["dense_1"]["weights"] + w["dense_1"]["bias"]
        alone = np.exp(logits) / np.exp(logits).sum()
        apart = ((phi(x) - query) ** 2).sum(1)
        nearest = np.argsort(apart, kind="stable")[:k]
        weights = np.exp(-apart[nearest] / (query.size * scale))
        vote = np.zeros(3)
        np.add.at(vote, y[nearest], weights / weights.sum())  # true labels, normalised
        chances.append(lam * vote + (1 - lam) * alone)
    return np.array(chances)


def test_predictions_equal_a_plain_loop(trained):
    data, rows, algorithm, run = trained
    for m in (3, 4):  # clients of 7 rows and of 2: the latter has fewer than k, and all vote
        x, y = rows[m]
        model, cost, outputs = answer(algorithm, run.server, take(data, m), QUERIES)
        np.testing.assert_allclose(np.exp(outputs), truth(model["parameters"], x, y, QUERIES, 3, 0.4, 0.7), rtol=1e-10)
        assert (int(cost.forward), int(cost.samples), int(cost.shared)) == (len(y), len(y), 0)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_without_a_vote_it_is_fedavg(lab, precision):
    client_loss, data, _ = lab.softmax_problem()
    with jax.enable_x64(precision == "float64"):
        data = data._replace(inputs=jnp.asarray(data.inputs, precision))
        algorithm = KNNPer(GlobalModel(client_loss), own_share=0.0, **SETTINGS)
        run = lab.Run(*lab.begin(algorithm, data))
        shared = jax.tree.map(
            lambda leaf: jnp.sin(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), run.server.shared
        )
        run = run._replace(server=run.server._replace(shared=shared))
        queries = jnp.asarray(QUERIES, precision)
        outputs = answer(algorithm, run.server, take(data, 1), queries)[2]
        assert outputs.dtype == precision
        alone = jax.nn.log_softmax(algorithm.predict(shared, queries))  # the shared model predicts alone
        np.testing.assert_allclose(outputs, alone, rtol=1e-6 if precision == "float32" else 1e-14)


def test_it_trains_as_fedavg_does(trained, lab):
    data, _, algorithm, run = trained
    plain = lab.simulate(LocalSGD(algorithm.objective, **SETTINGS), data, 2)
    np.testing.assert_array_equal(lab.flat(run.server.shared), lab.flat(plain.server.shared))


def test_the_vote_alone_and_far_from_everything(lab):
    client_loss, data, rows = lab.softmax_problem()
    vote = KNNPer(GlobalModel(client_loss), own_share=1.0, neighbours=1, kernel_scale=1e-3)
    run = lab.Run(*lab.begin(vote, data))
    x, y = rows[3]
    outputs = np.asarray(answer(vote, run.server, take(data, 3), np.concatenate([x, 1e3 * QUERIES]))[2])
    assert (outputs[: len(y)].argmax(1) == y).all()  # every training row is its own nearest neighbour
    # far away exp(-distance) is zero for every row, and the nearest still votes
    np.testing.assert_allclose(np.exp(outputs).sum(1), 1)


def test_padding_never_votes(trained):
    data, rows, algorithm, run = trained
    every = dataclasses.replace(algorithm, neighbours=50)  # more than the padded rows
    x, y = rows[4]
    bare = ClientData(jnp.asarray(x), jnp.asarray(y, jnp.int32), jnp.asarray(len(y), jnp.int32))
    padded, without = (answer(every, run.server, own, QUERIES)[2] for own in (take(data, 4), bare))
    np.testing.assert_allclose(padded, without, rtol=1e-12)


class Positions(Model):
    """A sequence of vectors to one of logits; its last layer sees the vectors themselves."""

    def init(self, key):
        return {"weights": jnp.eye(3)}

    def apply(self, params, inputs):
        return inputs @ params["weights"]

    def represent(self, params, inputs):
        return inputs


def test_of_sequences_every_position_is_a_row_but_those_without_a_target():
    draw = np.random.default_rng(3)
    x, queries = draw.normal(size=(5, 4, 3)), draw.normal(size=(2, 4, 3))
    y = draw.integers(0, 3, (5, 4)).astype(np.int32)
    y[1, 2:] = y[3, 0] = -1  # no target there
    algorithm = KNNPer(GlobalModel(ClientLoss(model=Positions())), neighbours=6, own_share=0.4, kernel_scale=0.7)
    of_rows = dataclasses.replace(algorithm, objective=GlobalModel(ClientLoss(model=Linear(3, 3, bias=False))))
    sent = algorithm.deliver(None, algorithm.init_server(keys.root_key(0)))
    four = jnp.asarray(4, jnp.int32)  # the fifth sequence is padding
    models, cost = algorithm.models(keys.root_key(0), sent, (), ClientData(jnp.asarray(x), jnp.asarray(y), four))
    model = models.personal
    outputs = jax.jit(algorithm.predict)(model, queries)
    assert outputs.shape == (2, 4, 3)
    kept = y[:4] >= 0
    flat = {"seen": x[:4][kept], "labels": y[:4][kept], "count": np.int32(kept.sum())}
    plain = of_rows.predict({"parameters": model["parameters"], "rows": flat}, queries.reshape(-1, 3))
    np.testing.assert_allclose(outputs.reshape(-1, 3), plain, rtol=1e-12)
    assert int(cost.counters().forward) == 4


def test_neighbours_far_from_zero_are_found_in_float32_too():
    draw = np.random.default_rng(5)
    x, y = 2000 + draw.normal(size=(40, 3)), draw.integers(0, 3, 40).astype(np.int32)
    vote = KNNPer(GlobalModel(ClientLoss(model=Linear(3, 3, bias=False))), neighbours=5, own_share=1.0)
    with jax.enable_x64(False):
        rows = {"seen": jnp.asarray(x, jnp.float32), "labels": jnp.asarray(y), "count": jnp.asarray(40, jnp.int32)}
        queries = jnp.asarray(2000 + draw.normal(size=(20, 3)), jnp.float32)
        found = np.asarray(vote._vote(queries, rows, 3))
    seen, asked = np.asarray(rows["seen"], float), np.asarray(queries, float)
    for query, chances in zip(asked, found):
        apart = ((seen - query) ** 2).sum(1)
        nearest = np.argsort(apart)[:5]
        weights = np.exp(-apart[nearest] / 3)
        exact = np.zeros(3)
        np.add.at(exact, y[nearest], weights / weights.sum())
        np.testing.assert_allclose(chances, exact, atol=1e-4)


def test_a_client_with_one_row_votes_with_it(trained):
    _, rows, algorithm, run = trained
    x, y = rows[0]
    one = ClientData(jnp.asarray(x[:1]), jnp.asarray(y[:1], jnp.int32), jnp.asarray(1, jnp.int32))
    model, _, outputs = answer(algorithm, run.server, one, QUERIES)
    np.testing.assert_allclose(
        np.exp(outputs), truth(model["parameters"], x[:1], y[:1], QUERIES, 1, 0.4, 0.7), rtol=1e-10
    )


def test_what_it_cannot_do_is_refused(lab):
    quadratic, rows = lab.quadratic_problem([[1.0]], [[0.0]])
    algorithm = KNNPer(GlobalModel(quadratic))
    assert fit_of(algorithm).refused.startswith("it votes on classes")  # at the door, before anything trains
    with pytest.raises(RequestError, match="KNNPer votes on classes, got targets of type float64; use another method"):
        answer(algorithm, lab.begin(algorithm, rows)[0], take(rows, 0), QUERIES)

    class Own(Model):
        def init(self, key):
            return {"weights": jnp.zeros((3, 3))}

        def apply(self, params, inputs):
            return inputs @ params["weights"]

    _, data, _ = lab.softmax_problem()
    stranger = KNNPer(GlobalModel(ClientLoss(model=Own())))
    assert (
        "give it a method represent(params, inputs)" in fit_of(stranger).refused
    )  # at the door, before anything trains
    with pytest.raises(RequestError, match=r"Own does not say what its last layer sees.* represent\(params, inputs\)"):
        answer(stranger, lab.begin(stranger, data)[0], take(data, 0), QUERIES)


def test_what_the_last_layer_sees():
    inputs, model = jnp.asarray(QUERIES), MLP(3, 2, (4, 5), normalize="layer")
    np.testing.assert_array_equal(Linear(3, 2).represent(None, inputs.reshape(6, 3, 1)), QUERIES)
    params = jax.jit(model.init)(keys.root_key(2))
    seen, outputs = jax.jit(lambda params: (model.represent(params, inputs), model.apply(params, inputs)))(params)
    last = jax.tree.map(np.asarray, params["dense_2"])
    np.testing.assert_allclose(outputs, np.asarray(seen) @ last["weights"] + last["bias"], rtol=1e-12)
    with pytest.raises(RequestError, match="Location does not say"):
        Location(3).represent(None, inputs)
