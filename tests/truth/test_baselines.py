# SPDX-License-Identifier: Apache-2.0
"""Baselines of Flow 2023: what each becomes at the ends of its settings, and what it does to a network's parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import APFL, IFCA, Ditto, Local, LocalSGD, PartialAveraging, PartialFed, PerFedAvg, find
from idiolect.core import RequestError, keys
from idiolect.core.data import ClientData
from idiolect.core.keys import StartKeys
from idiolect.core.settings import check_settings
from idiolect.core.tree import take
from idiolect.engines.door import admit
from idiolect.metrics.scores import log_loss
from idiolect.models import CNN, MLP
from idiolect.objectives import MAML, WS2, ClientLoss, GlobalModel, LocalOnly

ROUNDS = 3
STEPS = {"step_size": 0.3, "local_steps": 2, "clients": 5}  # on all rows: draws are the references' subject
PRECISIONS = {"float32": (False, jnp.float32, 2e-6), "float64": (True, jnp.float64, 1e-14)}
COMPARED = {}


@pytest.fixture(params=PRECISIONS)
def bench(request, lab):
    """(client loss, data, run, tolerance): a run from the same random start for every method, in one precision."""
    wide, dtype, tolerance = PRECISIONS[request.param]
    client_loss, data, _ = lab.softmax_problem()
    with jax.enable_x64(wide):
        data = ClientData(jnp.asarray(data.inputs, dtype), jnp.asarray(data.targets), jnp.asarray(data.count))

        def run(algorithm, **states):
            if type(algorithm) in (LocalSGD, Local):  # what others are compared with: once per precision
                if (request.param, type(algorithm)) not in COMPARED:
                    COMPARED[request.param, type(algorithm)] = walked(algorithm)
                return COMPARED[request.param, type(algorithm)]
            return walked(algorithm, **states)

        def walked(algorithm, **states):
            server = algorithm.init_server(keys.root_key(0))  # a linear model's zeros: not worth a program
            state = algorithm.init_client(StartKeys(keys.root_key(0), keys.root_key(0)), take(data, 0))[0]
            clients = jax.tree.map(lambda leaf: jnp.stack([leaf] * 5), state)
            draw = np.random.default_rng(3)
            w = {
                "bias": jnp.asarray(draw.normal(size=3), dtype),
                "weights": jnp.asarray(draw.normal(size=(3, 3)), dtype),
            }
            v = jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=(5, *leaf.shape)), dtype), w)
            if hasattr(server, "shared"):
                stacked = jax.tree.leaves(server.shared)[0].ndim == 2  # one model per cluster
                server = server._replace(shared=jax.tree.map(lambda leaf: leaf[None], w) if stacked else w)
            if hasattr(clients, "personal"):
                clients = clients._replace(personal=v, **states)
            done = lab.simulate(algorithm, data, ROUNDS, start=(server, clients))
            shared = jax.tree.leaves(getattr(done.server, "shared", ()))
            assert all(leaf.dtype == dtype for leaf in shared)
            return lab.flat(shared) if shared else None, lab.personal_models(algorithm, data, done, ROUNDS)

        yield client_loss, run, tolerance


def close(left, right, tolerance):
    np.testing.assert_allclose(left, right, rtol=0, atol=tolerance * np.abs(right).max())


def fedavg(client_loss):
    return LocalSGD(GlobalModel(client_loss), **STEPS)


def alone(client_loss):
    return Local(LocalOnly(client_loss), **STEPS)


def test_ditto_without_a_pull_is_fedavg_beside_local(bench):
    client_loss, run, tolerance = bench
    w, v = run(Ditto(GlobalModel(client_loss), penalty=0.0, **STEPS))
    close(w, run(fedavg(client_loss))[0], tolerance)
    close(v, run(alone(client_loss))[1], tolerance)


def test_ditto_with_a_huge_pull_holds_every_model_at_the_one_received(lab):
    # eta lam = 1: a step lands at w - eta grad f_m(v_m), and gradients here are below 10
    client_loss, data = lab.quadratic_problem([[1.0], [0.5]], [[0.0], [6.0]])
    common = {"step_size": 0.3, "local_steps": 2}
    algorithm = Ditto(GlobalModel(client_loss), penalty=1e6, personal_step_size=1e-6, **common)
    before, after = (lab.simulate(algorithm, data, rounds) for rounds in (3, 4))
    held = lab.flat_rows(after.states.personal)
    np.testing.assert_allclose(held, np.tile(lab.flat(before.server.shared), (2, 1)), rtol=0, atol=1e-5)
    assert abs(lab.flat(after.server.shared) - held[0]) > 0.05  # of the model received, not of the one it becomes


def test_apfl_at_both_ends(bench):
    client_loss, run, tolerance = bench
    w, _ = run(fedavg(client_loss))
    shared, models = run(APFL(GlobalModel(client_loss), own_share=0.0, **STEPS))
    close(shared, w, tolerance)
    close(models, np.tile(w, (5, 1)), tolerance)
    shared, models = run(APFL(GlobalModel(client_loss), own_share=1.0, **STEPS))
    close(shared, w, tolerance)
    close(models, run(alone(client_loss))[1], tolerance)


def test_one_cluster_is_fedavg(bench):
    client_loss, run, tolerance = bench
    w, models = run(IFCA(GlobalModel(client_loss), clusters=1, **STEPS))
    close(w, run(fedavg(client_loss))[0], tolerance)
    close(models, np.tile(w, (5, 1)), tolerance)


def test_per_fedavg_without_an_inner_step_is_fedavg(bench):
    client_loss, run, tolerance = bench
    # the Hessian-free step contains the first-order one
    w, models = run(PerFedAvg(MAML(client_loss, inner_step=0.0), variant="hessian_free", **STEPS))
    close(w, run(fedavg(client_loss))[0], tolerance)
    close(models, np.tile(w, (5, 1)), tolerance)


def test_partialfed_with_settled_choices_is_fedavg_or_local(bench):
    client_loss, run, tolerance = bench
    algorithm = PartialFed(GlobalModel(client_loss), strategy_steps=0, **STEPS)
    w, models = run(algorithm, preference=jnp.full((5, 2), 1e4))  # logistic noise never gets there
    close(w, run(fedavg(client_loss))[0], tolerance)
    close(models, np.tile(w, (5, 1)), tolerance)
    _, models = run(algorithm, preference=jnp.full((5, 2), -1e4))
    close(models, run(alone(client_loss))[1], tolerance)


def test_hessian_free_is_the_exact_gradient_on_quadratics(lab):
    # a difference of gradients is exact where the Hessian is constant, so on all rows HF walks as LocalSGD on MAML
    client_loss, data = lab.quadratic_problem([[1.0, 0.3], [0.2, 2.0]], [[0.0, 1.0], [6.0, -1.0]])
    settings = {"step_size": 0.1, "local_steps": 3}
    exact = lab.simulate(LocalSGD(MAML(client_loss, inner_step=0.4), **settings), data, 4)
    free = lab.simulate(PerFedAvg(MAML(client_loss, inner_step=0.4), variant="hessian_free", **settings), data, 4)
    np.testing.assert_allclose(lab.flat(free.server.shared), lab.flat(exact.server.shared), rtol=1e-9)
    assert free.tally()["shared"] == 4 * 2 * 3 * 4  # rounds, clients, steps, gradients per step


def test_a_learnt_share_stays_a_share(lab):
    # client 2 is far from the others. At first its copy of w is ahead of its v_m, whose steps carry a: the share falls,
    # to 0 and not below, and v_m then stands still
    client_loss, data = lab.quadratic_problem([[1.0], [1.0], [1.0]], [[0.0], [0.0], [6.0]])
    algorithm = APFL(GlobalModel(client_loss), learn_share=True, own_share=0.5, step_size=0.05, local_steps=5)
    share = np.asarray(lab.simulate(algorithm, data, 10).states.own_share)
    assert share[2] == 0
    assert (share[:2] > 0.5).all()
    assert (share[:2] < 1).all()


# ---- parts of one network ----

NETWORK = MLP(3, 3, (4,), normalize="layer")
SPLITS = {
    "fedper": "dense_1",
    "fedrep": "dense_1",
    "fedbabu": "dense_1",
    "lg_fedavg": "dense_0 norm_0",
    "fedbn": "norm_0",
}


def network_method(name, **settings):
    method, loss = find(name), ClientLoss(model=NETWORK, l2=0.1)
    objective = WS2(loss, **method.objective_preset)
    return PartialAveraging(objective, **{**method.preset, "step_size": 0.2, "local_steps": 2, **settings})


@pytest.mark.parametrize("name", SPLITS)
def test_both_parts_are_a_partition_of_the_network(lab, name):
    _, data, _ = lab.softmax_problem()
    algorithm = network_method(name)
    server, states = lab.begin(algorithm, data)
    personal = {layer for layer in ("dense_0", "norm_0", "dense_1") if layer in SPLITS[name].split()}
    layers = {key.split(".")[0] for key in states.personal}
    assert layers == personal
    assert {key.split(".")[0] for key in server.shared} == {"dense_0", "norm_0", "dense_1"} - personal
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(block)) for block in (server.shared, take(states.personal, 0))]
    assert sum(sizes) == lab.flat(NETWORK.init(keys.root_key(0))).size
    start = lab.flat_rows(states.personal)
    assert (start == start[0]).all()  # a common start, part of one model with the server's


def test_fedbn_is_plain_training_but_for_what_is_averaged(lab):
    # after one step from a common start: norm layers as trained alone, the others as averaged by local SGD
    _, data, _ = lab.softmax_problem()
    bn = lab.simulate(network_method("fedbn", local_steps=1), data, 1)
    loss = ClientLoss(model=NETWORK, l2=0.1)
    one = lab.simulate(LocalSGD(GlobalModel(loss), step_size=0.2), data, 1)
    start = NETWORK.init(keys.round_key(keys.root_key(0), keys.Purpose.INIT_SERVER, 0))
    for name, leaf in bn.server.shared.items():
        layer, array = name.split(".")
        np.testing.assert_allclose(leaf, one.server.shared[layer][array], rtol=1e-12)
    gradients = jax.jit(jax.vmap(lambda rows: loss.gradient(None, start, rows.batch())["norm_0"]))(data)
    for array in ("scale", "shift"):
        expected = start["norm_0"][array] - 0.2 * gradients[array]
        np.testing.assert_allclose(bn.states.personal[f"norm_0.{array}"], expected, rtol=1e-12, atol=1e-15)


def test_a_split_that_names_no_layer_is_refused(lab):
    loss = ClientLoss(model=MLP(3, 3, (4,)))
    with pytest.raises(
        RequestError, match=r"unknown part '\*norm\*', a pattern that no layer matches\. Known: body, den"
    ):
        PartialAveraging(WS2(loss, personal_part="*norm*", rescale=False)).init_server(keys.root_key(0))
    with pytest.raises(RequestError, match=r"unknown part 'dense_2'\. Did you mean 'dense_\d'"):
        PartialAveraging(WS2(loss, personal_part="dense_2", rescale=False)).init_server(keys.root_key(0))


# ---- clusters ----


def test_clusters_find_their_groups_and_an_empty_one_stays(lab, standard_dtypes):
    # three clients at 0 and two at 8: two models end at the groups' optima, the third, far away, never moves
    client_loss, data = lab.quadratic_problem(np.ones((5, 1)), [[0.0], [0.0], [0.0], [8.0], [8.0]])
    algorithm = IFCA(GlobalModel(client_loss), clusters=3, step_size=0.5, local_steps=2, server_optimizer="adam")
    server, states = lab.begin(algorithm, data)
    server = server._replace(shared={"location": jnp.asarray([[3.0], [5.0], [99.0]])})
    plain = IFCA(GlobalModel(client_loss), clusters=3, step_size=0.5, local_steps=2)
    run = lab.simulate(plain, data, 30, start=(lab.begin(plain, data)[0]._replace(shared=server.shared), states))
    np.testing.assert_allclose(run.server.shared["location"], [[0.0], [8.0], [99.0]], atol=1e-12)
    np.testing.assert_allclose(lab.personal_models(plain, data, run, 30)[:, 0], [0, 0, 0, 8, 8], atol=1e-12)
    moved = lab.simulate(algorithm, data, 2, start=(server, states))
    assert moved.server.shared["location"][2] == 99.0
    assert np.array_equal(moved.server.optimizer[0].count, [2, 2, 0])  # nor does the memory of its optimizer


def test_clusters_start_apart(lab):
    client_loss, _, _ = lab.softmax_problem()
    linear = IFCA(GlobalModel(client_loss), clusters=3, start_spread=0.5).init_server(keys.root_key(0)).shared
    starts = np.array([lab.flat(take(linear, cluster)) for cluster in range(3)])
    assert not starts[0].any()  # FedAvg's own start, which is not random
    assert 0.2 < starts[1].std() < 1
    assert np.abs(starts[1] - starts[2]).max() > 0.1
    network = IFCA(GlobalModel(ClientLoss(model=MLP(3, 3, (3,)))), clusters=2).init_server(keys.root_key(0)).shared
    assert not network["dense_0"]["bias"].any()  # a random start is left as it is
    assert np.abs(network["dense_0"]["weights"][0] - network["dense_0"]["weights"][1]).min() > 0


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("ifca", {"clusters": 0}, r"IFCA\.clusters must be at least 1, got 0\. 1 is FedAvg\."),
        ("knn_per", {"neighbours": 0}, r"KNNPer\.neighbours must be at least 1, got 0"),
        ("knn_per", {"own_share": 1.5}, r"KNNPer\.own_share must be at least 0 and at most 1, got 1\.5"),
        ("apfl", {"own_share": -0.1}, r"APFL\.own_share must be .*0 is FedAvg, 1 trains every client alone"),
        ("ditto", {"penalty": -1.0}, r"Ditto\.penalty must be at least 0, got -1"),
        ("partialfed", {"temperature": 0.0}, r"PartialFed\.temperature must be above 0"),
    ],
)
def test_values_out_of_range_are_refused(lab, name, wrong, message):
    with pytest.raises(RequestError, match=message):
        check_settings(find(name).algorithm(GlobalModel(lab.softmax_problem()[0]), **wrong))


def test_more_clusters_than_clients_are_refused(lab):
    algorithm = IFCA(GlobalModel(lab.softmax_problem()[0]), clusters=9)
    with pytest.raises(RequestError, match="at most as many clusters as clients, 5, got 9"):
        admit(algorithm, 5, "float32")
    assert admit(algorithm, 9, "float32").clusters == 9


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (CNN(8, 7, 1, 3, filters=(2, 3), hidden=4, dropout=(0.5, 0.5)), (20, 8, 7, 1)),
        (MLP(3, 3, (8,), normalize="batch"), (20, 3)),
    ],
    ids=["dropout", "batch_norm"],
)
def test_a_cluster_is_chosen_by_the_loss_of_what_it_predicts(model, shape):
    draw = np.random.default_rng(0)
    inputs, targets = jnp.asarray(draw.normal(3, 1, size=shape)), jnp.asarray(draw.integers(0, 3, 20), jnp.int32)
    rows = ClientData(inputs, targets, jnp.asarray(20, jnp.int32))
    algorithm = IFCA(GlobalModel(ClientLoss(model=model)), clusters=4)
    sent = algorithm.broadcast(None, algorithm.init_server(keys.root_key(1)))
    losses = [float(log_loss(model.apply(take(sent.shared, c), inputs), targets, rows.batch().mask)) for c in range(4)]
    choose = jax.jit(lambda key: algorithm._choose(key, sent, rows)[0])
    assert {int(choose(keys.root_key(seed))) for seed in range(20)} == {int(np.argmin(losses))}


def test_a_cluster_whose_loss_is_no_number_is_not_chosen(lab):
    client_loss, data, _ = lab.softmax_problem()
    algorithm = IFCA(GlobalModel(client_loss), clusters=2, start_spread=1.0)
    sent = algorithm.broadcast(None, algorithm.init_server(keys.root_key(1)))
    for lost in (0, 1):
        broken = jax.tree.map(lambda leaf, lost=lost: leaf.at[lost].set(jnp.nan), sent.shared)
        assert int(algorithm._choose(keys.root_key(0), sent._replace(shared=broken), take(data, 3))[0]) == 1 - lost
