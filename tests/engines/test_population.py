# SPDX-License-Identifier: Apache-2.0
"""Client states on disk are the same run; clients that never trained are evaluated too."""

from __future__ import annotations

import dataclasses
import errno
import time

import jax
import numpy as np
import pytest

from idiolect.core import PerClient, RequestError, keys, tree
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose, StartKeys
from idiolect.data.store import RecordFile, is_mapped, open_rows, read_clients, save_rows
from idiolect.engines import Task, client_round, open_round, resuming
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.on_disk import OnDisk
from idiolect.engines.simulate import Options, open_session, simulate
from idiolect.metrics.scores import SCORES
from idiolect.record.errors import DamagedError

pytestmark = pytest.mark.optimized  # bits, also of different programs


def states_of(run):
    """The clients' states as a list of stacked leaves, wherever they are kept."""
    if run.states is not None:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(run.states)]
    file = run.plan.population.file
    return [] if file is None else file.read(np.arange(run.plan.federation.train.clients))


def facts(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history], run.ledger


@pytest.fixture(params=["stateful", "stateless"])
def method(request, bench):
    return getattr(bench, request.param)


@pytest.mark.parametrize("cohort", ["partial", "full"])
def test_states_on_disk_are_the_same_run(cohort, method, bench, ragged, workbench, tmp_path, monkeypatch):
    monkeypatch.setattr(OnDisk, "part", 4)  # six clients in parts of four and two
    training = getattr(bench, cohort)
    memory = simulate(method, ragged, training, seed=2)
    disk = simulate(method, ragged, training, seed=2, options=Options(state_folder=tmp_path / "states"))
    assert disk.states is None
    assert workbench.same_bits(disk.server, memory.server)
    assert workbench.same_bits(states_of(disk), states_of(memory))
    assert disk.ledger == memory.ledger
    assert disk.recorder.selected_round == disk.selected.round
    for ours, theirs in zip(disk.history, memory.history):
        for name in ours.keys() - {"seconds"}:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, err_msg=name)
    assert workbench.distance(disk.personal_models(), memory.personal_models()) < 1e-6


