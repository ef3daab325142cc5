# SPDX-License-Identifier: Apache-2.0
"""Flow (2023): whole rounds against straight-line code, and its invariants."""

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
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose
from idiolect.engines.start import wire_types
from idiolect.models import MLP, CharacterLSTM, Linear
from idiolect.models.routing import routed_model
from idiolect.objectives import ClientLoss, GlobalModel

SIZES, FEATURES, CLASSES = (5, 8, 1, 4), 3, 3
CLIENTS, ROUNDS, SEED, ETA, GAMMA = len(SIZES), 2, 3, 0.3, 0.2
MODEL = MLP(FEATURES, CLASSES, (4,))
BATCHING = {"epochs": 2, "batch_size": 2}
SMALL = {"routing_widths": (5,), "step_size": ETA, "routing_penalty": GAMMA, "clients": CLIENTS}


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


# --- the reference: plain code of the method for a net of two dense layers, rows by rows ---


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


def descend(params, gradient):
    return jax.tree.map(lambda a, b: a - ETA * b, params, gradient)


def parts(key, data, n, percent=50):
    """(Z_l, Z_g) of one client as batches of row numbers, as the package draws them; percent 0: both are all rows."""
    order = np.asarray(draw_split(jax.random.fold_in(key, 0), data))[:n] if percent else np.arange(n)
    cut = n * percent // 100
    found = []
    for place, rows in ((1, order[:cut] if percent else order), (2, order[cut:])):
        padded = jnp.asarray(np.resize(rows, max(SIZES)) if len(rows) else np.zeros(max(SIZES), np.int32))
        numbers = ClientData(padded, padded, jnp.asarray(len(rows), jnp.int32))
        drawn = draw_two(jax.random.fold_in(key, place), numbers)[:, : len(rows)]
        walk = [rows[line][i : i + 2] for line in np.asarray(drawn) for i in range(0, len(rows), 2)]
        found.append(walk)
    assert sorted([*order[:cut], *order[cut:]]) == list(range(n))
    return found


def client(key, w, psi, data, n, order="alternating", adapt=("psi", "w"), second=None, percent=50, own_loss=True):
    x, y = np.asarray(data.inputs), np.asarray(data.targets)
    own, ours = parts(key, data, n, percent)
    v, spent = second or w, {"personal": 0, "shared": 0}
    for rows in own:
        v = descend(v, D_PLAIN(v, x[rows], y[rows]))
        spent["shared" if second else "personal"] += len(rows)  # pi_flow has no block of a client's own
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


def reference(w, psi, data, order="alternating", second=None, percent=50, own_loss=True):
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
    models, cost = algorithm.models(key, algorithm.deliver(key, server), (), rows)
    model = models.personal
    return model, cost.counters()


@jax.jit
def draw_two(key, numbers):
    return batches.draw_orders(key, 2, numbers)


@jax.jit
def draw_split(key, data):
    return batches.draw_orders(key, 1, data)[0]


VARIANTS = {
    "alternating": {},
    "printed": {"shared_loss": "mixture"},
    "routing_first": {"training_order": "routing_first", "shared_loss": "mixture"},
    "shared_first": {"training_order": "shared_first", "shared_loss": "mixture"},
    "no split": {"split_rows": "never"},
    "split in training": {"split_rows": "training"},
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
    percent = 0 if settings.get("split_rows") == "never" else percent
    second = server.second or None
    own_loss = algorithm.shared_loss == "own"
    w, psi, second, spent = reference(server.shared, server.routing, data, order, second, percent, own_loss)
    close((run.server.shared, run.server.routing), (w, psi))
    close(run.server.second, second or ())
    counted = run.tally()
    assert {block: counted[block] for block in spent} == spent
    assert counted["samples"] == sum(spent.values())
    assert counted["both"] == counted["forward"] == counted["full_shared"] == counted["full_personal"] == 0

    for adaptation, adapt in {"routing": ("psi",), "both": ("psi", "w"), "none": ()}.items():
        both = adaptation == "both" and order == "alternating"  # training orders are of rounds only
        if variant != "alternating" and not both and not (second and adaptation == "none"):
            continue
        adapting = dataclasses.replace(algorithm, adaptation=adaptation)
        for m in (1, 2):
            key = keys.client_key(keys.root_key(SEED), Purpose.PERSONAL_MODEL, ROUNDS, m)
            rows = tree.take(data, m)
            model, cost = personal_model(adapting, key, run.server, rows)
            if second:  # nothing is the client's own
                close(model, {"shared": w, "local": second, "routing": psi})
                continue
            cut = percent if algorithm.split_rows == "always" else 0
            end = client(key, w, psi, rows, SIZES[m], adapt=adapt, percent=cut, own_loss=own_loss)
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
    assert (int(cost.personal), int(cost.shared)) == (0, 4)  # psi and w_g have two passes over the row
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

        local = dataclasses.replace(fixed, fixed_share=0.0, shared_loss="mixture")  # the printed rule alone
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


@pytest.mark.parametrize(
    ("model", "routed", "sentence"),
    [
        (MODEL, "dense_2", "routed names no layer with 'dense_2'. Did you mean 'dense_1'?"),
        (MODEL, "dense_0, dense_*", "routed must name a layer once, got 'dense_0' again with 'dense_*'"),
        (
            Linear(3, 2),
            "weights",
            "Linear, which has no named layers, got 'weights'; a subclass of idiolect.models.Layered routes by layer",
        ),
    ],
)
def test_a_route_that_names_no_layer_is_refused(model, routed, sentence):
    with pytest.raises(RequestError) as refused:
        fit_of(flow(model, routed=routed))
    assert sentence in str(refused.value)


def test_two_whole_models_are_weighed_by_one_exit():
    """`routed = "model"`: outputs are mixed, or one of both models answers; a text's states belong to one model."""
    routes = routed_model(MODEL, "model", (5,))
    psi, ours, own = (part.init(jax.random.key(i)) for i, part in enumerate((routes.net, MODEL, MODEL)))
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(6, FEATURES)))
    soft, shares = routes.soft(psi, ours, own, rows)
    first, second = MODEL.apply(ours, rows), MODEL.apply(own, rows)
    assert (routes.names, shares.shared.shape) == (("model",), (6, 1))
    close(soft, shares.shared * first + shares.local * second)
    close(routes.hard(psi, ours, own, rows)[0], jnp.where(shares.shared >= 0.5, first, second))
    close((routes.local(ours), routes.alone(ours, own, rows)), (ours, second))
    with pytest.raises(RequestError, match='token_routing must be "frequencies"'):
        fit_of(flow(CharacterLSTM(4, 4, embedding=2, hidden=3, layers=1), routed="model"))
