# SPDX-License-Identifier: Apache-2.0
"""Flow (paper 003): whole rounds against straight-line code, and the invariants of ALGORITHMS 10.8."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.accounting.bytes import bytes_of
from idiolect.algorithms import Flow, LocalSGD, find
from idiolect.algorithms.halves import halves
from idiolect.core import batches, keys, tree
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose
from idiolect.engines.start import wire_types
from idiolect.models import CNN, MLP, CharacterLSTM, Linear, ResNet18
from idiolect.models.routing import routed_model
from idiolect.objectives import ClientLoss, GlobalModel

SIZES, FEATURES, CLASSES = (5, 8, 1, 4), 3, 3
CLIENTS, ROUNDS, SEED, ETA, GAMMA = len(SIZES), 2, 3, 0.3, 0.2
MODEL = MLP(FEATURES, CLASSES, (4,))
BATCHING = {"epochs": 2, "batch_size": 2}
SMALL = {"routing_widths": (5,), "step_size": ETA, "routing_penalty": GAMMA, "clients": CLIENTS}


pytestmark = pytest.mark.usefixtures("quick_compilation")


def problem(sizes=SIZES):
    draw = np.random.default_rng(1)
    capacity = max(sizes)
    inputs = np.full((len(sizes), capacity, FEATURES), 1e3)  # padding that would be seen if it ever leaked
    targets = np.zeros((len(sizes), capacity), np.int32)
    for m, n in enumerate(sizes):
        inputs[m, :n], targets[m, :n] = draw.normal(size=(n, FEATURES)) + m % 2, draw.integers(0, CLASSES, n)
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(sizes, jnp.int32))


def flow(model=MODEL, **settings):
    objective = GlobalModel(ClientLoss(model=model))
    return Flow(objective, **(SMALL | BATCHING | settings))


# --- the reference: plain code from section 5 of ALGORITHMS for a net of two dense layers, rows by rows ---


def dense(p, x):
    return x @ p["weights"] + p["bias"]


def routes(psi, x):
    """q_0 and q_1 of both layers: one trunk layer, two exits that both read it."""
    seen = jnp.maximum(dense(psi["trunk_0"], x), 0)
    return [jax.nn.softmax(dense(psi[f"exit_{j}"], seen), axis=1) for j in range(2)]


def mixture(q, w, v, x):
    flow = x
    for j in range(2):
        ours, own = dense(w[f"dense_{j}"], flow), dense(v[f"dense_{j}"], flow)
        flow = q[j][:, :1] * ours + q[j][:, 1:] * own
        flow = jnp.maximum(flow, 0) if j == 0 else flow
    return flow


def cross_entropy(outputs, y):
    return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(len(y)), y])


def plain(v, x, y):
    return cross_entropy(dense(v["dense_1"], jnp.maximum(dense(v["dense_0"], x), 0)), y)


def of_psi(psi, w, v, x, y):
    q = routes(psi, x)
    return cross_entropy(mixture(q, w, v, x), y) - GAMMA / 2 * sum(jnp.mean(jnp.log(share[:, 0])) for share in q)


def of_w(w, psi, v, x, y):
    return cross_entropy(mixture(routes(psi, x), w, v, x), y)


# plain code: only the derivatives are compiled, once per number of rows
D_PLAIN, D_PSI, D_W = (jax.jit(jax.grad(loss)) for loss in (plain, of_psi, of_w))


def descend(params, slope):
    return jax.tree.map(lambda a, b: a - ETA * b, params, slope)


def parts(key, data, n, percent=50):
    """(Z_l, Z_g) of one client as batches of row numbers, as the package draws them."""
    order = np.asarray(draw_split(jax.random.fold_in(key, 0), data))[:n]
    cut = n * percent // 100
    found = []
    for place, rows in ((1, order[:cut]), (2, order[cut:])):
        padded = jnp.asarray(np.resize(rows, max(SIZES)) if len(rows) else np.zeros(max(SIZES), np.int32))
        numbers = ClientData(padded, padded, jnp.asarray(len(rows), jnp.int32))
        drawn = draw_two(jax.random.fold_in(key, place), numbers)[:, : len(rows)]
        walk = [rows[line][i : i + 2] for line in np.asarray(drawn) for i in range(0, len(rows), 2)]
        found.append(walk)
    assert sorted([*order[:cut], *order[cut:]]) == list(range(n))
    return found


def client(key, w, psi, data, n, order="alternating", adapt=("psi", "w"), second=None, percent=50, own_loss=False):
    x, y = np.asarray(data.inputs), np.asarray(data.targets)
    own, ours = parts(key, data, n, percent)
    v, spent = second or w, {"personal": 0, "shared": 0}
    for rows in own:
        v = descend(v, D_PLAIN(v, x[rows], y[rows]))
        spent["personal"] += len(rows)
    turns = {
        "alternating": [(rows, what) for rows in ours for what in ("psi", "w")],
        "routing_first": [(rows, what) for what in ("psi", "w") for rows in ours],
        "shared_first": [(rows, what) for what in ("w", "psi") for rows in ours],
    }
    for rows, what in turns[order]:
        if what not in adapt:
            continue
        if what == "psi":
            psi = descend(psi, D_PSI(psi, w, v, x[rows], y[rows]))
        else:
            w = descend(w, D_PLAIN(w, x[rows], y[rows]) if own_loss else D_W(w, psi, v, x[rows], y[rows]))
        spent["shared"] += len(rows)
    return w, psi, v, spent


def average(shares, trees):
    return jax.tree.map(lambda *leaves: sum(s * leaf for s, leaf in zip(shares.tolist(), leaves)), *trees)


def reference(w, psi, data, order="alternating", second=None, percent=50, own_loss=False):
    spent, root = {"personal": 0, "shared": 0}, keys.root_key(SEED)
    for r in range(ROUNDS):
        ends, weights = [], []
        for m, n in enumerate(SIZES):
            key = keys.client_key(root, Purpose.RECEIVE, r, m)
            end = client(key, w, psi, tree.take(data, m), n, order, second=second, percent=percent, own_loss=own_loss)
            ends.append(end[:3])
            weights.append(n - n * percent // 100)
            spent = {block: spent[block] + end[3][block] for block in spent}
        share = np.array(weights) / sum(weights)
        assert share.sum() == pytest.approx(1)
        w, psi, v = (average(share, part) for part in zip(*ends))
        second = v if second else None
    return w, psi, second, spent


def close(ours, theirs):
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


@jax.jit
def personal_model(algorithm, key, server, rows):
    model, cost = algorithm.personal_model(key, algorithm.deliver(key, server), (), rows)
    return model, cost.counters()


@jax.jit
def draw_two(key, numbers):
    return batches.draw_orders(key, 2, numbers)


@jax.jit
def draw_split(key, data):
    return batches.draw_orders(key, 1, data)[0]


VARIANTS = {
    "alternating": {},
    "routing_first": {"training_order": "routing_first"},
    "shared_first": {"training_order": "shared_first"},
    "own_loss": {"shared_loss": "own"},
    "pi_flow, quarter": {"second_route": "shared", "local_percent": 25},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_and_personal_models_equal_straight_line_code(lab, variant):
    settings, data = VARIANTS[variant], problem()
    algorithm = flow(**settings)
    server, states = lab.begin(algorithm, data, SEED, scale=0.3)
    assert jax.tree.leaves(states) == []  # stateless clients
    run = lab.simulate(algorithm, data, ROUNDS, start=(server, states), seed=SEED)
    order, percent = settings.get("training_order", "alternating"), settings.get("local_percent", 50)
    second = server.second or None
    own_loss = settings.get("shared_loss") == "own"
    w, psi, second, spent = reference(server.shared, server.routing, data, order, second, percent, own_loss)
    close((run.server.shared, run.server.routing), (w, psi))
    close(run.server.second, second or ())
    counted = run.tally()
    assert {block: counted[block] for block in spent} == spent
    assert counted["samples"] == sum(spent.values())
    assert counted["both"] == counted["forward"] == counted["full_shared"] == counted["full_personal"] == 0

    for adaptation, adapt in {"routing": ("psi",), "both": ("psi", "w"), "none": ()}.items():
        if variant != "alternating" and not (second and adaptation == "none"):
            continue  # training orders are of rounds only
        adapting = dataclasses.replace(algorithm, adaptation=adaptation)
        for m in (1, 2):
            key = keys.client_key(keys.root_key(SEED), Purpose.PERSONAL_MODEL, ROUNDS, m)
            rows = tree.take(data, m)
            model, cost = personal_model(adapting, key, run.server, rows)
            if second:  # nothing is the client's own
                close(model, {"shared": w, "local": second, "routing": psi})
                continue
            end = client(key, w, psi, rows, SIZES[m], adapt=adapt, percent=percent)
            close(model, {"shared": end[0], "local": end[2], "routing": end[1]})
            assert {"personal": int(cost.personal), "shared": int(cost.shared)} == end[3]


def test_a_client_of_one_row_has_nothing_to_fit_and_trains_on_it(lab):
    """Client 2 has one row: Z_l is empty, so w_l = w_g, and the row is Z_g."""
    data = tree.take(problem(), 2)
    own, half = halves(keys.root_key(0), data, 50)
    assert (int(own.count), int(half.count), int(half.rows[0])) == (0, 1, 0)
    algorithm = flow()
    server = lab.begin(algorithm, problem(), SEED)[0]
    model, cost = personal_model(algorithm, keys.root_key(0), server, data)
    close(model["local"], server.shared)
    assert (int(cost.personal), int(cost.shared)) == (0, 2)  # psi has two passes over the row
    assert algorithm.steps((), 1) == 2  # two epochs of one batch


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_fixed_share_of_one_is_fedavg_on_the_shared_half_and_of_nought_leaves_the_model(lab, precision):
    with jax.enable_x64(precision == "float64"):
        data = problem()
        fixed = flow(fixed_share=1.0, batch_size=0)
        server, _ = lab.begin(fixed, data, SEED)
        assert {leaf.dtype for leaf in jax.tree.leaves(server.shared)} == {jnp.dtype(precision)}
        assert server.routing == ()
        moved = lab.simulate(fixed, data, 1, start=(server, ()), seed=SEED).server

        # FedAvg, by rows, whose clients hold Z_g alone
        def shared_half(m, own):
            key = keys.client_key(keys.root_key(SEED), Purpose.RECEIVE, 0, m)
            half = halves(jax.random.fold_in(key, 0), own, 50)[1]
            return ClientData(own.inputs[half.rows], own.targets[half.rows], half.count)

        held = jax.vmap(shared_half)(jnp.arange(CLIENTS), data)
        fedavg = LocalSGD(fixed.objective, step_size=ETA, weighting="samples", clients=CLIENTS, epochs=2)
        start = fedavg.init_server(keys.root_key(0))._replace(shared=server.shared)
        wanted = lab.simulate(fedavg, held, 1, start=(start, ()), seed=SEED).server
        rounding = 1e-6 if precision == "float32" else 1e-14
        assert moved.shared.keys() == wanted.shared.keys()
        np.testing.assert_allclose(lab.flat(moved.shared), lab.flat(wanted.shared), rtol=0, atol=rounding)
        assert np.abs(lab.flat(moved.shared) - lab.flat(server.shared)).max() > 0.01

        local = dataclasses.replace(fixed, fixed_share=0.0)
        frozen = lab.simulate(local, data, 1, start=(server, ()), seed=SEED).server
        np.testing.assert_array_equal(lab.flat(frozen.shared), lab.flat(server.shared))


def test_the_local_model_never_travels(lab):
    data = problem()
    for settings, models, has_net in (
        ({}, 1, True),
        ({"fixed_share": 0.5}, 1, False),
        ({"second_route": "shared"}, 2, 1),
    ):
        algorithm = flow(**settings)
        types = wire_types(algorithm, data)
        model = MODEL.init(keys.root_key(0))
        net = routed_model(MODEL, "", (5,)).net.init(keys.root_key(0))
        wanted = models * bytes_of(model) + has_net * bytes_of(net)
        assert bytes_of(types.sent) == bytes_of(types.delivered) == wanted
        assert bytes_of(types.upload) == wanted + 8  # and the weight
    assert find("pc_flow").algorithm is LocalSGD
    assert find("pc_flow").preset["fine_tuning_steps"] > 0


SMALL_NETS = {
    "mlp": (MODEL, (6, 3)),
    "linear": (Linear(3, 2), (6, 3)),
    "cnn": (CNN(8, 7, 1, 3, filters=(2, 3), hidden=4), (6, 8, 7, 1)),
    "lstm": (CharacterLSTM(5, 5, embedding=3, hidden=4, layers=2), (6, 4)),
}


def net_and_rows(name):
    """A net away from its start, whose zero biases put rectifiers at their kink; local layers; psi; a batch."""
    model, shape = SMALL_NETS[name]
    draw = np.random.default_rng(2)
    inputs = draw.integers(0, 5, size=shape).astype(np.int32) if name == "lstm" else draw.normal(size=shape)
    targets = draw.integers(0, 2, size=shape if name == "lstm" else shape[:1]).astype(np.int32)
    algorithm = flow(model, routing_widths=(4, 3))
    server = jax.eval_shape(algorithm.init_server, jax.random.key(0))

    def away(shapes):
        return jax.tree.map(lambda leaf: jnp.asarray(0.5 * draw.normal(size=leaf.shape)), shapes)

    shared, routing = away(server.shared), away(server.routing)
    routes_of = algorithm.objective.routed("", (4, 3))
    local = away(routes_of.start_local(server.shared))
    rows = ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(4, jnp.int32)).batch()
    return algorithm, routes_of, shared, local, routing, rows


@pytest.mark.parametrize("name", SMALL_NETS)
def test_gradients_of_all_three_are_those_of_finite_differences(name):
    algorithm, routes_of, shared, local, routing, batch = net_and_rows(name)

    def value(w, v, psi):
        return routes_of.mixed_value(None, algorithm._shares(psi, batch.inputs), w, v, batch)

    both = jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))
    at = (shared, local, routing)
    slopes = both(*at)[1]
    for place in range(3):
        along = jax.tree.map(lambda leaf: np.random.default_rng(leaf.size).normal(size=leaf.shape), at[place])
        promised = float(tree.inner(slopes[place], along))
        assert promised != 0
        ends = []
        for h in (1e-6, -1e-6):
            moved = [*at]
            moved[place] = jax.tree.map(lambda leaf, d, h=h: leaf + h * d, at[place], along)
            ends.append(float(both(*moved)[0]))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(promised, rel=2e-6)


@pytest.mark.parametrize("name", SMALL_NETS)
def test_shares_sum_to_one_and_soft_is_hard_when_they_are_one_hot(name):
    algorithm, routes_of, shared, local, routing, batch = net_and_rows(name)
    x = batch.inputs
    shares = algorithm._shares(routing, x)
    np.testing.assert_allclose(shares[0] + shares[1], 1, rtol=1e-14)
    assert shares[0].shape[-1] == len(algorithm.route_names)
    # a choice for every row and layer (and step), of both kinds: the net's own, made one-hot
    picked = shares[0] >= jnp.median(shares[0])
    assert 0 < float(picked.mean()) < 1
    one_hot = (picked.astype(float), 1 - picked.astype(float))

    everywhere, model = jnp.ones_like(picked), algorithm.objective.client_loss.model

    @jax.jit
    def answers():
        hard = [routes_of.predict_chosen(where, shared, local, x) for where in (picked, everywhere, ~everywhere)]
        return hard, [routes_of.predict_mixed(one_hot, shared, local, x), model.apply(shared, x), model.apply(local, x)]

    # all one way is the shared model itself, or the local one
    for hard, soft in zip(*answers(), strict=True):
        np.testing.assert_allclose(hard, soft, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_tie_goes_to_the_shared_layer_and_predict_is_hard_unless_told(precision):
    rounding = 1e-5 if precision == "float32" else 1e-13

    def equal(ours, theirs):
        assert ours.dtype == jnp.dtype(precision)
        np.testing.assert_allclose(ours, theirs, rtol=rounding, atol=rounding)

    with jax.enable_x64(precision == "float64"):
        algorithm, routes_of, shared, local, routing, batch = net_and_rows("mlp")
        x = batch.inputs
        equal(sum(algorithm._shares(routing, x)), 1)
        even = tree.zeros(routing)  # both exits say 0: q_0 = 1/2 exactly
        model = {"shared": shared, "local": local, "routing": even}
        np.testing.assert_array_equal(algorithm.shared_shares(model, x), 0.5)
        equal(algorithm.predict(model, x), MODEL.apply(shared, x))
        soft = dataclasses.replace(algorithm, soft_inference=True)
        half = (jnp.full(2, 0.5), jnp.full(2, 0.5))
        equal(soft.predict(model, x), routes_of.predict_mixed(half, shared, local, x))
        assert not np.allclose(soft.predict(model, x), MODEL.apply(shared, x))
        for share, whole in ((0.25, local), (0.5, shared), (1.0, shared)):  # figure 4c under hard inference
            fixed = dataclasses.replace(algorithm, fixed_share=share)
            equal(fixed.predict({"shared": shared, "local": local}, x), MODEL.apply(whole, x))


def test_no_answer_sees_the_tokens_it_is_to_guess():
    """Shares at a position depend on the tokens up to it only, so a guess does too."""
    algorithm, _, shared, local, routing, batch = net_and_rows("lstm")
    model = {"shared": shared, "local": local, "routing": routing}
    later = batch.inputs.at[:, 2:].set((batch.inputs[:, 2:] + 1) % 5)
    for function in (algorithm.predict, algorithm.shared_shares):
        before, after = (np.asarray(function(model, tokens)) for tokens in (batch.inputs, later))
        np.testing.assert_array_equal(before[:, :2], after[:, :2])
        assert not np.array_equal(before[:, 2:], after[:, 2:])


def test_routing_nets_have_the_published_sizes():
    """336,158 (EMNIST) and 4,151,512 (CIFAR): the released nets, counted in ALGORITHMS section 5."""
    stages = ", ".join(["stem", *(f"stage_{stage}*" for stage in range(4)), "dense"])
    published = {
        336_158: (CNN(28, 28, 1, 62), "", (350, 150, 50)),
        4_151_512: (ResNet18(32, 32, 3, 10), stages, (1000, 750, 350, 150, 50)),
    }
    for size, (model, routed, widths) in published.items():
        net = routed_model(model, routed, widths).net
        leaves = jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0)))
        assert sum(leaf.size for leaf in leaves) == size


def test_normalisation_is_shared_unless_it_is_named():
    plain_routes = routed_model(ResNet18(8, 8, 1, 3, filters=2), "", (4,))
    assert len(plain_routes.names) == 21  # 20 convolutions and the last layer
    assert not any(name.endswith("norm") for name in plain_routes.names)
    assert routed_model(ResNet18(8, 8, 1, 3, filters=2), "stem_norm", (4,)).groups == (("stem_norm",),)


@pytest.mark.parametrize(
    ("model", "routed", "sentence"),
    [
        (MODEL, "dense_2", "routed names no layer with 'dense_2'. Did you mean 'dense_1'?"),
        (MODEL, "dense_0, dense_*", "routed must name a layer once, got 'dense_0' again with 'dense_*'"),
        (Linear(3, 2), "weights", "routed must be 'model' or left out for Linear, which has no named layers"),
    ],
)
def test_a_route_that_names_no_layer_is_refused(model, routed, sentence):
    with pytest.raises(RequestError) as refused:
        flow(model, routed=routed).misfit()
    assert sentence in str(refused.value)
