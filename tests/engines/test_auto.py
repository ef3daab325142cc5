# SPDX-License-Identifier: Apache-2.0
"""auto: what is known is not measured, measuring takes a twentieth of the run, what does not fit is not tried."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from benchmarks.problems import images

from idiolect.algorithms import LocalSGD
from idiolect.engines import auto, programs
from idiolect.engines.simulate import Options, Training, open_session
from idiolect.models import MLP
from idiolect.objectives import ClientLoss, GlobalModel

LONG = {"executor": "auto", "block": 0, "record_every": 30, "rounds": 10_000}


class Clock:
    """Rounds and compilations that take what they are told to take, on a clock of their own."""

    def __init__(self, compiling, seconds):
        self.now, self.measured, self.compiling, self.seconds = 0.0, [], compiling, seconds

    def measure(self, plan, state):
        executor = plan.training.executor
        self.measured.append(executor)
        seconds = self.seconds[executor]
        self.now += self.compiling + 2 * seconds
        return seconds


@pytest.fixture
def choose(bench, ragged, monkeypatch):
    """(executor chosen, what was measured) with a clock, of a run that could be long."""

    def choose(clock, memory=None, **changes):
        monkeypatch.setattr(programs, "guess_seconds", lambda plan, counted: 0.0)
        monkeypatch.setattr(programs, "share_of_memory", lambda plan, state: (0.0, 0.0))
        monkeypatch.setattr(auto, "time", SimpleNamespace(perf_counter=lambda: clock.now))
        monkeypatch.setattr(auto, "_measure", clock.measure)
        asked = dataclasses.replace(bench.partial, **(LONG | changes))
        session = open_session([bench.stateful], ragged, asked, [0], ("log_loss",), Options(memory=memory))
        return session.training.executor, clock.measured

    return choose


SECONDS = {"batched": 0.4, "chunked": 0.3, "looped": 0.1, "looped_steps": 0.2}


@pytest.mark.parametrize(("compiling", "rounds"), [(0.5, 10_000), (8.0, 400), (8.0, 4000), (60.0, 2000)])
def test_measuring_takes_a_twentieth_of_the_run_at_most(compiling, rounds, choose):
    clock = Clock(compiling, SECONDS)
    _, measured = choose(clock, rounds=rounds)
    first = compiling + 2 * SECONDS["batched"]  # the run's own program, which no trial is
    assert clock.now - first <= auto.SHARE * SECONDS["batched"] * rounds
    assert len(measured) == {(0.5, 10_000): 4, (8.0, 400): 1, (8.0, 4000): 4, (60.0, 2000): 1}[compiling, rounds]


def test_what_was_measured_is_remembered_by_program_and_machine(choose):
    memory = {}
    store = SimpleNamespace(get=memory.get, put=memory.__setitem__)
    chosen, measured = choose(Clock(0.5, SECONDS), store)
    assert (chosen, len(measured)) == ("looped", 4)
    again = choose(Clock(0.5, dict.fromkeys(SECONDS, 9.0)), store)
    assert again == ("looped", [])  # nothing is measured
    assert len(choose(Clock(0.5, SECONDS), store, precision="float64")[1]) == 4  # another program


def test_a_short_run_measures_nothing(bench, ragged, monkeypatch):
    monkeypatch.setattr(auto, "_measure", lambda plan, state: pytest.fail("measured"))
    asked = dataclasses.replace(bench.partial, executor="auto", block=0)
    assert open_session([bench.stateful], ragged, asked, [0], ("log_loss",)).training.executor == "batched"


@pytest.mark.parametrize(("operations", "executor"), [(1e3, "batched"), (1e9, "chunked")])
def test_a_cpu_takes_large_steps_one_client_after_another(operations, executor, bench, ragged, monkeypatch):
    monkeypatch.setattr(programs, "operations", lambda plan, state: operations)
    monkeypatch.setattr(programs, "guess_seconds", lambda plan, counted: 1e-6)  # a short run, which measures nothing
    asked = dataclasses.replace(bench.partial, executor="auto", block=0)
    training = open_session([bench.stateful], ragged, asked, [0], ("log_loss",)).training
    assert (training.executor, training.chunk) == (executor, executor == "chunked")


def test_an_accelerator_measures_nothing(choose, monkeypatch):
    monkeypatch.setattr(auto.jax, "default_backend", lambda: "gpu")
    assert choose(Clock(0.5, SECONDS)) == ("batched", [])


def test_what_does_not_fit_is_not_tried(monkeypatch, workbench):
    many = images(16, 8, 4, 4, features=20)
    wide = LocalSGD(GlobalModel(ClientLoss(model=MLP(20, 10, (512,)))), epochs=1, batch_size=4, step_size=0.1)
    asked = Training(rounds=3, record_every=3, executor="auto")
    batched = open_session([wide], many, asked, [3], ("log_loss",))
    assert batched.training.executor == "batched"
    block, _ = programs.extra_bytes(batched.plan, batched.state)
    monkeypatch.setattr(programs, "free_on_device", lambda: int(0.8 * block))
    chosen = open_session([wide], many, asked, [3], ("log_loss",))
    assert chosen.training.executor == "chunked"
    assert 1 < chosen.training.chunk < 16
    assert max(programs.share_of_memory(chosen.plan, chosen.state)) <= 1
    for session in (batched, chosen):
        session.train()
    assert workbench.distance(batched.snapshot().server, chosen.snapshot().server) < 1e-5


@pytest.mark.parametrize(("shares", "chunk"), [((0.5, 2.5), 40), ((2.0, 0.1), 25), ((4.0, 5.0), 12)])
def test_a_chunk_is_as_large_as_block_and_record_allow(shares, chunk):
    """100 clients are scored at once and 50 trained; both take memory in proportion."""
    assert auto._smaller_chunk(shares, (50, 100), 51) == chunk
