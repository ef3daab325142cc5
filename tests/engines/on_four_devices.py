# SPDX-License-Identifier: Apache-2.0
"""Runs with clients over several devices; for a process that has four, which `test_shard.py` starts."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.core import DivergedError, PerClient, RequestError, mixing, tree
from idiolect.core.algorithm import fit_of
from idiolect.engines import auto, door, programs
from idiolect.engines.advance import move
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.door import Training
from idiolect.engines.shard import PADDING, by_client, make_shards
from idiolect.engines.simulate import Options, open_session, simulate, simulate_many
from idiolect.protection import Protection, SecureAggregation, protect

DEVICES, SEED, ROUNDS = 4, 3, 3
FULL = Training(rounds=ROUNDS, precision="float64", executor="batched", block=ROUNDS, record_every=ROUNDS)
PARTIAL = dataclasses.replace(FULL, cohort=4, dropout=0.3)
CLOCK = ("seconds", "executed_steps")  # what padding costs differs


def on(devices, training):
    return dataclasses.replace(training, devices=devices)


def after_a_block(algorithm, federation, training):
    """(server, states), counts of work, members that were present; of all lanes, on the host."""
    session = open_session([algorithm], federation, training, [SEED], ("log_loss",))
    moved = move(session.plan, session.state, ROUNDS)
    shards, states = session.plan.shards, moved.states
    with door.run_precision(training.precision):
        ends = jax.tree.map(np.asarray, (moved.server, states if shards is None else shards.cut(states, axis=1)))
    costs = moved.costs
    sums = [np.sum(np.where(costs.present, count, 0), axis=(0, 2)).tolist() for count in costs.counts]
    return ends, sums, [sorted(row[there]) for row, there in zip(costs.clients[0], costs.present[0])]


def test_there_are_four():
    assert len(jax.devices()) == DEVICES


def test_every_method_computes_the_same(own_pair, workbench, ragged):
    wished = [workbench.build(*own_pair, **more, batch_size=2) for more in ({"epochs": 1}, {"local_steps": 2})]
    wished.append(workbench.build(*own_pair))
    algorithm = next(algorithm for algorithm in wished if fit_of(algorithm).refused is None)
    training = FULL if algorithm.fit(chance=0.5).refused else PARTIAL
    one, several = (after_a_block(algorithm, ragged, on(devices, training)) for devices in (1, DEVICES))
    assert workbench.distance(several[0], one[0]) < 1e-10
    assert several[1:] == one[1:]


def per_client(workbench):
    values = np.linspace(0.05, 0.3, 6)
    return workbench.build("personalized_local_sgd", epochs=1, batch_size=2, step_size=PerClient(values))


def neighbours(workbench):
    weights = np.eye(6) * 0.5 + np.roll(np.eye(6), 1, axis=1) * 0.5
    return workbench.build("all_for_all", local_steps=1, batch_size=2, neighbours=mixing.from_dense(weights))


def masked(workbench):
    rules = SecureAggregation(threshold=4, cohort=6)
    return protect(workbench.build("fedavg", epochs=1, batch_size=2), Protection(secure_aggregation=rules))


WHOLE = {  # every client in every round: rows stay where they are, and two of eight are left over
    "settles": (lambda bench: bench.build("l2gd"), {}),
    "chunked": (lambda bench: bench.build("scaffold", epochs=1, batch_size=2), {"executor": "chunked", "chunk": 1}),
    "a value per client": (per_client, {}),
    "sums in fixed point": (masked, {}),
    "neighbours": (neighbours, {}),
    "chunks of a cohort": (
        lambda bench: bench.build("fedavg", epochs=1, batch_size=2),
        {"executor": "chunked", "chunk": 1, "cohort": 4, "dropout": 0.3},
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_ways_to_run_compute_the_same(name, workbench, ragged):
    make, change = WHOLE[name]
    algorithm, training = make(workbench), dataclasses.replace(FULL, **change)
    one, several = (after_a_block(algorithm, ragged, on(devices, training)) for devices in (1, DEVICES))
    assert workbench.distance(several[0], one[0]) < 1e-10
    assert several[1:] == one[1:]


def test_a_whole_run_is_the_same(workbench, ragged):
    algorithm = workbench.build("fedper", epochs=1, batch_size=2)
    one, several = (simulate(algorithm, ragged, on(devices, FULL), seed=SEED) for devices in (1, DEVICES))
    asked = [(run.server, run.states, run.personal_models(), run.outputs(), run.standing()) for run in (one, several)]
    assert workbench.distance(*asked) < 1e-10
    assert workbench.distance(one.recorder.last, several.recorder.last) < 1e-10
    for row, wanted in zip(several.history, one.history, strict=True):
        for name in row.keys() - set(CLOCK):
            assert row[name] == pytest.approx(wanted[name], rel=1e-10, nan_ok=True), name
    # 6 clients on 4 devices: rows for 8; 3 steps on devices with 5 rows, 2 on that with 3 and 4, and on the one without
    assert several.ledger.useful_steps == one.ledger.useful_steps
    assert several.recorder.client_bytes == one.recorder.client_bytes


@pytest.mark.parametrize("name", ["fedavg", "scafflix"])  # lanes side by side, and one after another
def test_lanes_are_the_same(name, workbench, ragged):
    lanes = [workbench.build(name, local_steps=2, batch_size=2)] * 2
    training = FULL if lanes[0].fit(chance=0.5).refused else PARTIAL
    one, several = (simulate_many(lanes, ragged, on(devices, training), seeds=(0, 1)) for devices in (1, DEVICES))
    for left, right in zip(one, several):
        assert workbench.distance((left.server, left.states), (right.server, right.states)) < 1e-10
        assert left.ledger.total_bytes == right.ledger.total_bytes


def test_a_run_saved_on_four_goes_on_on_one_and_on_two(workbench, ragged, tmp_path):
    algorithm, longer = (
        workbench.build("scaffold", epochs=1, batch_size=2),
        dataclasses.replace(FULL, rounds=2 * ROUNDS),
    )
    whole = simulate(algorithm, ragged, longer, seed=SEED)
    for devices in (1, 2):
        kept = Checkpoint(tmp_path / str(devices), every=ROUNDS)
        simulate(algorithm, ragged, on(DEVICES, FULL), seed=SEED, options=Options(checkpoint=kept))
        options = Options(checkpoint=kept, resume=True)
        resumed = simulate(algorithm, ragged, on(devices, longer), seed=SEED, options=options)
        assert [row["round"] for row in resumed.history] == [0, ROUNDS, 2 * ROUNDS]
        assert workbench.distance((resumed.server, resumed.states), (whole.server, whole.states)) < 1e-10
        assert resumed.recorder.selected_round == whole.recorder.selected_round


def test_a_run_goes_on_with_other_settings(workbench, ragged):
    # what is carried looks at all clients: rows that are left over must not be seen
    first, then = (
        workbench.build("scafflix", batch_size=2, **more) for more in ({}, {"communication_probability": 0.8})
    )
    ends = []
    for devices in (1, DEVICES):
        session = open_session([first], ragged, on(devices, FULL), [SEED], ("log_loss",))
        session.train()
        later = session.go_on([then], on(devices, dataclasses.replace(FULL, rounds=2 * ROUNDS)), Options())
        later.train()
        ends.append(later.snapshot()[1:])
    assert workbench.distance(*ends) < 1e-10


def test_a_client_that_diverges_is_named(workbench, ragged):
    steps = PerClient(np.array([0.1, 0.1, 0.1, 0.1, 0.1, 1e200]))
    algorithm = workbench.build("personalized_local_sgd", epochs=1, batch_size=2, step_size=steps)
    with pytest.raises(DivergedError, match="clinic 5"):
        simulate(algorithm, ragged, on(DEVICES, FULL))


@pytest.mark.parametrize(("faster", "chosen"), [(True, DEVICES), (False, 1)])
def test_auto_takes_all_devices_where_that_is_faster(faster, chosen, workbench, ragged, monkeypatch):
    seconds = {None: 0.2, DEVICES: 0.1 if faster else 0.3}
    measure = lambda plan, state: seconds[None if plan.shards is None else plan.shards.devices]  # noqa: E731
    monkeypatch.setattr(auto, "_measure", measure)
    monkeypatch.setattr(programs, "guess_seconds", lambda plan, counted: 0.0)
    training = dataclasses.replace(on("auto", FULL), rounds=10_000, executor="auto")
    session = open_session([workbench.build("fedavg")], ragged, training, [0], ("log_loss",))
    assert session.training.devices == chosen
    assert (session.plan.shards is None) is (chosen == 1)
    short = open_session(
        [workbench.build("fedavg")], ragged, dataclasses.replace(training, rounds=10), [0], ("log_loss",)
    )
    assert short.training.devices == 1  # it ends before another program is compiled


def test_cohorts_are_dealt_evenly():
    shards = make_shards(DEVICES, 6)
    clients = np.array([[[0, 1, 2, 4, 5], [1, 3, 4, PADDING, PADDING]]], np.int32)
    present = np.array([[[True, False, True, True, True], [True, True, True, False, False]]])
    dealt = shards.deal(clients, present)
    assert [part.shape for part in dealt] == [(1, 2, 8)] * 3
    assert dealt[0][0, 0].tolist() == [0, 1, 2, 4, 5, PADDING, PADDING, PADDING]
    assert dealt[1][0].tolist() == [[0, 1, 2, 4, 5, 0, 0, 0], [1, 3, 4, 0, 0, 0, 0, 0]]
    assert dealt[2][0, 0].tolist() == [True, False, True, True, True, False, False, False]


def test_rows_are_brought_bit_for_bit():
    shards = make_shards(DEVICES, 6)  # two each, the last device none of its own
    floats = np.array([[0.0, np.nan], [-0.0, 1e-40], [3, -np.inf], [4, 5], [6, 7], [8, 9]], np.float32)
    tables = shards.lay((floats, np.arange(6) % 2 == 1, np.arange(6, dtype=np.int32)), axis=0)
    rows = np.array([5, 1, 0, 2, 1, 4, 3, 0], np.int32)  # two for each device
    brought = shards.over(shards.bring, (by_client(0), by_client(0)), by_client(0))(tables, rows)
    assert np.asarray(brought[0]).tobytes() == floats[rows].tobytes()
    assert np.asarray(brought[1]).tolist() == (rows % 2 == 1).tolist()
    assert np.asarray(brought[2]).tolist() == rows.tolist()


def test_rows_and_states_are_on_their_devices_alone(workbench, ragged):
    session = open_session([workbench.build("scaffold")], ragged, on(DEVICES, FULL), [0], ("log_loss",))
    for leaf in jax.tree.leaves((session.plan.population.data, tree.take(session.state.clients, 0))):
        assert {shard.data.shape[0] for shard in leaf.addressable_shards} == {2}
    for leaf in jax.tree.leaves(session.state.server):
        assert leaf.is_fully_replicated


def test_what_one_device_alone_can_do_is_refused(workbench, ragged, tmp_path):
    with pytest.raises(RequestError, match=r"A state_folder is for one device, got training.devices = 4"):
        simulate(workbench.build("fedavg"), ragged, on(DEVICES, FULL), options=Options(state_folder=tmp_path))
    looped = dataclasses.replace(on(DEVICES, FULL), executor="looped")
    with pytest.raises(RequestError, match="needs executor 'batched', 'chunked' or 'auto', got 'looped'"):
        simulate(workbench.build("fedavg"), ragged, looped)
