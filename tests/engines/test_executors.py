# SPDX-License-Identifier: Apache-2.0
"""Every executor computes the same run."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.core import RequestError, tree
from idiolect.core.settings import settings
from idiolect.engines import auto, programs
from idiolect.engines.advance import move
from idiolect.engines.block import TRACES
from idiolect.engines.debug import StageError, debug
from idiolect.engines.simulate import Options, open_session, simulate

OTHERS = [  # cohorts of 4 and of 6: chunks of one, that divide, that do not, and larger than the cohort
    ("partial", "chunked", 1),
    ("partial", "chunked", 3),
    ("partial", "chunked", 5),
    ("full", "chunked", 2),
    ("full", "chunked", 4),
    ("partial", "looped", 0),
    ("full", "looped", 0),
    ("partial", "looped_steps", 0),
]


@pytest.fixture(scope="module")
def batched(bench, ragged):
    return {name: simulate(bench.stateful, ragged, getattr(bench, name), seed=3) for name in ("partial", "full")}


@pytest.mark.parametrize(("cohort", "executor", "chunk"), OTHERS)
def test_executors_agree(cohort, executor, chunk, batched, bench, ragged, workbench):
    training = dataclasses.replace(getattr(bench, cohort), executor=executor, chunk=chunk)
    session = open_session([bench.stateful], ragged, training, [3], ("log_loss",))
    session.train()
    expected = batched[cohort]
    assert workbench.distance(session.snapshot().server, expected.server) < 1e-6
    assert workbench.distance(session.snapshot().states, expected.states) < 1e-6
    row, wanted = session.recorders[0].history[-1], expected.history[-1]
    for name in ("samples", "gradients_shared", "useful_steps", "upload_bytes", "download_bytes", "rounds"):
        assert row[name] == wanted[name], name
    assert row["slowest_gradients"] == wanted["slowest_gradients"]
    assert row["useful_steps"] <= row["executed_steps"] <= 2 * wanted["executed_steps"]


@pytest.mark.parametrize(("executor", "chunk"), [("chunked", 4), ("looped", 0)])
def test_answers_are_the_same_some_clients_at_a_time(executor, chunk, batched, bench, ragged):
    training = dataclasses.replace(bench.full, executor=executor, chunk=chunk)
    found, expected = simulate(bench.stateful, ragged, training, seed=3).outputs(), batched["full"].outputs()
    assert set(found) == set(expected)
    for kind, answers in expected.items():
        np.testing.assert_allclose(found[kind], answers, rtol=1e-5, atol=1e-6)


def test_plain_python_agrees(bench, ragged, workbench):
    one_block = dataclasses.replace(bench.partial, rounds=3)
    plain, expected = (run(bench.stateful, ragged, one_block, seed=3) for run in (debug, simulate))
    assert workbench.distance(plain.server, expected.server) < 1e-6
    for client, state in enumerate(plain.clients):
        assert workbench.distance(tree.take(expected.states, client), state) < 1e-6
    assert plain.tally.samples == expected.ledger.samples


def test_chunks_by_size_waste_fewer_steps(bench, ragged):
    wide = open_session([bench.stateful], ragged, bench.full, [0], ("log_loss",))
    narrow = dataclasses.replace(bench.full, executor="chunked", chunk=2)
    together = move(wide.plan, wide.state, 3).costs
    by_size = move(dataclasses.replace(wide.plan, training=narrow), wide.state, 3).costs
    # 3, 3, 4, 4, 5, 5 rows in twos: 2, 2, 3 steps of 2 clients each; together 3 steps of all 6
    assert int(np.sum(by_size.executed_steps)) == 3 * 2 * (2 + 2 + 3)
    assert int(np.sum(together.executed_steps)) == 3 * 6 * 3


def test_auto_takes_the_executor_that_was_fastest(bench, ragged, monkeypatch):
    seconds = {"batched": 0.4, "chunked": 0.3, "looped": 0.1, "looped_steps": 0.2}
    monkeypatch.setattr(auto, "_measure", lambda plan, state: seconds[plan.training.executor])
    monkeypatch.setattr(programs, "guess_seconds", lambda plan, counted: 0.0)
    asked = dataclasses.replace(bench.partial, executor="auto", block=0, record_every=30, rounds=10_000)
    session = open_session([bench.stateful], ragged, asked, [0], ("log_loss",))
    assert session.training.executor == "looped"
    assert session.training.block == 10  # a block of about one second: 10 rounds of 0.1 s


def test_the_block_length_changes_neither_result_nor_record(batched, bench, ragged, workbench):
    expected = batched["partial"]
    for block in (1, 2):  # 2 does not divide the 3 rounds between records
        run = simulate(bench.stateful, ragged, dataclasses.replace(bench.partial, block=block), seed=3)
        assert workbench.distance((run.server, run.states), (expected.server, expected.states)) < 1e-6
        assert [row["round"] for row in run.history] == [0, 3, 6]
        assert run.ledger == expected.ledger


def test_records_fall_where_asked_and_on_the_last_round(bench, ragged):
    seen = []
    training = dataclasses.replace(bench.partial, rounds=5)
    run = simulate(bench.stateful, ragged, training, seed=3, options=Options(progress=lambda *at: seen.append(at)))
    assert [row["round"] for row in run.history] == [0, 3, 5]
    assert [row["rounds"] for row in run.history] == [0, 3, 5]
    assert seen == [(3, 5), (5, 5)]
    assert not any(name.startswith("test") for row in run.history for name in row)


def test_a_block_cut_short_is_the_same_program(batched, bench, ragged):
    traced = dict(TRACES)
    simulate(bench.stateful, ragged, dataclasses.replace(bench.partial, rounds=4), seed=9)
    assert dict(TRACES) == traced


@pytest.mark.parametrize("precision", ["float32", "float64"])  # loops count with different types
def test_a_step_is_traced_once(precision, bench, ragged):
    calls = []

    @settings
    class Counted(type(bench.stateful)):
        def step(self, key, t, sent, working, data):
            calls.append(t)
            return super().step(key, t, sent, working, data)

    training = dataclasses.replace(bench.partial, precision=precision)
    counted = Counted(bench.stateful.objective, epochs=1, batch_size=2)
    session = open_session([counted], ragged, training, [3], ("log_loss",))
    calls.clear()
    move(session.plan, session.state, 3)
    assert len(calls) == 1


def test_no_rounds_leave_the_start(bench, ragged, workbench):
    run = simulate(bench.stateful, ragged, dataclasses.replace(bench.partial, rounds=0))
    assert [row["round"] for row in run.history] == [0]
    assert run.ledger.total_bytes == 0
    assert run.ledger.samples == 0


def test_float64_is_on_for_the_run_only(bench, ragged):
    run = simulate(bench.stateful, ragged, dataclasses.replace(bench.full, rounds=3, precision="float64"))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves((run.server, run.states))} == {"float64"}
    assert not jax.config.jax_enable_x64
    single = simulate(bench.stateful, ragged, dataclasses.replace(bench.full, rounds=3))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves((single.server, single.states))} == {"float32"}
    np.testing.assert_allclose(run.server.shared["weights"], single.server.shared["weights"], atol=1e-6)


def test_clients_of_one_size_run_without_masks(bench, uniform, workbench):
    one_block = dataclasses.replace(bench.full, rounds=3)
    run = simulate(bench.stateful, uniform, one_block, seed=3)
    assert run.plan.uniform
    plain = debug(bench.stateful, uniform, one_block, seed=3)
    assert workbench.distance(run.server, plain.server) < 1e-6
    assert run.ledger.useful_steps == run.ledger.executed_steps == 3 * 6 * 2  # rounds x clients x ceil(4 / 2)


WRONG = [
    ({"cohort": 7}, "training.cohort must be at most the number of clients, 6, got 7."),
    ({"dropout": 1.0}, "training.dropout must be at least 0 and below 1, got 1."),
    ({"executor": "quick"}, "training.executor must be one of"),
    ({"executor": "chunked", "chunk": 0}, "training.chunk must be at least 1 with executor 'chunked', got 0."),
    ({"precision": "float16"}, "training.precision must be one of 'float32', 'float64', got 'float16'."),
    ({"record_every": 0}, "training.record_every must be at least 1, got 0."),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG, ids=[next(iter(change)) for change, _ in WRONG])
def test_wrong_requests_are_refused_at_the_door(change, sentence, bench, ragged):
    for engine in (simulate, debug):
        with pytest.raises(RequestError) as refused:
            engine(bench.stateful, ragged, dataclasses.replace(bench.partial, **change))
        assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**40])
def test_a_seed_that_would_be_another_one_is_refused(seed, bench, ragged):
    for engine in (simulate, debug):
        with pytest.raises(RequestError, match=r"A seed must be at least 0 and below 2\^31, got"):
            engine(bench.stateful, ragged, bench.partial, seed=seed)


def test_plain_python_says_where_it_failed(bench, ragged):
    @settings
    class Broken(type(bench.stateless)):
        def send(self, key, sent, working, client, data):
            raise ZeroDivisionError("no")

    broken = Broken(bench.stateless.objective)
    with pytest.raises(StageError, match="Round 0, client 0, stage send: ZeroDivisionError: no"):
        debug(broken, ragged, bench.full)


def test_a_stage_that_returns_another_form_is_told_so(bench, ragged):
    base = type(bench.stateful)

    @settings
    class Sends(base):
        def send(self, key, sent, working, client, data):
            upload, _, tally = super().send(key, sent, working, client, data)
            return upload, working, tally  # a slip: not the client's state

    @settings
    class Steps(base):
        def step(self, key, t, sent, working, data):
            moved, tally = super().step(key, t, sent, working, data)
            return jax.tree.map(lambda leaf: leaf[None], moved), tally

    @settings
    class Serves(base):
        def server_step(self, key, server, sent, received):
            return super().server_step(key, server, sent, received).shared

    for slip, sentence in (
        (Steps, r"^Steps\.step must return the working state with the shapes it had"),
        (Serves, r"^Serves\.server_step must return the server's state with the form it had, ServerState\("),
    ):
        with pytest.raises(RequestError, match=sentence):
            simulate(slip(bench.stateful.objective), ragged, bench.full)
    form = r"send must return the client's state with the form it had, ClientState\(.*\), got Working\("
    with pytest.raises(RequestError, match=r"^Sends\." + form):
        simulate(Sends(bench.stateful.objective), ragged, bench.full)
    for slip, sentence in (
        (Sends, "Round 0, client 0, stage send: RequestError: " + form),
        (Steps, "Round 0, client 0, stage step: RequestError: step must return the working state with the shapes it"),
        (Serves, "Round 0, the server, stage server_step: RequestError: .* ServerState.*, got dict of bias, weights"),
    ):
        with pytest.raises(StageError, match=sentence):
            debug(slip(bench.stateful.objective), ragged, bench.full)


def test_an_algorithm_that_is_no_pytree_is_refused(bench, ragged):
    class Bare(type(bench.stateless)):
        """Lacks the decorator."""

    for engine in (simulate, debug):
        with pytest.raises(RequestError, match="Bare must be decorated with @settings"):
            engine(Bare(bench.stateless.objective), ragged, bench.full)


def test_a_session_without_scores_is_refused(bench, ragged):
    with pytest.raises(RequestError, match="needs at least one score"):
        open_session([bench.stateful], ragged, bench.full, [0], ())
