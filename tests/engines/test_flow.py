# SPDX-License-Identifier: Apache-2.0
"""Flow through the engine: executors agree, new clients are evaluated, layers that no row takes are not computed."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import Flow
from idiolect.core import keys, tree
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.engines.advance import move
from idiolect.engines.door import Training
from idiolect.engines.evaluate import Judging, Moment, routes_taken, score_clients
from idiolect.engines.judge import rows_of
from idiolect.engines.population import to_device
from idiolect.engines.simulate import open_session
from idiolect.metrics import routing_report
from idiolect.metrics.scores import correct_rows
from idiolect.models import MLP, CharacterLSTM
from idiolect.models.layers import Dense
from idiolect.objectives import ClientLoss, GlobalModel

FULL = Training(rounds=2, executor="batched", block=2, record_every=2)
PARTIAL = dataclasses.replace(FULL, cohort=4, dropout=0.2)


def flow(model=None, **settings):
    objective = GlobalModel(ClientLoss(model=model or MLP(3, 3, (4,))))
    return Flow(objective, **({"routing_widths": (4,), "epochs": 2, "batch_size": 2, "step_size": 0.3} | settings))


@pytest.fixture(scope="module")
def federation(workbench):
    return workbench.make_federation((3, 5, 4, 5, 1, 4), held_out=(4, 1))  # two clients of one row


@pytest.fixture(scope="module")
def batched(federation):
    session = open_session([flow()], federation, PARTIAL, [3], ("accuracy", "log_loss"))
    return session, session.run()[0]


@pytest.mark.parametrize("executor", ["looped", "looped_steps"])
def test_executors_agree(executor, batched, federation, workbench):
    training = dataclasses.replace(PARTIAL, executor=executor)
    session = open_session([flow()], federation, training, [3], ("accuracy", "log_loss"))
    session.train()
    wanted, run = batched
    assert workbench.distance(session.snapshot().server, run.server) < 1e-5
    row, other = session.recorders[0].history[-1], wanted.recorders[0].history[-1]
    for name in ("gradients_shared", "gradients_personal", "samples", "useful_steps", "upload_bytes"):
        assert row[name] == other[name], name
    for model in ("shared", "personal"):  # scored client by client, or all at once
        name = f"validation_{model}_log_loss_mean"
        assert row[name] == pytest.approx(other[name], rel=1e-4)


def test_new_clients_are_evaluated(batched):
    _, run = batched
    scores = run.new_clients()
    for model in ("shared", "personal"):
        assert np.isfinite(scores["test"][model]["log_loss"]).all()
        assert len(scores["test"][model]["log_loss"]) == 2


# clients at a time, of six: 0 is all of them, and the last chunk of four is filled up
@pytest.mark.parametrize(("executor", "together"), [("batched", 0), ("chunked", 4), ("looped", 1)])
def test_a_run_says_where_its_inputs_go(batched, executor, together, monkeypatch):
    _, run = batched
    training = dataclasses.replace(run.training, executor=executor, chunk=together)
    run, asked = dataclasses.replace(run, plan=dataclasses.replace(run.plan, training=training)), []

    def heard(*arguments, chunk):
        asked.append(chunk)
        return routes_taken(*arguments, chunk=chunk)

    monkeypatch.setattr("idiolect.engines.run.routes_taken", heard)
    models, outputs = run.personal_models(), run.outputs()
    rows = rows_of(run.plan, "test", np.arange(6))
    mask = np.asarray(jax.vmap(lambda held: held.batch().mask)(rows))
    shares = jax.vmap(run.algorithm.shared_shares)(models, rows.inputs)
    right = [jax.vmap(correct_rows)(outputs[kind], rows.targets, mask) for kind in ("shared", "personal")]
    report = routing_report(run.algorithm.route_names, shares, *right, mask)
    assert report.names == ("dense_0", "dense_1")
    assert sum(report.rows.values()) == mask.sum() == 18
    assert ((report.shared_share > 0) & (report.shared_share < 1)).all()
    found = run.routing(run.last)  # in one program, and kept small
    assert asked == [together]
    assert (found.names, found.rows) == (report.names, report.rows)
    for part in ("shared_share", "taken", "one_way"):
        np.testing.assert_allclose(getattr(found, part), getattr(report, part), rtol=1e-5)
    for category, wanted in report.by_category.items():
        np.testing.assert_allclose(found.by_category[category], wanted, rtol=1e-5)


def test_routes_and_both_models_are_those_of_the_definition(batched, federation):
    """q = softmax of each exit of psi_m; the personal model takes, layer by layer, the version with the larger q."""
    _, run = batched
    models, shared = jax.tree.map(np.asarray, (run.personal_models(run.selected), run.selected.server.shared))
    report, outputs = run.routing(), run.outputs(run.selected)  # both of the selected round

    def dense(part, inputs):
        return inputs @ part["weights"] + part["bias"]

    found, right = [], []
    for client in range(6):
        inputs, targets = federation.test.of(client)
        own = jax.tree.map(lambda leaf: leaf[client], models)  # noqa: B023
        psi, seen = own["routing"], inputs
        first = np.maximum(dense(psi["trunk_0"], inputs), 0)
        logits = np.stack([dense(psi[f"exit_{layer}"], first) for layer in range(2)], 1)  # rows, layers, versions
        q_0 = 1 / (1 + np.exp(logits[:, :, 1] - logits[:, :, 0]))
        for layer in range(2):
            one, other = (dense(own[version][f"dense_{layer}"], seen) for version in ("shared", "local"))
            seen = np.where(q_0[:, [layer]] >= 0.5, one, other)
            seen = np.maximum(seen, 0) if layer == 0 else seen
        plain = dense(shared["dense_1"], np.maximum(dense(shared["dense_0"], inputs), 0))
        np.testing.assert_allclose(outputs["personal"][client, : len(inputs)], seen, atol=1e-4)
        np.testing.assert_allclose(outputs["shared"][client, : len(inputs)], plain, atol=1e-4)
        found.append(q_0)
        right.append(np.stack([plain.argmax(1) == targets, seen.argmax(1) == targets], 1))
    q_0, right = np.concatenate(found), np.concatenate(right)
    np.testing.assert_allclose(report.shared_share, q_0.mean(0), rtol=1e-4)
    np.testing.assert_allclose(report.taken, (q_0 >= 0.5).mean(0))
    for name, both in {"both": (1, 1), "shared_only": (1, 0), "personal_only": (0, 1), "neither": (0, 0)}.items():
        of_kind = (right == both).all(1)
        assert report.rows[name] == of_kind.sum()
        if of_kind.any():
            np.testing.assert_allclose(report.by_category[name], q_0[of_kind].mean(0), rtol=1e-4)


def test_routes_are_found_within_the_memory_of_a_chunk(workbench):
    federation = workbench.make_federation((8,) * 32)
    algorithm = dataclasses.replace(flow(MLP(3, 3, (256,)), epochs=1, step_size=0.0), clients=32)
    server = algorithm.init_server(keys.root_key(0))
    everyone = jnp.arange(32, dtype=jnp.int32)
    train, test = (to_device(rows.pad(np.arange(32)), jnp.float32) for rows in (federation.train, federation.test))
    now = Moment(algorithm, keys.root_key(0), 0, server, everyone, (), train)

    def scratch(chunk):
        compiled = routes_taken.lower(now, test, chunk=chunk).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # 32 personal models of 256 (3 + 1) + 3 (256 + 1) numbers and what adapts them, or those of 4 clients
    assert scratch(4) < scratch(0) / 4


CALLS: list[float] = []


@dataclasses.dataclass(frozen=True)
class Counted(Dense):
    """A dense layer that says which version of it was computed: its first bias."""

    def apply(self, params: Any, inputs: Any) -> Any:
        """As a dense layer, and a note."""
        jax.debug.callback(lambda mark: CALLS.append(float(mark)), params["bias"][0])
        return super().apply(params, inputs)


@dataclasses.dataclass(frozen=True)
class CountedMLP(MLP):
    """A perceptron of such layers."""

    @property
    def named_layers(self):
        """The same layers, counted."""
        return {name: Counted(layer.inside, layer.outside) for name, layer in super().named_layers.items()}


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_version_that_no_row_takes_is_not_computed_client_by_client(one_by_one, federation):
    # both routes shared: evaluation trains nothing, and only answers are counted
    algorithm = dataclasses.replace(flow(CountedMLP(3, 3, (4,)), second_route="shared"), clients=6)
    server = algorithm.init_server(keys.root_key(0))
    mark = {name: layer | {"bias": layer["bias"].at[0].set(7.0)} for name, layer in server.second.items()}
    certain = tree.zeros(server.routing)
    for name in ("exit_0", "exit_1"):  # every row takes the shared version of the first layer, the local of the second
        certain[name]["bias"] = jnp.asarray([9.0, 0.0] if name == "exit_0" else [0.0, 9.0])
    server = server._replace(second=mark, routing=certain)
    everyone = jnp.arange(6, dtype=jnp.int32)
    train, test = (to_device(rows.pad(np.arange(6)), jnp.float32) for rows in (federation.train, federation.test))
    now = Moment(algorithm, keys.root_key(0), 0, server, everyone, (), train)
    CALLS.clear()
    scores, _ = jax.jit(lambda: score_clients(now, test, Judging(("log_loss",), one_by_one)))()
    jax.block_until_ready(scores)
    jax.effects_barrier()
    counts = {mark: CALLS.count(mark) for mark in (0.0, 7.0)}
    # the shared model's two layers, and of the personal one's four versions two; side by side all four, while the
    # shared model, the same for everybody, is one call per layer
    assert counts == ({0.0: 6 * (2 + 1), 7.0: 6} if one_by_one else {0.0: 2 + 6 * 2, 7.0: 6 * 2})


def test_sequences_are_routed_by_position():
    """The mixed recurrence under vmap over clients, in the engine's loop; truth/test_flow.py has its gradients."""
    draw = np.random.default_rng(0)

    def rows(sizes):
        tokens = draw.integers(0, 4, size=(sum(sizes), 3)).astype(np.int32)
        return Rows(tokens[:, :-1], tokens[:, 1:], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    federation = Federation(*map(rows, ((3, 1), (1, 1), (2, 2))), ("a", "b"), Task.classification(tuple("wxyz")))
    algorithm = flow(CharacterLSTM(4, 4, embedding=2, hidden=3, layers=1), epochs=1)
    session = open_session([algorithm], federation, dataclasses.replace(FULL, rounds=1), [1], ("log_loss",))
    server, _, costs = tree.take(move(session.plan, session.state, 1)[:3], 0)
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), session.snapshot().server[:2], server[:2])
    assert all(jax.tree.leaves(moved))  # every layer of both nets learns
    assert np.asarray(costs.finite).all()  # and stays finite
