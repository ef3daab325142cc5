# SPDX-License-Identifier: Apache-2.0
"""What a client has before its rows move a parameter, for every kind of method, against plain NumPy."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.algorithms import IFCA, L2GD, Local, LocalSGD, PartialAveraging, PersonalizedLocalSGD
from idiolect.engines.door import Training
from idiolect.engines.simulate import open_session
from idiolect.metrics import personalization_metrics
from idiolect.models import MLP, Linear
from idiolect.objectives import MX2, WS2, Additive, ClientLoss, GlobalModel, LocalOnly, Residual

LOSS = ClientLoss(model=Linear(3, 3))
NET = ClientLoss(model=MLP(3, 3, (4,)))
PARTS = WS2(NET, personal_part="head", rescale=False)
WALK = {"local_steps": 3, "batch_size": 2, "step_size": 0.5}
METHODS = {
    "fine_tuning": LocalSGD(GlobalModel(LOSS), fine_tuning_steps=5, **WALK),
    "clusters": IFCA(GlobalModel(LOSS), fine_tuning_steps=5, start_spread=1.0, **WALK),
    "fedbabu": PartialAveraging(PARTS, trains="shared", fine_tuning_steps=5, **WALK),
    "fedper": PartialAveraging(PARTS, **WALK),
    "local": Local(LocalOnly(LOSS), **WALK),
    "additive": PersonalizedLocalSGD(Additive(LOSS), **WALK),
    "mixture": L2GD(MX2(LOSS), averaging_probability=0.5, step_size=0.5),
}
NONE = ("fedper", "local")


@pytest.fixture(scope="module")
def federation(workbench):
    return workbench.make_federation((3, 5, 4, 5, 6, 4), held_out=(4, 5))


@pytest.fixture(scope="module")
def runs(federation):
    training = Training(rounds=3, executor="batched", block=3, record_every=3)
    return {
        name: open_session([method], federation, training, [3], ("accuracy",)).run()[0]
        for name, method in METHODS.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_the_record_is_what_both_models_answer(name, runs, federation):
    run = runs[name]
    outputs = run.outputs(run.selected)
    padded = federation.test.pad(np.arange(6), outputs["personal"].shape[1])
    mask = np.arange(outputs["personal"].shape[1]) < padded.count[:, None]
    wanted = personalization_metrics(outputs.get("shared"), outputs["personal"], padded.targets, mask)
    found = run.personalization()
    numbers, others = (jax.tree.leaves(dataclasses.astuple(one)) for one in (found, wanted))
    np.testing.assert_allclose(numbers, others, atol=1e-6)
    scores = run.recorder.selected["test"]
    assert found.acc_p == pytest.approx(np.mean(scores["personal"]["accuracy"]))
    assert ("shared" in scores, np.isfinite(found.acc_g)) == ((name not in NONE,) * 2)
    if name not in NONE:
        assert found.acc_g == pytest.approx(np.mean(scores["shared"]["accuracy"]))
        assert sum(dataclasses.astuple(found.breakdown)) == pytest.approx(1)


def softmax(model, inputs):
    return inputs @ model["weights"].T + model["bias"]


def test_a_cluster_is_received_as_it_is_and_chosen_by_the_training_rows(runs, federation):
    run = runs["clusters"]
    models = jax.tree.map(np.asarray, run.selected.server.shared)
    outputs = run.outputs(run.selected)["shared"]
    chosen = []
    for client in range(6):
        (inputs, targets), (held, _) = federation.train.of(client), federation.test.of(client)
        own = [{name: leaf[cluster] for name, leaf in models.items()} for cluster in range(2)]
        logits = [softmax(model, inputs) for model in own]
        losses = [np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(targets)), targets]) for z in logits]
        chosen.append(int(np.argmin(losses)))
        np.testing.assert_allclose(outputs[client, : len(held)], softmax(own[chosen[-1]], held), atol=1e-4)
    assert set(chosen) == {0, 1}  # otherwise nothing was chosen


def test_a_head_that_no_round_trains_is_the_same_for_all(runs, federation):
    run = runs["fedbabu"]
    start = PARTS.init_personal(jax.random.key(0))
    assert set(run.selected.states.personal) == set(start)
    heads = jax.tree.leaves(jax.tree.map(np.asarray, run.selected.states.personal))
    assert all((head == head[:1]).all() for head in heads)
    model = jax.tree.map(lambda leaf: leaf[0], run.selected.states.personal)
    whole = PARTS.deployed(run.selected.server.shared, model)
    held, _ = federation.test.of(2)
    found = run.outputs(run.selected)["shared"][2, : len(held)]
    np.testing.assert_allclose(found, PARTS.predict(whole, held), atol=1e-5)


def test_one_model_for_all_is_w_or_the_mean_of_the_last_round(runs, federation):
    means = jax.tree.map(lambda leaf: np.asarray(leaf).mean(0), runs["mixture"].selected.states.personal)
    wanted = {name: jax.tree.map(np.asarray, runs[name].selected.server.shared) for name in ("fine_tuning", "additive")}
    for name, model in (wanted | {"mixture": means}).items():  # a step toward the mean does not move the mean
        outputs = runs[name].outputs(runs[name].selected)["shared"]
        for client in (0, 3):
            held, _ = federation.test.of(client)
            np.testing.assert_allclose(outputs[client, : len(held)], softmax(model, held), atol=1e-4, err_msg=name)


@pytest.mark.parametrize("name", ["clusters", "fedbabu", "local"])
def test_new_clients_have_both(name, runs):
    found = runs[name].personalization("new_clients")
    assert np.isfinite(found.acc_p)
    assert np.isfinite(found.acc_g) == (name not in NONE)
    assert found.clients == 2


def test_what_the_shared_block_alone_stands_for():
    key = jax.random.key(1)
    flat = {"weights": np.ones((3, 3)), "bias": np.zeros(3)}
    assert Additive(LOSS).shared_model(flat) is flat
    assert WS2(NET).shared_model(flat) is LocalOnly(LOSS).shared_model(()) is None
    mixture = MX2(LOSS, clients=4)
    np.testing.assert_allclose(mixture.shared_model(flat)["weights"], 0.5)  # u = w / sqrt(4)
    both = Residual(LOSS, clients=4)
    model = both.shared_model(both.init_shared(key))
    inputs = np.asarray([[1.0, -2.0, 0.5]])
    np.testing.assert_allclose(both.predict(model, inputs), LOSS.predict(LOSS.init(key), inputs), atol=1e-6)