def test_a_run_on_disk_resumes_to_the_last_bit(method, bench, ragged, workbench, tmp_path):
    whole = simulate(method, ragged, bench.partial, seed=2, options=Options(state_folder=tmp_path / "whole"))
    half, checkpoint = dataclasses.replace(bench.partial, rounds=3), Checkpoint(tmp_path / "checkpoint", every=3)
    simulate(method, ragged, half, seed=2, options=Options(checkpoint=checkpoint, state_folder=tmp_path / "states"))
    for path in (tmp_path / "states").glob("*"):
        path.write_bytes(b"\0" * path.stat().st_size)  # the live file may be anything after a crash
    resumed = simulate(
        method,
        ragged,
        bench.partial,
        seed=2,
        options=Options(checkpoint=checkpoint, resume=True, state_folder=tmp_path / "states"),
    )
    assert workbench.same_bits(resumed.server, whole.server)
    assert workbench.same_bits(states_of(resumed), states_of(whole))
    assert facts(resumed) == facts(whole)
    kept = sorted(path.name for path in (tmp_path / "checkpoint").glob("client_states-*"))
    assert len(kept) == (2 if states_of(whole) else 0)  # of the latest checkpoint and the one before, no more


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_changed_bit_in_the_client_states_is_noticed(where, bench, ragged, workbench, tmp_path):
    whole = simulate(bench.stateful, ragged, bench.partial, seed=2, options=Options(state_folder=tmp_path / "whole"))
    said, states = [], tmp_path / "states"
    checkpoint = Checkpoint(tmp_path / "checkpoint", every=3, say=said.append)
    simulate(bench.stateful, ragged, bench.partial, seed=2, options=Options(checkpoint=checkpoint, state_folder=states))
    newest = tmp_path / "checkpoint" / "client_states-6.bin"
    flip(newest, {"first": 0, "middle": newest.stat().st_size // 2, "last": -1}[where])
    run = simulate(
        bench.stateful,
        ragged,
        bench.partial,
        seed=2,
        options=Options(checkpoint=checkpoint, resume=True, state_folder=states),
    )
    assert len(said) == 1
    assert workbench.same_bits(states_of(run), states_of(whole))
    flip(states / "client_states.bin", 5)  # while it runs
    with pytest.raises(DamagedError, match="client number 0"):
        states_of(run)


def flip(path, place):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_memory_and_disk_checkpoints_are_not_mixed_up(bench, ragged, tmp_path):
    half = dataclasses.replace(bench.partial, rounds=3)
    in_memory, on_disk = Checkpoint(tmp_path / "memory", every=3), Checkpoint(tmp_path / "disk", every=3)
    simulate(bench.stateful, ragged, half, options=Options(checkpoint=in_memory))
    simulate(bench.stateful, ragged, half, options=Options(checkpoint=on_disk, state_folder=tmp_path / "states"))
    with pytest.raises(RequestError, match="kept client states in memory; resume it the same way"):
        simulate(
            bench.stateful,
            ragged,
            half,
            options=Options(checkpoint=in_memory, resume=True, state_folder=tmp_path / "states"),
        )
    with pytest.raises(RequestError, match="arrays where"):
        simulate(bench.stateful, ragged, half, options=Options(checkpoint=on_disk, resume=True))


def test_rows_may_stay_on_disk(bench, ragged, workbench, tmp_path):
    for part in ("train", "validation", "test"):
        save_rows(tmp_path / part, getattr(ragged, part))
    mapped = dataclasses.replace(
        ragged, **{part: open_rows(tmp_path / part) for part in ("train", "validation", "test")}
    )
    assert isinstance(mapped.train.inputs, np.memmap)
    ours, theirs = (simulate(bench.stateful, rows, bench.partial, seed=2) for rows in (mapped, ragged))
    assert workbench.same_bits((ours.server, ours.states), (theirs.server, theirs.states))
    both = simulate(bench.stateful, mapped, bench.partial, seed=2, options=Options(state_folder=tmp_path / "states"))
    assert workbench.same_bits((both.server, states_of(both)), (theirs.server, states_of(theirs)))


def test_clients_are_read_through_their_files(ragged, tmp_path):
    rows = dataclasses.replace(ragged.train, weights=np.arange(len(ragged.train.targets), dtype=np.float64))
    save_rows(tmp_path / "rows", rows)
    mapped = open_rows(tmp_path / "rows")
    assert is_mapped(mapped)
    for clients in ([0, 1, 2], [4, 1, 5], [3], [2, 2], []):
        found, wanted = read_clients(mapped, np.array(clients, int)), rows.select(np.array(clients, int))
        for part in ("inputs", "targets", "offsets", "weights"):
            np.testing.assert_array_equal(getattr(found, part), getattr(wanted, part))
    # columns one after another, as some tools write: not what the file is read as
    np.save(tmp_path / "rows" / "inputs.npy", np.asfortranarray(rows.inputs))
    assert not is_mapped(open_rows(tmp_path / "rows"))
    with open(tmp_path / "rows" / "targets.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(DamagedError, match=r"targets.npy ends before row \d+; write it again"):
        read_clients(mapped, np.arange(6))


def test_new_clients_are_started_trained_once_and_scored(bench, workbench):
    federation = workbench.make_federation((3, 5, 4, 5, 3, 4), held_out=(4, 3))
    run = simulate(bench.personal, federation, bench.full, seed=2)
    scores = run.new_clients()
    assert {split: len(models["personal"]["log_loss"]) for split, models in scores.items()} == {
        "validation": 2,
        "test": 2,
    }
    # what a client that starts at the shared model and takes one local round should beat: guessing one of three
    assert np.isfinite(scores["test"]["personal"]["log_loss"]).all()
    again = run.new_clients()
    assert again == scores
    # new clients change nothing in the run, and a run without them has no client to score
    plain = simulate(bench.personal, workbench.make_federation((3, 5, 4, 5, 3, 4)), bench.full, seed=2)
    assert workbench.same_bits((plain.server, plain.states), (run.server, run.states))
    assert plain.new_clients() == {}


def test_a_new_client_without_a_training_row_is_refused(bench, workbench):
    federation = workbench.make_federation((3, 5), held_out=(4, 0))
    with pytest.raises(RequestError, match="Every held-out client needs at least one training row; held-out client nu"):
        simulate(bench.personal, federation, bench.full, seed=2)


def test_a_new_client_is_what_it_would_have_been_in_plain_python(bench, workbench):
    """init_client, one local round with its upload discarded, models: written out for the first new client."""
    federation = workbench.make_federation((3, 5, 4, 5, 3, 4), held_out=(4, 3))
    run = simulate(bench.personal, federation, bench.full, seed=2)
    new, number = federation.held_out, 6  # numbered after the six that train
    rounds, server = run.selected.round, run.selected.server
    rows = jax.tree.map(lambda leaf: np.asarray(leaf[0]), new.train.pad(np.asarray([0])))
    data = ClientData(rows.inputs.astype(np.float32), rows.targets, np.int32(rows.count))
    data = jax.tree.map(jax.numpy.asarray, data)
    root = keys.root_key(2)
    state, _ = run.algorithm.init_client(
        StartKeys(keys.init_key(root), keys.client_key(root, Purpose.INIT_CLIENT, 0, number)), data
    )
    state = client_round(Task(open_round(run.algorithm, root, rounds, server), number, state, data)).state
    delivered = run.algorithm.deliver(keys.round_key(root, Purpose.DELIVER, rounds), server)
    key = keys.client_key(root, Purpose.PERSONAL_MODEL, rounds, number)
    model = run.algorithm.models(key, delivered, state, data)[0].personal
    inputs, targets = new.test.of(0)
    outputs = run.algorithm.predict(model, jax.numpy.asarray(inputs, np.float32))
    expected = SCORES["log_loss"].function(outputs, jax.numpy.asarray(targets), jax.numpy.ones(len(targets), bool))
    found = run.new_clients()["test"]["personal"]["log_loss"][0]
    assert found == pytest.approx(float(expected), rel=1e-5)
    assert tree.squared_norm(state.personal) > 0  # it did train


def test_a_new_client_has_no_row_of_what_is_addressed(bench, workbench):
    """Indexing would silently hand it the last training client's row."""
    federation = workbench.make_federation((3, 5, 4, 5, 3, 4), held_out=(4, 3))
    own = dataclasses.replace(bench.personal, step_size=PerClient(np.linspace(0.01, 0.4, 6)))
    session = open_session([own], federation, dataclasses.replace(bench.full, rounds=0), [2], ("log_loss",))
    (run,) = session.run()
    assert run.new_clients() == {}


@pytest.fixture
def slow_disk(monkeypatch):
    """Writing takes a while, so that whoever reads too early reads old states; returns who was read behind whom."""
    write, find, read = RecordFile.write, OnDisk._find, []

    def slowly(file, clients, leaves):
        time.sleep(0.02)
        write(file, clients, leaves)

    def found(disk, members, before):
        read.append((set(members.flat), set(before)))
        return find(disk, members, before)

    monkeypatch.setattr(RecordFile, "write", slowly)
    monkeypatch.setattr(OnDisk, "_find", found)
    return read


def test_reading_ahead_changes_no_bit(method, bench, ragged, workbench, slow_disk, tmp_path, monkeypatch):
    training = dataclasses.replace(bench.partial, block=1)
    ends = []
    for ahead in (True, False):
        monkeypatch.setattr(OnDisk, "ahead", ahead)
        slow_disk.clear()
        options = Options(state_folder=tmp_path / str(ahead))
        ends.append(simulate(method, ragged, training, seed=2, options=options))
        # all blocks but the first, and each has some clients of the one before
        assert [bool(now & before) for now, before in slow_disk] == [False, *[ahead] * (training.rounds - 1)]
    assert workbench.same_bits(ends[0].server, ends[1].server)
    assert workbench.same_bits(*map(states_of, ends))
    assert facts(ends[0]) == facts(ends[1])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_what_stops_a_run_on_disk_leaves_it_whole(stop, bench, ragged, workbench, slow_disk, tmp_path, monkeypatch):
    training = dataclasses.replace(bench.partial, block=1, record_every=1)
    whole = simulate(bench.stateful, ragged, training, seed=2, options=Options(state_folder=tmp_path / "whole"))
    checkpoint, write, written = Checkpoint(tmp_path / "checkpoint", every=2), RecordFile.write, []

    def full(file, clients, leaves):
        written.append(clients)
        if len(written) == 5:  # the first one is of all clients
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, clients, leaves)

    def interrupt(reached, rounds):
        if reached == 3:
            raise KeyboardInterrupt

    options = Options(checkpoint=checkpoint, state_folder=tmp_path / "states")
    with monkeypatch.context() as patch:
        if stop is OSError:
            patch.setattr(RecordFile, "write", full)
        stopped = dataclasses.replace(options, progress=interrupt if stop is KeyboardInterrupt else None)
        with pytest.raises(stop):
            simulate(bench.stateful, ragged, training, seed=2, options=stopped)
    begun = open_session([bench.stateful], ragged, training, [2], ("log_loss",), options)
    resuming.load(begun, checkpoint)
    assert begun.state.round == (3 if stop is KeyboardInterrupt else 2)
    resumed = simulate(bench.stateful, ragged, training, seed=2, options=dataclasses.replace(options, resume=True))
    assert workbench.same_bits(resumed.server, whole.server)
    assert workbench.same_bits(states_of(resumed), states_of(whole))
    assert facts(resumed) == facts(whole)
