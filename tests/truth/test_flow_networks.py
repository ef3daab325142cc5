# SPDX-License-Identifier: Apache-2.0
"""Flow's routes through every kind of network: gradients, shares, ties, sizes."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import Flow
from idiolect.algorithms.flow import Working
from idiolect.core import tree
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData
from idiolect.models import CNN, MLP, CharacterLSTM, Linear, ResNet18
from idiolect.models.routing import routed_model
from idiolect.models.routing_net import Shares
from idiolect.objectives import ClientLoss, GlobalModel

MODEL = MLP(3, 3, (4,))
SMALL_NETS = {
    "mlp": (MODEL, (6, 3)),
    "linear": (Linear(3, 2), (6, 3)),
    "cnn": (CNN(8, 7, 1, 3, filters=(2, 3), hidden=4), (6, 8, 7, 1)),
    "lstm": (CharacterLSTM(5, 5, embedding=3, hidden=4, layers=2), (6, 4)),
}
TOKENS = ("states", "frequencies")
NETS = {name: (name, "states") for name in SMALL_NETS} | {"lstm by frequencies": ("lstm", "frequencies")}


def net_and_rows(name, token_routing="states"):
    """A net away from its start, whose zero biases put rectifiers at their kink; local layers; psi; a batch."""
    model, shape = SMALL_NETS[name]
    draw = np.random.default_rng(2)
    inputs = draw.integers(0, 5, size=shape).astype(np.int32) if name == "lstm" else draw.normal(size=shape)
    targets = draw.integers(0, 2, size=shape if name == "lstm" else shape[:1]).astype(np.int32)
    settings = {"epochs": 2, "batch_size": 2, "step_size": 0.3, "routing_widths": (4, 3), "routing_penalty": 0.5}
    algorithm = Flow(GlobalModel(ClientLoss(model=model)), token_routing=token_routing, **settings)
    server = jax.eval_shape(algorithm.init_server, jax.random.key(0))

    def away(shapes):
        return jax.tree.map(lambda leaf: jnp.asarray(0.5 * draw.normal(size=leaf.shape)), shapes)

    shared, routing = away(server.shared), away(server.routing)
    routes_of = algorithm._routes
    local = away(routes_of.start_local(server.shared))
    rows = ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(4, jnp.int32)).batch()
    return algorithm, routes_of, shared, local, routing, rows


@pytest.mark.parametrize("name", NETS)
def test_gradients_of_all_three_are_those_of_finite_differences(name):
    _, routes_of, shared, local, routing, batch = net_and_rows(*NETS[name])

    def value(w, v, psi):
        return routes_of.mixed_value(None, psi, w, v, batch)[0]

    both = jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))
    at = (shared, local, routing)
    gradients = both(*at)[1]
    for place in range(3):
        along = jax.tree.map(lambda leaf: np.random.default_rng(leaf.size).normal(size=leaf.shape), at[place])
        promised = float(tree.inner(gradients[place], along))
        assert promised != 0
        ends = []
        for h in (1e-6, -1e-6):
            moved = [*at]
            moved[place] = jax.tree.map(lambda leaf, d, h=h: leaf + h * d, at[place], along)
            ends.append(float(both(*moved)[0]))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(promised, rel=2e-6)


@pytest.mark.parametrize("name", NETS)
def test_shares_sum_to_one_and_soft_is_hard_when_they_are_one_hot(name):
    algorithm, routes_of, shared, local, routing, batch = net_and_rows(*NETS[name])
    x = batch.inputs
    shares = routes_of.predict_mixed(routing, shared, local, x)[1]
    np.testing.assert_allclose(shares.shared + shares.local, 1, rtol=1e-14)
    np.testing.assert_allclose(np.log(shares.shared), shares.log_shared, rtol=1e-12)
    assert shares.shared.shape == (*batch.targets.shape, len(algorithm.route_names))
    # a choice for every row and layer (and step), of both kinds: the net's own, made one-hot
    picked = shares.shared >= jnp.median(shares.shared)
    assert 0 < float(picked.mean()) < 1
    one_hot = Shares(picked.astype(float), 1 - picked.astype(float), None)

    everywhere, model, routes = jnp.ones_like(picked), algorithm.objective.client_loss.model, routes_of.routes

    @jax.jit
    def answers():
        hard = [routes.chosen(where, shared, local, x) for where in (picked, everywhere, ~everywhere)]
        return hard, [routes.mixed(one_hot, shared, local, x), model.apply(shared, x), model.apply(local, x)]

    # all one way is the shared model itself, or the local one
    for hard, soft in zip(*answers(), strict=True):
        np.testing.assert_allclose(hard, soft, rtol=1e-12, atol=1e-14)


def walk(psi, shared, local, tokens, weigh):
    """Flow for a text, position by position: psi reads the token's shared vector and both hidden states."""

    def dense(p, x):
        return x @ p["weights"] + p["bias"]

    def cell(p, x, h, c):
        i, f, g, o = jnp.split(x @ p["input"] + h @ p["recurrent"] + p["bias"], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    state, outputs, found = [(jnp.zeros((len(tokens), 4)), jnp.zeros((len(tokens), 4)))] * 2, [], []
    for token in tokens.T:
        flow = jnp.concatenate([shared["embedding"]["vectors"][token], state[0][0], state[1][0]], axis=1)
        q = []
        for j in range(4):  # embedding, two recurrent layers, dense; the trunk has two layers
            flow = jnp.maximum(dense(psi[f"trunk_{j}"], flow), 0) if j < 2 else flow
            q.append(jax.nn.softmax(dense(psi[f"exit_{j}"], flow), axis=1))
        found.append(jnp.stack([share[:, 0] for share in q], axis=1))
        q = [weigh(share) for share in q]
        x = sum(q[0][:, b : b + 1] * p["embedding"]["vectors"][token] for b, p in enumerate((shared, local)))
        for layer in range(2):
            ends = [cell(p[f"lstm_{layer}"], x, *state[layer]) for p in (shared, local)]
            state[layer] = tuple(sum(q[1 + layer][:, b : b + 1] * ends[b][k] for b in range(2)) for k in range(2))
            x = state[layer][0]
        outputs.append(sum(q[3][:, b : b + 1] * dense(p["dense"], x) for b, p in enumerate((shared, local))))
    return jnp.stack(outputs, axis=1), jnp.stack(found, axis=1)


def harden(share):
    first = (share[:, :1] >= 0.5).astype(float)
    return jnp.concatenate([first, 1 - first], axis=1)


@pytest.mark.parametrize("soft", [True, False])
def test_routes_that_read_states_equal_straight_line_code(soft):
    algorithm, _, shared, local, routing, batch = net_and_rows("lstm")
    algorithm = dataclasses.replace(algorithm, soft_inference=soft)
    model = {"shared": shared, "local": local, "routing": routing}
    outputs, shares = walk(routing, shared, local, batch.inputs, (lambda share: share) if soft else harden)
    assert 0 < float((shares >= 0.5).mean()) < 1  # both versions are taken
    np.testing.assert_allclose(algorithm.predict(model, batch.inputs), outputs, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(algorithm.shared_shares(model, batch.inputs), shares, rtol=1e-12)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_tie_goes_to_the_shared_layer_and_predict_is_hard_unless_told(precision):
    rounding = 1e-5 if precision == "float32" else 1e-13

    def equal(ours, theirs):
        assert ours.dtype == jnp.dtype(precision)
        np.testing.assert_allclose(ours, theirs, rtol=rounding, atol=rounding)

    with jax.enable_x64(precision == "float64"):
        algorithm, routes_of, shared, local, routing, batch = net_and_rows("mlp")
        x = batch.inputs
        equal(sum(routes_of.predict_mixed(routing, shared, local, x)[1][:2]), 1)
        even = tree.zeros(routing)  # both exits say 0: q_0 = 1/2 exactly
        model = {"shared": shared, "local": local, "routing": even}
        np.testing.assert_array_equal(algorithm.shared_shares(model, x), 0.5)
        equal(algorithm.predict(model, x), MODEL.apply(shared, x))
        soft = dataclasses.replace(algorithm, soft_inference=True)
        half = Shares(jnp.full(2, 0.5), jnp.full(2, 0.5), None)
        equal(soft.predict(model, x), routes_of.routes.mixed(half, shared, local, x))
        assert not np.allclose(soft.predict(model, x), MODEL.apply(shared, x))
        for share, whole in ((0.25, local), (0.5, shared), (1.0, shared)):  # figure 4c under hard inference
            fixed = dataclasses.replace(algorithm, fixed_share=share)
            equal(fixed.predict({"shared": shared, "local": local}, x), MODEL.apply(whole, x))


@pytest.mark.parametrize("token_routing", TOKENS)
def test_no_answer_sees_the_tokens_it_is_to_guess(token_routing):
    """Shares at a position depend on the tokens up to it only, so a guess does too."""
    algorithm, _, shared, local, routing, batch = net_and_rows("lstm", token_routing)
    model = {"shared": shared, "local": local, "routing": routing}
    later = batch.inputs.at[:, 2:].set((batch.inputs[:, 2:] + 1) % 5)
    for function in (algorithm.predict, algorithm.shared_shares):
        before, after = (np.asarray(function(model, tokens)) for tokens in (batch.inputs, later))
        np.testing.assert_array_equal(before[:, :2], after[:, :2])
        assert not np.array_equal(before[:, 2:], after[:, 2:])


def test_routing_nets_have_the_published_sizes():
    """336,158 (EMNIST) and 4,151,512 (CIFAR): the released nets, counted."""
    stages = ", ".join(["stem", *(f"stage_{stage}*" for stage in range(4)), "dense"])
    published = {
        336_158: (CNN(28, 28, 1, 62), "", (350, 150, 50)),
        4_151_512: (ResNet18(32, 32, 3, 10), stages, (1000, 750, 350, 150, 50)),
    }
    for size, (model, routed, widths) in published.items():
        net = routed_model(model, routed, widths).net
        leaves = jax.tree.leaves(jax.eval_shape(net.init, jax.random.key(0)))
        assert sum(leaf.size for leaf in leaves) == size


def test_a_text_model_without_states_is_told_to_route_by_frequencies():
    @dataclasses.dataclass(frozen=True)
    class Whole(CharacterLSTM):
        """A subclass, whose layers may be others."""

    model = Whole(5, 5, embedding=3, hidden=4)
    with pytest.raises(
        RequestError, match="token_routing must be 'frequencies' for Whole, which does not say that it wal"
    ):
        routed_model(model, "", (4,))
    assert routed_model(model, "", (4,), token_routing="frequencies").net.features == 5
    assert routed_model(model, "", (4,), fixed=True).net.init(jax.random.key(0)) == ()  # there is no psi


def test_normalisation_is_shared_unless_it_is_named():
    plain_routes = routed_model(ResNet18(8, 8, 1, 3, filters=2), "", (4,))
    assert len(plain_routes.names) == 21  # 20 convolutions and the last layer
    assert not any(name.endswith("norm") for name in plain_routes.names)
    assert routed_model(ResNet18(8, 8, 1, 3, filters=2), "stem_norm", (4,)).groups == (("stem_norm",),)


@pytest.mark.parametrize("token_routing", TOKENS)
def test_positions_without_a_target_teach_psi_nothing(token_routing):
    algorithm, _, shared, local, routing, batch = net_and_rows("lstm", token_routing)
    longer = batch._replace(
        inputs=jnp.concatenate([batch.inputs, jnp.zeros((6, 3), jnp.int32)], axis=1),
        targets=jnp.concatenate([batch.targets, jnp.full((6, 3), -1, jnp.int32)], axis=1),
    )
    at = Working(shared, routing, local, (), (), ((), ()))
    moved = [jax.jit(algorithm._move_routing)(jax.random.key(0), at, rows)[0].routing for rows in (batch, longer)]
    for mine, other in zip(*map(jax.tree.leaves, moved), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)
