# SPDX-License-Identifier: Apache-2.0
"""The networks: sizes as published, gradients, precision, and training through the engine."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import LocalSGD
from idiolect.core.checks import RequestError
from idiolect.core.data import Batch
from idiolect.data.federation import Federation
from idiolect.data.split import Split
from idiolect.engines.simulate import Training, simulate
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.prepare import choose_scores
from idiolect.experiments.spec import MethodSpec, ModelSpec, Spec
from idiolect.metrics.scores import SCORES
from idiolect.models import CNN, CharacterLSTM, ResNet18, WordLSTM
from idiolect.objectives import ClientLoss, GlobalModel

SMALL = {
    "cnn": CNN(8, 7, 1, 3, filters=(2, 3), hidden=4),
    "character_lstm": CharacterLSTM(5, 5, embedding=3, hidden=4),
    "word_lstm": WordLSTM(5, 5, embedding=3, hidden=4),
}


def rows_for(name, rows=4):
    draw = np.random.default_rng(0)
    if name.endswith("lstm"):
        tokens = draw.integers(0, 5, size=(rows, 4)).astype(np.int32)
        targets = tokens[:, 1:].copy()
        targets[-2, 1:] = -1
        return Batch(jnp.asarray(tokens[:, :-1]), jnp.asarray(targets), jnp.arange(rows) < rows - 1)
    targets = jnp.asarray(draw.integers(0, 3, size=rows).astype(np.int32))
    return Batch(jnp.asarray(draw.normal(size=(rows, 8, 7, 1))), targets, jnp.arange(rows) < rows - 1)


@pytest.mark.parametrize(
    ("model", "published"),
    [
        (CNN(28, 28, 1, 62), 1_206_590),  # Flow 2023's count for EMNIST
        (ResNet18(32, 32, 3, 1000), 11_689_512 - (49 - 9) * 3 * 64),  # its 1000-class count, but a 3 x 3 stem
        (CharacterLSTM(72, 72), 72 * 8 + 4 * 256 * (8 + 256 + 1) + 4 * 256 * (256 + 256 + 1) + 257 * 72),
        (WordLSTM(10_004, 10_004), 4_050_748),  # the Stack Overflow net of Reddi et al. (2021), table 9
    ],
)
def test_networks_have_the_published_number_of_parameters(model, published):
    leaves = jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0)))
    assert sum(leaf.size for leaf in leaves) == published


@pytest.mark.parametrize("name", SMALL)
def test_gradients_are_those_of_finite_differences(name):
    with jax.enable_x64(True):
        loss, batch = ClientLoss(model=SMALL[name]), rows_for(name)
        both = jax.jit(jax.value_and_grad(lambda params: loss.value(None, params, batch)[0]))
        shapes = jax.eval_shape(loss.init, jax.random.key(0))
        # away from the start, whose zero biases put a rectifier at its kink on dead inputs
        start, along = (
            jax.tree.map(lambda leaf, c=c: 0.5 * np.random.default_rng([c, leaf.size]).normal(size=leaf.shape), shapes)
            for c in range(2)
        )
        gradient = both(start)[1]
        promised = sum(np.sum(a * b) for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True))
        ends = [both(jax.tree.map(lambda a, b, h=h: a + h * b, start, along))[0] for h in (1e-6, -1e-6)]
        assert float((ends[0] - ends[1]) / 2e-6) == pytest.approx(float(promised), rel=1e-6)


@pytest.mark.parametrize("name", ["cnn", "character_lstm"])
def test_bfloat16_products_leave_state_and_gradients_in_float32(name):
    batch = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, rows_for(name))
    params = jax.jit(SMALL[name].init)(jax.random.key(0))

    @functools.partial(jax.jit, static_argnums=0)
    def answer(model, params):
        return model.apply(params, batch.inputs), jax.grad(lambda v: ClientLoss(model=model).value(None, v, batch)[0])(
            params
        )

    (theirs, gradient), (ours, half_gradient) = (
        answer(dataclasses.replace(SMALL[name], compute=compute), params) for compute in ("float32", "bfloat16")
    )
    assert ours.dtype == jnp.float32
    assert not np.array_equal(ours, theirs)
    np.testing.assert_allclose(ours, theirs, atol=0.1 * float(np.abs(theirs).max()))  # 8 bits, a few layers deep
    for mine, other in zip(jax.tree.leaves(half_gradient), jax.tree.leaves(gradient), strict=True):
        assert mine.dtype == jnp.float32
        np.testing.assert_allclose(mine, other, atol=0.1 * float(np.abs(other).max()) + 1e-6)


def test_resnet_answers_every_row_by_itself():
    model = ResNet18(8, 8, 2, 3, filters=2)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    draw = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: draw.normal(size=leaf.shape).astype(np.float32), shapes)
    assert {"stem", "stem_norm", "stage_1_block_0_skip", "stage_3_block_1_conv_1_norm", "dense"} < set(params)
    apply = jax.jit(model.apply)
    rows = np.random.default_rng(0).normal(size=(3, 8, 8, 2)).astype(np.float32)
    together = np.asarray(apply(params, rows))  # waits: the rows are changed below
    assert together.shape == (3, 3)
    rows[1:] += 5
    np.testing.assert_allclose(apply(params, rows)[0], together[0], rtol=1e-5)  # group norm shares nothing
    assert not np.allclose(apply(params, rows)[1], together[1], rtol=1e-3)


def test_a_sequence_is_the_mean_of_the_positions_that_have_a_target():
    draw = np.random.default_rng(0)
    outputs = draw.normal(size=(3, 4, 5)).astype(np.float32)
    targets = np.array([[0, 1, 2, 3], [4, 0, -1, -1], [1, 1, 1, 1]], np.int32)
    mask = np.array([True, True, False])
    logs = outputs - np.log(np.exp(outputs).sum(axis=2, keepdims=True))
    losses = [-logs[0, range(4), targets[0]].mean(), -logs[1, range(2), targets[1, :2]].mean()]
    hits = [(outputs[0].argmax(1) == targets[0]).mean(), (outputs[1, :2].argmax(1) == targets[1, :2]).mean()]
    arrays = tuple(map(jnp.asarray, (outputs, targets, mask)))
    assert float(SCORES["log_loss"].function(*arrays)) == pytest.approx(np.mean(losses), rel=1e-6)
    assert float(SCORES["accuracy"].function(*arrays)) == pytest.approx(np.mean(hits), rel=1e-6)
    params, batch = {"outputs": arrays[0]}, Batch(arrays[0], *arrays[1:])
    assert float(ClientLoss(model=SMALL["cnn"]).value_of(arrays[0], params, batch)) == pytest.approx(
        np.mean(losses), rel=1e-6
    )
    flat = (outputs[:2].reshape(-1, 5)[targets[:2].reshape(-1) >= 0], targets[:2][targets[:2] >= 0])
    flat_arrays = (jnp.asarray(flat[0]), jnp.asarray(flat[1]), jnp.ones(6, bool))
    score = SCORES["balanced_accuracy"].function
    assert float(score(*arrays)) == pytest.approx(float(score(*flat_arrays)), rel=1e-6)


def written(clients=3, rows=10):
    """Images whose class is the brightest third, and sequences that count upwards modulo 5."""
    draw = np.random.default_rng(1)
    images = draw.random((clients * rows, 9, 9, 1)).astype(np.float32)
    labels = draw.integers(0, 3, clients * rows).astype(np.int32)
    for row, label in enumerate(labels):
        images[row, 3 * label : 3 * label + 3] += 1
    owner = np.arange(clients * rows) % clients
    pictures = Federation.from_arrays(images, labels, owner, classes=("a", "b", "c"), split=Split(0.6, 0.0, 0.4))
    tokens = ((draw.integers(0, 5, (clients * rows, 1)) + np.arange(4)) % 5).astype(np.int32)
    texts = Federation.from_arrays(
        tokens[:, :-1], tokens[:, 1:], owner, classes=tuple("abcde"), split=Split(0.6, 0.0, 0.4), tokens=True
    )
    return {"cnn": pictures, "character_lstm": texts}


@pytest.mark.parametrize(
    ("name", "settings", "step_size", "executors"),
    [
        ("cnn", {"filters": [3, 4], "hidden": 16, "dropout": [0.1, 0.1]}, 0.1, ("batched", "looped")),
        ("character_lstm", {"embedding": 3, "hidden": 8, "layers": 1}, 1.0, ("looped",)),  # vmap: test_layer_truth
    ],
)
def test_networks_of_a_spec_learn_alike_in_every_executor(name, settings, step_size, executors):
    federation = written()[name]
    loss = build_client_loss(ModelSpec(name=name, settings=settings), federation, None)
    algorithm = LocalSGD(GlobalModel(loss), epochs=1, batch_size=3, step_size=step_size)
    found = []
    for executor in executors:
        training = Training(rounds=30, record_every=30, executor=executor)
        run = simulate(algorithm, federation, training, scores=("accuracy", "log_loss"))
        found.append(run.recorder.last["test"]["shared"])
    for score in ("accuracy", "log_loss"):
        np.testing.assert_allclose(found[0][score], found[-1][score], rtol=1e-3, atol=1e-3)
    assert float(np.mean(found[0]["accuracy"])) > 0.8  # by chance: a third, a fifth


def spec_for(federation, **model):
    return build_client_loss(ModelSpec(**model), federation, None)


def test_what_does_not_fit_is_said_in_one_sentence():
    federations = written()
    refused = {
        "cnn needs images of at least 6 x 6": ("character_lstm", {"name": "cnn"}),
        "linear needs numbers as inputs, got tokens; use character_lstm or word_lstm": ("character_lstm", {}),
        "character_lstm needs sequences of tokens": ("cnn", {"name": "character_lstm"}),
        "[model.settings] cnn has no setting 'filter'. Did you mean 'filters'?": (
            "cnn",
            {"name": "cnn", "settings": {"filter": [2, 3]}},
        ),
        "model.settings.filters must be 2 numbers": ("cnn", {"name": "cnn", "settings": {"filters": [2]}}),
        "model.settings.hidden must be at least 1": ("cnn", {"name": "cnn", "settings": {"hidden": 0}}),
        "resnet18 needs groups that divide filters": ("cnn", {"name": "resnet18", "settings": {"groups": 3}}),
        "[model.settings] linear has no setting 'filters', which is one of cnn, resnet18; leave it out, in the": (
            "cnn",
            {"name": "linear", "settings": {"filters": [2, 3]}},
        ),
        "[model.settings] linear has no setting 'bias'; write model.bias, beside model.name.": (
            "cnn",
            {"name": "linear", "settings": {"bias": False}},
        ),
        "[model.settings] mlp has no setting 'hidden'; write model.hidden, beside model.name.": (
            "cnn",
            {"name": "mlp", "settings": {"hidden": 8}},
        ),
    }
    for sentence, (data, model) in refused.items():
        with pytest.raises(RequestError) as error:
            spec_for(federations[data], **model)
        assert sentence in str(error.value)


def test_strange_tokens_and_images_of_mixed_size_are_refused():
    texts = written()["character_lstm"]
    inputs = texts.train.inputs.copy()
    inputs[2, 1] = 9
    broken = dataclasses.replace(texts, train=dataclasses.replace(texts.train, inputs=inputs))
    with pytest.raises(
        RequestError, match=r"client '0' hold the token 9, and the vocabulary is 0 to 4.*from_arrays `classes`"
    ):
        spec_for(broken, name="character_lstm")
    with pytest.raises(RequestError, match=r"one shape, got \(8, 8\) and \(9, 8\); crop, pad or resize"):
        Federation.from_arrays([np.zeros((8, 8)), np.zeros((9, 8))], [0, 1], ["a", "b"])
    with pytest.raises(RequestError, match=r"must be class numbers 0 to 1, but client 'b' \(row 2\) has 2; name"):
        Federation.from_arrays(np.zeros((3, 8, 8)), np.arange(3), ["a", "b", "b"], classes=("x", "y"))
    params = {name: jax.eval_shape(model.init, jax.random.key(0)) for name, model in SMALL.items()}
    with pytest.raises(RequestError, match=r"made for images of 8 x 7 x 1, got inputs of shape \(9, 9, 1\)"):
        jax.eval_shape(SMALL["cnn"].apply, params["cnn"], np.zeros((2, 9, 9, 1), np.float32))
    loss, batch = ClientLoss(model=SMALL["character_lstm"]), Batch(np.zeros((2, 6), np.int32), np.zeros(2, np.int32))
    with pytest.raises(RequestError, match="a language model needs a target per position"):
        jax.eval_shape(lambda own: loss.value(None, own, batch)[0], params["character_lstm"])


def test_sequences_are_scored_by_accuracy():
    spec = Spec(name="s", methods=(MethodSpec("fedavg", "fedavg"),))
    scores, reason = choose_scores(spec, written()["character_lstm"])
    assert scores == ("accuracy", "log_loss")
    assert "positions whose next token" in reason
