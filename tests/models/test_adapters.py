# SPDX-License-Identifier: Apache-2.0
"""Modules of Flax (linen, nnx) and Equinox as models: their own outputs and gradients, training, splits, refusals."""

from __future__ import annotations

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from idiolect.algorithms import LocalSGD, PartialAveraging
from idiolect.core import RequestError, keys
from idiolect.core.data import Batch
from idiolect.data.federation import Federation
from idiolect.data.split import Split
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.simulate import Options, Training, simulate
from idiolect.models import from_equinox, from_flax
from idiolect.objectives import WS2, ClientLoss, GlobalModel


class LinenNet(linen.Module):
    """Names of layers out of alphabetical order, and dropout."""

    @linen.compact
    def __call__(self, x, train: bool = False):
        x = linen.relu(linen.Dense(8, name="trunk")(x))
        return linen.Dense(3, name="answer")(linen.Dropout(0.1, deterministic=not train)(x))


class NnxNet(nnx.Module):
    """The same; blocks in a list."""

    def __init__(self, rngs):
        self.trunk = nnx.List([nnx.Linear(3, 8, rngs=rngs)])
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.answer = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.answer(self.drop(nnx.relu(self.trunk[0](x))))


class EquinoxNet(eqx.Module):
    """The same, for one row."""

    trunk: list
    drop: eqx.nn.Dropout
    answer: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.trunk = [eqx.nn.Linear(3, 8, key=first)]
        self.drop = eqx.nn.Dropout(0.1)
        self.answer = eqx.nn.Linear(8, 3, key=second)

    def __call__(self, x, *, key=None):
        return self.answer(self.drop(jax.nn.relu(self.trunk[0](x)), key=key))


class LinenNormal(linen.Module):
    """With batch statistics."""

    @linen.compact
    def __call__(self, x, train: bool = False, mask=None):
        x = linen.Dense(4, name="trunk")(x)
        rows = None if mask is None else mask[:, None]
        x = linen.BatchNorm(use_running_average=not train, momentum=0.9)(x, mask=rows)
        return linen.Dense(3, name="answer")(linen.relu(x))


class NnxNormal(nnx.Module):
    """With batch statistics."""

    def __init__(self, rngs):
        self.trunk = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
        self.answer = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x, mask=None):
        rows = None if mask is None else mask[:, None]
        return self.answer(nnx.relu(self.norm(self.trunk(x), mask=rows)))


MODELS = {
    "linen": from_flax(LinenNet(), (3,)),
    "nnx": from_flax(NnxNet, (3,)),
    "equinox": from_equinox(EquinoxNet, (3,)),
}
FIRST = {"linen": "trunk", "nnx": "trunk_0", "equinox": "trunk_0"}
MATRIX = {"linen": "kernel", "nnx": "kernel", "equinox": "weight"}


def batch():
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(5, 3)).astype(np.float32), draw.integers(0, 3, 5).astype(np.int32)
    return Batch(jnp.asarray(inputs), jnp.asarray(targets), jnp.arange(5) < 4)


def own_pass(kind):
    """(params in the library's form, outputs as a function of them), from the same start as the model's."""
    key = keys.root_key(3)
    if kind == "linen":
        variables = LinenNet().init(key, jnp.zeros((1, 3)))
        return variables["params"], lambda params, x: LinenNet().apply({"params": params}, x)
    if kind == "nnx":
        graph, params, rest = nnx.split(NnxNet(nnx.Rngs(key)), nnx.Param, ...)

        def outputs(params, x):
            module = nnx.merge(graph, params, rest)
            module.eval()
            return module(x)

        return params, outputs
    arrays, fixed = eqx.partition(eqx.nn.inference_mode(EquinoxNet(key)), eqx.is_inexact_array)
    return arrays, lambda arrays, x: jax.vmap(eqx.combine(arrays, fixed))(x)


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_and_gradients_are_the_modules_own(kind):
    model, rows = MODELS[kind], batch()
    params, outputs = own_pass(kind)
    ours = model.init(keys.root_key(3))
    assert list(ours) == [FIRST[kind], "answer"]  # as they are used, so that the last is the head
    answers = jax.jit(model.apply)(ours, rows.inputs), jax.jit(outputs)(params, rows.inputs)
    np.testing.assert_allclose(*answers, rtol=1e-6)

    def loss(params):
        logs = jax.nn.log_softmax(outputs(params, rows.inputs[:4]))
        return -jnp.mean(logs[jnp.arange(4), rows.targets[:4]])

    theirs = jax.tree.leaves(jax.jit(jax.grad(loss))(params))
    plain = jax.jit(jax.grad(lambda v: ClientLoss(model=_Still(model)).value(None, v, rows)[0]))(ours)
    found = sorted(float(jnp.sum(jnp.square(leaf))) for leaf in jax.tree.leaves(plain))
    expected = sorted(float(jnp.sum(jnp.square(leaf))) for leaf in theirs)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    matrix = plain["answer"][MATRIX[kind]]
    assert any(leaf.shape == matrix.shape and np.allclose(leaf, matrix, atol=1e-6) for leaf in theirs)


