# SPDX-License-Identifier: Apache-2.0
"""Objectives of Unified 2023: gradients against differences, splits, predictions, costs, and every refusal."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from idiolect.core.addressing import PerClient, address
from idiolect.core.checks import RequestError
from idiolect.core.data import Batch, WholeBatch
from idiolect.core.objective import Mixture, Objective
from idiolect.core.settings import check_settings
from idiolect.models import MLP, Linear, Location
from idiolect.objectives import APFL2, MAML, MT2, MX2, OBJECTIVES, WS2, ClientLoss, Residual
from idiolect.objectives.split import parameter_shapes, split_of

FEATURES, CLIENTS = 4, 5
LOSSES = {
    "squared": ClientLoss(model=Linear(FEATURES), criterion="squared", l2=0.2),
    "logistic": ClientLoss(model=Linear(FEATURES, bias=True), criterion="logistic", l2=0.1),
    "softmax": ClientLoss(model=Linear(FEATURES, 3), criterion="cross_entropy"),
}
CASES = {
    "mt2": (MT2, {"penalty": 0.7, "relaxation": 2.5}),
    "mx2": (MX2, {"penalty": 0.7}),
    "apfl2": (APFL2, {"relaxation": 1.5, "mixing": 0.3}),
    "ws2": (WS2, {"personal_part": "weights[1:3], bias"}),
    "residual": (Residual, {"shared_inputs": "0:3", "personal_inputs": "2:"}),
    "maml": (MAML, {"inner_step": 0.3}),
}
BOTH = [name for name in CASES if name != "maml"]


def batch_for(loss, rows=6, real=5, seed=0):
    """Rows of which the last are padding that would be seen if it leaked."""
    draw = np.random.default_rng(seed)
    inputs = draw.normal(size=(rows, FEATURES))
    inputs[real:] = 1e3
    targets = draw.integers(0, 2, rows) if loss.criterion != "squared" else draw.normal(size=rows)
    return Batch(jnp.asarray(inputs), jnp.asarray(targets), jnp.arange(rows) < real)


def make(name, loss="squared", **changes):
    kind, given = CASES[name]
    population = {} if name == "maml" else {"clients": CLIENTS}
    return kind(LOSSES[loss] if isinstance(loss, str) else loss, **{**given, **population, **changes})


def somewhere(objective, seed=3):
    """A point away from the start, in both blocks."""
    key = jax.random.key(seed)

    def moved(block, coordinate):
        if not jax.tree.leaves(block):
            return block
        flat, unravel = ravel_pytree(block)
        return unravel(flat + np.random.default_rng(coordinate).normal(size=flat.shape))

    return moved(objective.init_shared(key), 1), moved(objective.init_personal(key), 2)


def differences(value, block, step=1e-5):
    """Central differences of a scalar function of one block."""
    flat, unravel = ravel_pytree(block)
    gradients = []
    for direction in np.eye(flat.size) * step:
        gradients.append((value(unravel(flat + direction)) - value(unravel(flat - direction))) / (2 * step))
    return np.array(gradients)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("name", "changes"), [(name, {"rescale": choice}) for name in BOTH for choice in (True, False)] + [("maml", {})]
)
def test_gradients_are_those_of_the_loss(name, changes, loss):
    objective = make(name, loss, **changes)
    shared, personal = somewhere(objective)
    batch, key = batch_for(objective.client_loss), jax.random.key(0)
    value = jax.jit(lambda w, b: objective.loss(key, w, b, batch)[0])
    by_shared = ravel_pytree(objective.gradient_shared(key, shared, personal, batch)[0])[0]
    np.testing.assert_allclose(by_shared, differences(lambda w: value(w, personal), shared), rtol=1e-6, atol=1e-8)
    if not objective.has_personal:
        return
    by_personal = ravel_pytree(objective.gradient_personal(key, shared, personal, batch)[0])[0]
    np.testing.assert_allclose(by_personal, differences(lambda b: value(shared, b), personal), rtol=1e-6, atol=1e-8)
    both, _ = objective.gradients(key, shared, personal, batch)
    automatic, _ = Objective.gradients(objective, key, shared, personal, batch)
    for mine, theirs in zip(jax.tree.leaves(both), jax.tree.leaves(automatic), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ravel_pytree(both[0])[0], by_shared, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ravel_pytree(both[1])[0], by_personal, rtol=1e-12, atol=1e-14)


def test_losses_are_the_formulas_of_the_table():
    # f'(v) = (1/2)(v - 3)^2: one row of input 1 and target 3; M = 4, so u = w/2
    loss = ClientLoss(model=Location(1), criterion="squared")
    batch = Batch(jnp.ones((1, 1)), jnp.full((1, 1), 3.0))
    w, beta = {"location": jnp.array([4.0])}, {"location": jnp.array([5.0])}  # u = 2: f'(u) = 1/2, f'(beta) = 2
    value = lambda objective: float(objective.loss(None, w, beta, batch)[0])  # noqa: E731
    assert value(MT2(loss, penalty=0.2, relaxation=10.0, clients=4)) == pytest.approx(10 * 0.5 + 2 + 0.1 * 9)
    assert value(MX2(loss, penalty=0.2, clients=4)) == pytest.approx(2 + 0.1 * 9)
    # z = 0.75 * 5 + 0.25 * 2 = 4.25: f'(z) = 1.25^2 / 2
    assert value(APFL2(loss, relaxation=10.0, mixing=0.25, clients=4)) == pytest.approx(5 + 1.25**2 / 2)
    assert value(Residual(loss, clients=4)) == pytest.approx((2 + 5 - 3) ** 2 / 2)
    # w - a (w - 3) with a = 1/4: 4 - 0.25 = 3.75
    assert value(MAML(loss, inner_step=0.25)) == pytest.approx(0.75**2 / 2)
    assert value(MX2(loss, penalty=0.2, rescale=False)) == pytest.approx(2 + 0.1 * 1)  # u = w = 4


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("name", BOTH)
def test_the_shared_model_starts_where_the_model_starts(name, rescale):
    loss = ClientLoss(model=MLP(FEATURES, 2, (3,)), criterion="cross_entropy")
    changes = {"personal_part": "dense_0.weights[1:]"} if name == "ws2" else {}
    if name == "residual":
        changes = {"shared_inputs": "", "personal_inputs": ""}
    objective = make(name, loss, rescale=rescale, **changes)
    key = jax.random.key(7)
    start = loss.init(key)
    shared, personal = objective.init_shared(key), objective.init_personal(key)
    if name == "ws2":
        rebuilt = objective.deployed(shared, personal)
        assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-14), rebuilt, start))
        return
    for mine, theirs in zip(jax.tree.leaves(objective.to_model(shared)), jax.tree.leaves(start), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-14)
    assert jax.tree.all(jax.tree.map(np.array_equal, personal, start))
    back = objective.from_model(objective.to_model(shared))
    assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, rtol=1e-14), back, shared))


def test_what_clients_predict_with():
    loss = LOSSES["squared"]
    batch = batch_for(loss)
    for name in ("mt2", "mx2"):
        objective = make(name)
        shared, personal = somewhere(objective)
        assert objective.deployed(shared, personal) is personal
        assert objective.personalize(None, shared, personal, batch)[0] is personal
    objective = make("apfl2")
    shared, personal = somewhere(objective)
    expected = 0.7 * np.asarray(personal["weights"]) + 0.3 * np.asarray(shared["weights"]) / np.sqrt(CLIENTS)
    np.testing.assert_allclose(objective.deployed(shared, personal)["weights"], expected, rtol=1e-12)
    objective = make("residual")
    shared, personal = somewhere(objective)
    model = objective.deployed(shared, personal)
    x = np.asarray(batch.inputs)
    u, b = model["shared"], model["personal"]
    outputs = x[:, :3] @ u["weights"] + u["bias"] + x[:, 2:] @ b["weights"] + b["bias"]
    np.testing.assert_allclose(objective.predict(model, batch.inputs), outputs, rtol=1e-12)
    assert set(model) == {"shared", "personal"}


def test_residual_predictions_are_scores_of_both_classes_under_the_logistic_loss():
    objective = make("residual", "logistic")
    model = objective.deployed(*somewhere(objective))
    inputs = batch_for(objective.client_loss).inputs
    scores = objective.predict(model, inputs)
    assert scores.shape == (6, 2)
    np.testing.assert_array_equal(scores[:, 0], 0.0)
    pictures = inputs.reshape(6, 2, 2)  # inputs of any shape are flattened before columns are taken
    np.testing.assert_array_equal(objective.predict(model, pictures), scores)


def test_apfl_mixes_by_the_client():
    shares = np.array([0.0, 0.3, 1.0])
    objective = make("apfl2", mixing=PerClient(jnp.asarray(shares)), clients=3)
    check_settings(objective)
    shared, personal = somewhere(objective)
    for client, share in enumerate(shares):
        mine = address(objective, client)
        expected = make("apfl2", mixing=float(share), clients=3).deployed(shared, personal)
        np.testing.assert_allclose(mine.deployed(shared, personal)["weights"], expected["weights"], rtol=1e-14)


# what one gradient counts, in units of (rows, rows, rows, rows) and (passes, passes):
# shared, personal, both, samples, full_shared, full_personal
COSTS = {
    ("mt2", "shared"): (1, 0, 0, 1, 1, 0),
    ("mt2", "personal"): (0, 1, 0, 1, 0, 1),
    ("mt2", "both"): (1, 1, 0, 2, 1, 1),  # a pass at u and one at beta share nothing
    ("mx2", "shared"): (1, 0, 0, 0, 1, 0),  # no row is read
    ("mx2", "personal"): (0, 1, 0, 1, 0, 1),
    ("mx2", "both"): (0, 0, 1, 1, 1, 1),
    ("apfl2", "shared"): (1, 0, 0, 2, 1, 0),  # at u and at z
    ("apfl2", "personal"): (0, 1, 0, 1, 0, 1),
    ("apfl2", "both"): (0, 0, 1, 2, 1, 1),
    ("ws2", "shared"): (1, 0, 0, 1, 1, 0),
    ("ws2", "personal"): (0, 1, 0, 1, 0, 1),
    ("ws2", "both"): (0, 0, 1, 1, 1, 1),
    ("residual", "both"): (0, 0, 1, 1, 1, 1),
    ("maml", "shared"): (1, 0, 0, 2, 1, 0),  # the inner and the outer gradient
}


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "batch"])
@pytest.mark.parametrize(("name", "block"), COSTS)
def test_costs_are_what_is_computed(name, block, whole):
    objective = make(name)
    shared, personal = somewhere(objective)
    batch = batch_for(objective.client_loss)
    batch = WholeBatch(*batch) if whole else batch
    gradient = objective.gradients if block == "both" else getattr(objective, f"gradient_{block}")
    _, tally = gradient(None, shared, personal, batch)
    units = COSTS[name, block]
    expected = [5 * unit for unit in units[:4]] + [int(whole) * unit for unit in units[4:]]
    found = [tally.shared, tally.personal, tally.both, tally.samples, tally.full_shared, tally.full_personal]
    assert [int(count) for count in found] == expected
    assert int(tally.forward) == int(tally.proximal) == 0


def test_padding_is_not_read_through_any_gradient():
    for name in CASES:
        objective = make(name)
        shared, personal = somewhere(objective)
        padded = batch_for(objective.client_loss)
        bare = Batch(padded.inputs[:5], padded.targets[:5])
        pair = [objective.gradients(None, shared, personal, batch)[0] for batch in (padded, bare)]
        for left, right in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-14)


def test_maml_on_a_quadratic():
    # f'(v) = (1/2)(v - o)' H (v - o), H diagonal: gradient (I - a H) H ((I - a H)(w - o)), and o + (I - a H)(w - o)
    curvature, optimum, w = np.array([2.0, 0.5, 1.0]), np.array([1.0, -2.0, 0.5]), np.array([0.3, 0.7, -1.1])
    loss = ClientLoss(model=Location(3), criterion="squared")
    root = np.sqrt(curvature)[None]
    batch = WholeBatch(jnp.asarray(root), jnp.asarray(root * optimum))
    objective, shared = MAML(loss, inner_step=0.3), {"location": jnp.asarray(w)}
    gradient, _ = objective.gradient_shared(None, shared, (), batch)
    kept = 1 - 0.3 * curvature
    np.testing.assert_allclose(gradient["location"], kept * curvature * kept * (w - optimum), rtol=1e-12)
    model, cost = objective.personalize(None, shared, (), batch)
    np.testing.assert_allclose(model["location"], optimum + kept * (w - optimum), rtol=1e-12)
    assert (cost.shared, cost.samples, cost.full_shared) == (1, 1, 1)
    assert objective.deployed(shared, ()) is shared
    assert not objective.keeps_convexity
    assert not objective.has_personal


def test_maml_gradient_is_the_hessian_formula_on_a_logistic_loss():
    objective = make("maml", "logistic")
    loss, batch = objective.client_loss, batch_for(objective.client_loss)
    flat, unravel = ravel_pytree(somewhere(objective)[0])
    value = lambda v: loss.value(None, unravel(v), batch)[0]  # noqa: E731
    hessian, gradient = jax.hessian(value)(flat), jax.grad(value)
    expected = (np.eye(flat.size) - 0.3 * hessian) @ gradient(flat - 0.3 * gradient(flat))
    found, _ = objective.gradient_shared(None, unravel(flat), (), batch)
    np.testing.assert_allclose(ravel_pytree(found)[0], expected, rtol=1e-10)


NETWORK = MLP(FEATURES, 2, (3, 5))
EVERY = {f"dense_{layer}.{leaf}" for layer in range(3) for leaf in ("weights", "bias")}
DEEP = MLP(2, 2, (2,) * 11)  # twelve layers: dense_11 is the last, and sorted names would say dense_9


@pytest.mark.parametrize(
    ("model", "part", "personal"),
    [
        (NETWORK, "head", {"dense_2.weights": (5, 2), "dense_2.bias": (2,)}),
        (NETWORK, "body", {name: None for name in EVERY if not name.startswith("dense_2")}),
        (NETWORK, "dense_1", {"dense_1.weights": (3, 5), "dense_1.bias": (5,)}),
        (NETWORK, "dense_1.bias", {"dense_1.bias": (5,)}),
        (NETWORK, "*.bias", {"dense_0.bias": (3,), "dense_1.bias": (5,), "dense_2.bias": (2,)}),
        (NETWORK, "dense_0, dense_2.bias", {"dense_0.weights": None, "dense_0.bias": None, "dense_2.bias": (2,)}),
        (NETWORK, "dense_0.weights[1:3]", {"dense_0.weights": (2, 3)}),
        (DEEP, "head", {"dense_11.weights": (2, 2), "dense_11.bias": (2,)}),
        (Linear(FEATURES, 3), "head", {"bias": (3,)}),
        (Linear(FEATURES, 3), "body", {"weights": (3, 4)}),
        (Linear(FEATURES, 3), "weights[2:]", {"weights": (1, 4)}),
        (Linear(FEATURES, 3), "weights[:, 2:]", {"weights": (3, 2)}),
        (Linear(FEATURES, 3), "weights[:,:1], weights[:, -1:]", {"weights": (3, 2)}),
        (Linear(FEATURES), "weights[2:], bias", {"weights": (2,), "bias": ()}),
        (Location(FEATURES), "location[:3]", {"location": (3,)}),
    ],
)
def test_splits(model, part, personal):
    loss = ClientLoss(model=model, criterion="squared")
    objective = WS2(loss, personal_part=part, clients=CLIENTS)
    shared, own = somewhere(objective)
    assert set(own) == set(personal)
    assert all(own[name].shape == shape for name, shape in personal.items() if shape is not None)
    whole = objective.deployed(shared, own)
    start = model.init(jax.random.key(0))
    assert jax.tree.structure(whole) == jax.tree.structure(start)
    assert jax.tree.all(jax.tree.map(lambda a, b: a.shape == b.shape, whole, start))
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(block)) for block in (shared, own, start)]
    assert sizes[0] + sizes[1] == sizes[2]  # every number is in exactly one block
    again = objective.split.divide(whole)
    for block, given in zip(again, (objective.to_model(shared), own)):
        assert set(block) == set(given)
        assert all(np.array_equal(block[name], given[name]) for name in given)


def test_a_slice_takes_its_own_rows():
    split = split_of(Linear(5, bias=False), "weights[1:3]")
    shared, personal = split.divide({"weights": np.arange(5.0)})
    np.testing.assert_array_equal(shared["weights"], [0.0, 3.0, 4.0])
    np.testing.assert_array_equal(personal["weights"], [1.0, 2.0])
    np.testing.assert_array_equal(split.join(shared, personal)["weights"], np.arange(5.0))


def test_parameters_keep_the_order_of_the_model():
    assert list(parameter_shapes(DEEP))[::2] == [(f"dense_{layer}", "weights") for layer in range(12)]
    assert parameter_shapes(Linear(3)) == {("weights",): (3,), ("bias",): ()}


@pytest.mark.parametrize(
    ("model", "part", "message"),
    [
        (
            Linear(4, bias=False),
            "head",
            "'head' needs a model that has a body beside its head, got Linear with weights",
        ),
        (Linear(4), "*", "leaves the shared block empty. Name some of the model's parameters: weights, bias"),
        (Linear(4), "weights[0:4], bias", "leaves the shared block empty"),
        (
            Linear(4, bias=False),
            "body",
            "bias = true, a network of several layers such as mlp, or name a piece such as weig",
        ),
        (MLP(4, 3, ()), "body", "'body' needs a model that has a body beside its head, got MLP with dense_0 alone"),
        (MLP(4, 3, ()), "head", "such as mlp, or name a piece such as dense_0.bias."),
        (Linear(4), "wieghts", "unknown part 'wieghts'. Did you mean 'weights'?"),
        (NETWORK, "dense_7", "unknown part 'dense_7'. Did you mean 'dense_"),
        (NETWORK, "dense", "unknown part 'dense'."),
        (NETWORK, "dense_0[1:]", "unknown part 'dense_0[1:]'"),  # a layer has no first axis of its own
        (Linear(4), "", "must be parts separated by commas"),
        (Linear(4), "bias,", "must be parts separated by commas"),
        (
            Linear(4),
            "weights[1]",
            "must be parts separated by commas, such as 'head', 'dense_1.bias' or 'weights[10:]'",
        ),
        (Linear(4), "weights[6:]", "must slice an axis within its length, got 'weights[6:]' for weights"),
        (Linear(4, 3), "weights[:, 4:]", r"must slice an axis within its length, got 'weights[:, 4:]' for weights"),
        (Linear(4, 3), "weights[:, :, 1:]", r"must slice an axis within its length"),
        (
            Linear(4, 3),
            "weights[1:], weights[:, 1:]",
            r"must slice one axis of a parameter, got 'weights[:, 1:]' after",
        ),
        (Linear(4, 3), "weights[-:]", "must be parts separated by commas"),
        (Linear(4), "bias[0:]", "got 'bias[0:]' for bias of shape ()"),
    ],
)
def test_splits_that_are_refused(model, part, message):
    objective = WS2(ClientLoss(model=model, criterion="squared"), personal_part=part, clients=CLIENTS)
    with pytest.raises(RequestError) as caught:
        objective.init_shared(jax.random.key(0))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shared_inputs": "0:5"}, "Residual.shared_inputs must be a range of the 4 input columns, such as '0:4', got"),
        ({"personal_inputs": "3:3"}, "Residual.personal_inputs must be a range"),
        ({"personal_inputs": "-1:"}, "got '-1:'. Leave it empty for all of them."),
        ({"personal_inputs": "first"}, "got 'first'"),
    ],
)
def test_columns_that_are_refused(changes, message):
    objective = make("residual", **changes)
    with pytest.raises(RequestError) as caught:
        objective.deployed(objective.init_shared(jax.random.key(0)), objective.init_personal(jax.random.key(0)))
    assert message in str(caught.value)


def test_the_location_model_has_no_range_of_columns():
    objective = Residual(ClientLoss(model=Location(4), criterion="squared"), shared_inputs="0:2", clients=2)
    with pytest.raises(RequestError, match=r"must be empty for the location model, got 0:2\. Use the linear model"):
        objective.init_shared(jax.random.key(0))


def test_a_model_without_features_cannot_be_narrowed():
    @dataclasses.dataclass(frozen=True)
    class Constant(Location):
        features: int = dataclasses.field(init=False, default=None)

    objective = Residual(ClientLoss(model=Constant(), criterion="squared"), clients=2)
    with pytest.raises(RequestError, match=r"features that can be changed, got Constant\. Use linear or mlp"):
        objective.init_shared(jax.random.key(0))


@pytest.mark.parametrize("name", BOTH)
def test_rescaling_needs_the_number_of_clients(name):
    objective = make(name, clients=0)
    message = f"{type(objective).__name__}.clients must be at least 1 with rescale, got 0. Give the number of clients M"
    with pytest.raises(RequestError, match=message):
        objective.init_shared(jax.random.key(0))
    plain = make(name, clients=0, rescale=False)
    assert jax.tree.leaves(plain.init_shared(jax.random.key(0)))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("apfl2", {"mixing": 1.5}, "APFL2.mixing must be at least 0 and at most 1, got 1.5. 0 predicts with"),
        ("apfl2", {"mixing": PerClient(np.array([0.5, -0.1]))}, "APFL2.mixing must be at least 0 and at most 1"),
        ("apfl2", {"relaxation": -1.0}, "APFL2.relaxation must be at least 0"),
        ("mt2", {"penalty": -1.0}, "MT2.penalty must be at least 0, got -1"),
        ("mt2", {"relaxation": float("nan")}, "MT2.relaxation must be at least 0, got nan"),
        ("mx2", {"penalty": -0.5}, "MX2.penalty must be at least 0, got -0.5. 0 trains every client alone."),
        ("maml", {"inner_step": -0.1}, "MAML.inner_step must be at least 0"),
    ],
)
def test_values_out_of_range_are_refused(name, wrong, message):
    with pytest.raises(RequestError) as caught:
        check_settings(make(name, **wrong))
    assert message in str(caught.value)


def test_the_registry_has_defaults_for_all():
    loss = ClientLoss(model=MLP(FEATURES, 2), criterion="cross_entropy")
    for kind in OBJECTIVES.values():
        objective = kind(loss)
        check_settings(objective)
        documented = [field for field in dataclasses.fields(kind) if field.name != "client_loss"]
        assert all(field.metadata["doc"] for field in documented)
    assert isinstance(MX2(loss), Mixture)
    assert [name for name, kind in OBJECTIVES.items() if issubclass(kind, Mixture)] == ["mx2"]
    assert [name for name, kind in OBJECTIVES.items() if not kind.keeps_convexity] == ["maml"]


def test_the_contract_of_an_objective_is_short():
    """What few of them need is a protocol beside it: Prepares, Checks, Settles, Represents, Routable."""
    assert len([name for name in {**vars(Objective), **Objective.__annotations__} if not name.startswith("_")]) <= 14
