# SPDX-License-Identifier: Apache-2.0
"""Records: read while the next block runs, of a sample of clients where asked, the same numbers in every order."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.core import RequestError
from idiolect.engines import population
from idiolect.engines import session as sessions
from idiolect.engines.judge import score
from idiolect.engines.simulate import Options, open_session, simulate

CLOCKS = {"seconds"}  # of a row: no two runs agree


@pytest.fixture
def order(monkeypatch):
    """What a session does, in order: "L" a block is launched, "S" it is settled, "R" its record is read."""
    events = []
    for name, letter in (("launch", "L"), ("settle", "S"), ("advance", "A"), ("record", "R")):
        done = getattr(sessions, name)

        def noted(*arguments, done=done, letter=letter, **named):
            events.append(letter)
            return done(*arguments, **named)

        monkeypatch.setattr(sessions, name, noted)
    return events


def numbers(session):
    return [
        {name: value for name, value in row.items() if name not in CLOCKS}
        for recorder in session.recorders
        for row in recorder.history
    ]


@pytest.mark.parametrize("seeds", [[3], [3, 4]], ids=["one lane", "two lanes"])
def test_running_ahead_changes_no_bit(seeds, bench, ragged, order):
    training = dataclasses.replace(bench.partial, rounds=8, block=2)  # records after 3, 6 and 8 rounds

    def train(watch=None):
        session = open_session([bench.stateful] * len(seeds), ragged, training, seeds, ("log_loss", "accuracy"))
        session.train(watch)
        return session

    ahead = train()
    assert "".join(order) == "RLLSLSRLSLSRSR"  # no record is read before the next block is under way
    order.clear()
    waiting = train(watch=lambda lane, recorder, scores: None)
    assert "".join(order) == "RAARAARAR"  # who reads scores may decide by them
    assert numbers(ahead) == numbers(waiting)
    for left, right in zip(ahead.finish(), waiting.finish()):
        assert left.recorder.selected == right.recorder.selected
        assert left.recorder.selected_round == right.recorder.selected_round
        kept = [jax.tree.leaves((run.last, run.selected)) for run in (left, right)]
        for one, other in zip(*kept, strict=True):
            np.testing.assert_array_equal(one, other)


def test_clients_that_predict_with_the_shared_model_are_scored_once(workbench, ragged, bench):
    run = simulate(workbench.build("fedavg", epochs=1, batch_size=2, step_size=0.1), ragged, bench.partial, seed=3)
    scores = run.recorder.last["validation"]
    assert scores["personal"] == scores["shared"]
    tuned = workbench.build("fedavg_fine_tuning", epochs=1, batch_size=2, step_size=0.1)
    scores = simulate(tuned, ragged, bench.partial, seed=3).recorder.last["validation"]
    assert scores["personal"] != scores["shared"]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_sample_of_clients_is_scored_between_rounds(on_disk, bench, ragged, tmp_path):
    training = dataclasses.replace(bench.partial, evaluate_clients=2)
    options = Options(state_folder=tmp_path if on_disk else None)
    session = open_session([bench.stateful], ragged, training, [3], ("log_loss",), options)
    (run,) = session.run()
    who = session.plan.judged
    assert len(who) == 2
    every = score(session.plan, session.state.now, "validation")[0]["personal"]["log_loss"][0]
    shown = run.history[-1]["validation_personal_log_loss_mean"]
    assert shown == pytest.approx(np.nanmean(every[who]), rel=1e-6)
    assert len(run.recorder.last["test"]["personal"]["log_loss"]) == 6  # the end is of all
    expected = simulate(bench.stateful, ragged, bench.partial, seed=3)  # who is scored changes no model
    np.testing.assert_allclose(run.server.shared["weights"], expected.server.shared["weights"], rtol=1e-5)


def test_more_clients_than_there_are_cannot_be_scored(bench, ragged):
    with pytest.raises(RequestError, match="evaluate_clients must be at most the number of clients, 6, got 7"):
        simulate(bench.stateful, ragged, dataclasses.replace(bench.partial, evaluate_clients=7))


def test_rows_that_need_no_padding_go_to_an_accelerator_as_they_lie(uniform, ragged, monkeypatch):
    expected = uniform.train.pad(np.arange(6))
    monkeypatch.setattr(population.jax, "default_backend", lambda: "gpu")
    found = population.padded(uniform.train, np.arange(6), expected.targets.shape[1])
    assert np.shares_memory(found.inputs, uniform.train.inputs)
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype
    for rows, clients in ((ragged.train, np.arange(6)), (uniform.train, np.array([1, 0]))):
        assert not np.shares_memory(population.padded(rows, clients, 5).inputs, rows.inputs)