class _Still:
    """A model that trains as it predicts."""

    def __init__(self, model):
        self.model = model

    def observe(self, key, params, inputs, mask):
        return self.model.apply(params, inputs), {}


@pytest.mark.parametrize("kind", MODELS)
def test_dropout_follows_the_key_and_is_off_in_prediction(kind):
    model, rows = MODELS[kind], batch()
    params = model.init(keys.root_key(0))
    train = jax.jit(model.train)
    same, again, other = (np.asarray(train(keys.root_key(seed), params, 1 + rows.inputs**2)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(same, again)
    assert np.abs(same - other).max() > 0
    calm = model.apply(params, 1 + rows.inputs**2)
    assert np.abs(np.asarray(calm) - same).max() > 0
    flat = model.apply(params, (1 + rows.inputs**2).reshape(5, 3))
    np.testing.assert_array_equal(calm, flat)


def shifted(rows=24):
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(3 * rows, 3)).astype(np.float32)
    targets = inputs.argmax(axis=1).astype(np.int32)
    owner = np.repeat(np.arange(3), rows)
    inputs += owner[:, None]
    return Federation.from_arrays(inputs, targets, owner, classes=("a", "b", "c"), split=Split(0.75, 0.0, 0.25))


@pytest.mark.parametrize("kind", ["linen", "equinox"])  # nnx: below, and in docs/networks.md
def test_fedavg_learns_and_fedper_keeps_the_head(kind):
    loss = ClientLoss(model=MODELS[kind])
    training = Training(rounds=15, record_every=15, executor="batched")
    common = {"epochs": 1, "batch_size": 4, "step_size": 0.3}
    run = simulate(LocalSGD(GlobalModel(loss), **common), shifted(), training)
    history = run.recorder.last["test"]["shared"]["log_loss"]
    assert float(np.mean(history)) < 0.95  # by chance log 3 = 1.0986
    parted = PartialAveraging(WS2(loss, personal_part="head", rescale=False), **common)
    run = simulate(parted, shifted(), Training(rounds=1, record_every=1, executor="looped"))
    assert sorted(run.states.personal) == ["answer.bias", f"answer.{MATRIX[kind]}"]
    assert all(name.startswith(f"{FIRST[kind]}.") for name in run.server.shared)
    assert np.abs(np.diff(run.states.personal["answer.bias"], axis=0)).min() > 0
    # 3 x 8 + 8 numbers of the first layer, 4 bytes each, to three clients
    assert run.history[-1]["download_bytes"] == 3 * 4 * 32


NORMAL = {"linen": lambda: from_flax(LinenNormal(), (3,)), "nnx": lambda: from_flax(NnxNormal, (3,))}


@pytest.mark.parametrize("kind", NORMAL)
def test_batch_statistics_run_with_masked_rows_left_out(kind):
    model, rows = NORMAL[kind](), batch()
    assert model.keeps_statistics
    params = model.init(keys.root_key(0))
    (layer,) = set(params) - {"trunk", "answer"}
    _, seen = model.observe(None, params, rows.inputs, rows.mask)
    inside = np.asarray(rows.inputs[:4] @ params["trunk"]["kernel"] + params["trunk"]["bias"])
    np.testing.assert_allclose(seen[f"{layer}.running_mean"], 0.1 * inside.mean(0), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(seen[f"{layer}.running_var"], 0.9 + 0.1 * inside.var(0), rtol=1e-4)


def test_fedbn_keeps_batch_statistics_and_goes_on_from_a_checkpoint(tmp_path):
    def algorithm():  # made anew, as another process would
        objective = WS2(ClientLoss(model=NORMAL["nnx"]()), personal_part="*norm*", rescale=False)
        return PartialAveraging(objective, epochs=1, batch_size=4)

    whole, half = (Training(rounds=rounds, record_every=1, executor="looped") for rounds in (2, 1))
    first = algorithm()
    run = simulate(first, shifted(6), whole)
    means = np.asarray(run.states.personal["norm.running_mean"])
    assert np.abs(np.diff(means, axis=0)).max(axis=1).min() > 0.05  # inputs of two clients are 1 apart
    simulate(first, shifted(6), half, options=Options(checkpoint=Checkpoint(tmp_path, every=1)))
    resumed = simulate(algorithm(), shifted(6), whole, options=Options(checkpoint=Checkpoint(tmp_path), resume=True))
    assert set(resumed.states.personal) == {f"norm.{name}" for name in ("bias", "scale", "running_mean", "running_var")}
    for name, leaf in run.states.personal.items():
        np.testing.assert_array_equal(leaf, resumed.states.personal[name])


class Unmasked(linen.Module):
    @linen.compact
    def __call__(self, x, train: bool = False):
        return linen.BatchNorm(use_running_average=not train)(x)


class Counting(linen.Module):
    @linen.compact
    def __call__(self, x):
        self.variable("counts", "seen", jnp.zeros, ())
        return linen.Dense(2)(x)


class UnmaskedNnx(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


class CountingNnx(nnx.Module):
    def __init__(self, rngs):
        self.seen = nnx.Variable(jnp.zeros(()))

    def __call__(self, x):
        return x


def stateful(key):
    return eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, axis_name="rows", mode="ema")[0]


REFUSED = {
    "unmasked": (
        lambda: from_flax(Unmasked(), (3,)),
        "Unmasked has batch statistics, which must not count padded rows",
    ),
    "counting": (
        lambda: from_flax(Counting(), (3,)),
        "carries the collections params and batch_stats, got counts, par",
    ),
    "class": (lambda: from_flax(LinenNet, (3,)), "from_flax needs a linen module, an nnx module or a function"),
    "number": (lambda: from_flax(3, (3,)), "from_flax needs a linen module, an nnx module or a function"),
    "other function": (lambda: from_flax(lambda rngs: 3, (3,)), "makes an nnx module, got one that makes 3"),
    "unmasked nnx": (lambda: from_flax(UnmaskedNnx, (3,)), "UnmaskedNnx has batch statistics, which must not"),
    "counting nnx": (lambda: from_flax(CountingNnx, (3,)), "seen of CountingNnx is another kind of variable"),
    "stateful": (lambda: from_equinox(stateful, (3,)), "BatchNorm keeps a state"),
    "no module": (lambda: from_equinox(lambda key: 3, (3,)), "from_equinox needs a module that can be called"),
    "empty": (lambda: from_equinox(eqx.nn.Dropout(0.5), (3,)), "Dropout has no parameters"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_carried_is_refused_in_one_sentence(what):
    make, sentence = REFUSED[what]
    with pytest.raises(RequestError) as refused:
        make()
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize(("package", "adapt"), [("flax", from_flax), ("equinox", from_equinox)])
def test_without_the_package_it_says_which_to_install(package, adapt, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RequestError, match=f"needs the package {package}; pip install {package}"):
        adapt(object(), (3,))


def test_modules_as_they_stand_start_where_they_are():
    nets = from_flax(NnxNet(nnx.Rngs(5)), (3,)), from_equinox(EquinoxNet(jax.random.key(5)), (3,))
    for net in nets:
        first, second = (net.init(keys.root_key(seed)) for seed in (0, 1))
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second)):
            np.testing.assert_array_equal(a, b)
    assert nets[0].input_width == 3
    tokens = from_flax(linen.Embed(7, 7), (4,), vocabulary=7)
    assert tokens.reads_tokens
    assert tokens.input_width == 7
    assert tokens.apply(tokens.init(keys.root_key(0)), jnp.zeros((2, 4), jnp.int32)).shape == (2, 4, 7)
