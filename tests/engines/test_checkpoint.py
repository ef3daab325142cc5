# SPDX-License-Identifier: Apache-2.0
"""Interrupted runs: resumed to the last bit, damaged files refused with a way out, nothing lost while writing."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.core import DivergedError, RequestError
from idiolect.engines import checkpoint as checkpoint_module
from idiolect.engines import run as running
from idiolect.engines.advance import advance
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.simulate import Options, open_session, simulate
from idiolect.record.errors import DamagedError

pytestmark = pytest.mark.optimized  # bits, also of different programs


def facts(run):
    """History and ledger without the clock."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history], run.ledger


def stored(checkpoint):
    """Every array of the newest checkpoint."""
    return checkpoint.load()[0]


@pytest.fixture(params=["stateful", "optax", "personal"])
def method(request, bench):
    """Client states; an optax adaptive server optimizer (moments and a counter); a personal block."""
    if request.param == "optax":
        request.getfixturevalue("standard_dtypes")
    return getattr(bench, request.param)


def test_a_resumed_run_is_the_uninterrupted_one(method, bench, ragged, workbench, tmp_path):
    whole = simulate(method, ragged, bench.partial, seed=2)
    half = dataclasses.replace(bench.partial, rounds=3)
    simulate(method, ragged, half, seed=2, options=Options(checkpoint=Checkpoint(tmp_path, every=3)))
    resumed = simulate(
        method, ragged, bench.partial, seed=2, options=Options(checkpoint=Checkpoint(tmp_path), resume=True)
    )
    # the server's optimizer and the clients' states are leaves of these
    assert workbench.same_bits((resumed.server, resumed.states), (whole.server, whole.states))
    assert workbench.same_bits(resumed.selected, whole.selected)
    assert facts(resumed) == facts(whole)
    assert resumed.recorder.last == whole.recorder.last
    assert resumed.recorder.selected == whole.recorder.selected
    assert workbench.same_bits(resumed.personal_models(), whole.personal_models())
    finished = simulate(
        method, ragged, bench.partial, seed=2, options=Options(checkpoint=Checkpoint(tmp_path), resume=True)
    )
    assert facts(finished) == facts(whole)  # resuming a finished run bills nothing twice


@pytest.fixture
def saved(bench, ragged, tmp_path):
    """Checkpoints after rounds 3 and 6."""
    checkpoint = Checkpoint(tmp_path / "checkpoint", every=3)
    simulate(bench.stateful, ragged, bench.partial, seed=2, options=Options(checkpoint=checkpoint))
    return checkpoint


def resume(algorithm, federation, training, checkpoint, seed=2):
    return simulate(algorithm, federation, training, seed=seed, options=Options(checkpoint=checkpoint, resume=True))


def test_without_a_checkpoint_resume_starts_from_the_beginning(bench, ragged, workbench, tmp_path):
    run = resume(bench.stateful, ragged, bench.partial, Checkpoint(tmp_path / "nothing"))
    assert [row["round"] for row in run.history] == [0, 3, 6]


def damaged(path, how):
    """Spoil a file: cut it, empty it, scribble over it, or change one bit in its middle."""
    content = path.read_bytes()
    middle = len(content) // 2
    broken = {
        "truncated": content[:middle],
        "emptied": b"",
        "scribbled": b"\0" * len(content),
        "flipped": content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :],
    }
    path.write_bytes(broken[how])


@pytest.mark.parametrize("how", ["truncated", "emptied", "scribbled", "flipped"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(how, saved, bench, ragged, workbench):
    whole = simulate(bench.stateful, ragged, bench.partial, seed=2)
    damaged(saved.latest, how)
    said = []
    run = resume(bench.stateful, ragged, bench.partial, dataclasses.replace(saved, say=said.append))
    assert len(said) == 1
    assert "round 3" in said[0]
    assert workbench.same_bits((run.server, run.states), (whole.server, whole.states))
    assert facts(run) == facts(whole)


def test_damage_without_a_checkpoint_before_is_refused_with_a_way_out(saved, bench, ragged):
    for path in (saved.latest, saved.previous):
        damaged(path, "flipped")
    with pytest.raises(DamagedError, match="delete the folder"):
        resume(bench.stateful, ragged, bench.partial, saved)


def test_the_history_is_appended_and_checked(saved, bench, ragged, workbench):
    path = saved.folder / "history.jsonl"
    before = path.read_bytes()
    assert len(before.splitlines()) == 3  # rounds 0, 3 and 6, each once
    with open(path, "ab") as file:
        file.write(b"what a killed process had begun to write")
    longer = dataclasses.replace(bench.partial, rounds=9)
    run = resume(bench.stateful, ragged, longer, saved)
    assert path.read_bytes()[: len(before)] == before
    assert len(path.read_bytes().splitlines()) == 4
    assert facts(run) == facts(simulate(bench.stateful, ragged, longer, seed=2))
    damaged(path, "flipped")
    with pytest.raises(DamagedError, match="is damaged"):
        resume(bench.stateful, ragged, longer, saved)


def test_an_interrupt_saves_what_is_done_since_the_last_checkpoint(bench, ragged, workbench, tmp_path):
    whole = simulate(bench.stateful, ragged, bench.partial, seed=2)
    checkpoint = Checkpoint(tmp_path, every=100)

    def interrupt(done, rounds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(
            bench.stateful, ragged, bench.partial, seed=2, options=Options(checkpoint=checkpoint, progress=interrupt)
        )
    assert checkpoint.load().facts["round"] == 3
    run = resume(bench.stateful, ragged, bench.partial, checkpoint)
    assert workbench.same_bits((run.server, run.states), (whole.server, whole.states))
    assert facts(run) == facts(whole)


def test_a_checkpoint_of_an_older_format_is_refused(saved, bench, ragged):
    leaves, facts, *_ = saved.load()
    facts.pop("format")
    saved.save(leaves, facts)
    with pytest.raises(RequestError, match="another version"):
        resume(bench.stateful, ragged, bench.partial, saved)


def test_changed_test_rows_are_refused(saved, bench, ragged):
    test = dataclasses.replace(ragged.test, inputs=ragged.test.inputs + 1)
    with pytest.raises(RequestError, match="other settings or data"):
        resume(bench.stateful, dataclasses.replace(ragged, test=test), bench.partial, saved)


def test_a_crash_between_the_two_renames_loses_one_checkpoint_not_both(saved, bench, ragged, workbench):
    whole = simulate(bench.stateful, ragged, bench.partial, seed=2)
    saved.latest.unlink()  # what is left when the old one was moved and the new one was not
    assert saved.exists()
    run = resume(bench.stateful, ragged, bench.partial, saved)
    assert workbench.same_bits((run.server, run.states), (whole.server, whole.states))
    assert facts(run) == facts(whole)


OTHER = [
    ("step_size", lambda bench: (dataclasses.replace(bench.stateful, step_size=0.3), bench.partial, 2)),
    ("algorithm", lambda bench: (bench.personal, bench.partial, 2)),
    ("seed", lambda bench: (bench.stateful, bench.partial, 3)),
    ("cohort", lambda bench: (bench.stateful, dataclasses.replace(bench.partial, cohort=3), 2)),
    ("executor", lambda bench: (bench.stateful, dataclasses.replace(bench.partial, executor="looped"), 2)),
]


@pytest.mark.parametrize(("what", "request_of"), OTHER, ids=[what for what, _ in OTHER])
def test_a_checkpoint_of_other_settings_is_refused(what, request_of, saved, bench, ragged):
    algorithm, training, seed = request_of(bench)
    with pytest.raises(RequestError, match="resume with the run's own"):
        resume(algorithm, ragged, training, saved, seed)


def test_a_choice_left_to_us_is_read_back_from_the_checkpoint(saved, bench, ragged, workbench):
    # auto measures: a busy machine may choose otherwise the second time, and must still go on to the last bit
    whole = simulate(bench.stateful, ragged, bench.partial, seed=2)
    free = dataclasses.replace(bench.partial, executor="auto", block=0)
    run = resume(bench.stateful, ragged, free, saved)
    assert (run.training.executor, run.training.block) == (whole.training.executor, whole.training.block)
    assert workbench.same_bits((run.server, run.states), (whole.server, whole.states))


def test_a_checkpoint_of_other_clients_is_refused(saved, bench, uniform):
    with pytest.raises(RequestError, match="belongs to other settings or data"):
        resume(bench.stateful, uniform, bench.partial, saved)


@pytest.mark.parametrize("failing", ["savez", "replace", "fsync"])
def test_a_failure_while_writing_leaves_the_old_checkpoint(failing, saved, bench, ragged, monkeypatch):
    before = stored(saved)
    longer = dataclasses.replace(bench.partial, rounds=9)
    written = []

    def fail(*args, **kwargs):
        written.append(args)
        raise OSError("no space left on device")

    module = np if failing == "savez" else checkpoint_module.os
    with monkeypatch.context() as patched:
        patched.setattr(module, failing, fail)
        with pytest.raises(OSError, match="no space left"):
            resume(bench.stateful, ragged, longer, saved)
    assert written
    after = stored(saved)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, after, strict=True))
    assert resume(bench.stateful, ragged, longer, saved).history[-1]["round"] == 9


def test_checkpoints_come_every_so_many_rounds(bench, ragged, tmp_path, monkeypatch):
    rounds = []
    plain_save = Checkpoint.save

    def counted(self, leaves, facts, *more):
        rounds.append(facts["round"])
        return plain_save(self, leaves, facts, *more)

    monkeypatch.setattr(Checkpoint, "save", counted)
    training = dataclasses.replace(bench.partial, rounds=11)
    simulate(bench.stateful, ragged, training, options=Options(checkpoint=Checkpoint(tmp_path, every=4)))
    assert rounds == [6, 11]  # blocks of 3: the first end at or after 4 is 6, then 4 more are 10, the last round 11


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_divergence_names_round_and_client_and_keeps_the_last_finite_state(executor, bench, ragged, tmp_path):
    wild = dataclasses.replace(bench.stateful, step_size=3e4)  # ridge 0.1: factor 1 - 3e3 a step, 3-4 digits each
    training = dataclasses.replace(bench.full, rounds=30, executor=executor)
    checkpoint = Checkpoint(tmp_path, every=100)
    with pytest.raises(DivergedError) as diverged:
        simulate(wild, ragged, training, seed=2, options=Options(checkpoint=checkpoint))
    sentence = str(diverged.value)
    assert sentence.startswith("Training diverged in round ")
    assert "on client 'clinic " in sentence
    assert "Use a smaller step size." in sentence
    assert str(tmp_path) in sentence
    leaves, kept = checkpoint.load()[:2]
    assert 0 < kept["round"] < int(sentence.split()[4])
    assert all(np.isfinite(leaf).all() for leaf in leaves if leaf.dtype.kind == "f")
    # the record that is kept ends where the state does, so that a resumed run meets the same end
    assert checkpoint.load().history[-1][0]["rounds"] <= kept["round"]
    with pytest.raises(DivergedError, match=sentence.split(":")[0]):
        simulate(wild, ragged, training, seed=2, options=Options(checkpoint=checkpoint, resume=True))


def test_divergence_without_a_checkpoint_says_so_too(bench, ragged):
    wild = dataclasses.replace(bench.personal, step_size=1e30)
    with pytest.raises(DivergedError, match=r"in round \d+ on client 'clinic \d': its parameters are no longer finite"):
        simulate(wild, ragged, dataclasses.replace(bench.full, rounds=30))


def test_a_session_can_go_on(bench, ragged, workbench):
    session = open_session([bench.stateful], ragged, bench.partial, [2], ("log_loss",))
    session.train()
    whole = simulate(bench.stateful, ragged, bench.partial, seed=2)
    assert workbench.same_bits(session.snapshot().server, whole.server)


def test_advance_returns_a_new_state_and_leaves_the_old(bench, ragged, workbench):
    session = open_session([bench.stateful], ragged, bench.partial, [2])
    plan, first = session.plan, session.state
    before = jax.tree.map(np.array, first)
    second = advance(plan, first, 3)
    assert workbench.same_bits(jax.tree.map(np.array, first), before)
    assert (first.round, second.round) == (0, 3)
    assert (first.accounts[0].ledger.rounds, second.accounts[0].ledger.rounds) == (0, 3)
    third = advance(plan, second, 3)
    session.train()
    assert workbench.same_bits((third.server, third.clients), (session.state.server, session.state.clients))
    assert third.accounts[0].ledger == session.state.accounts[0].ledger


def test_models_and_answers_of_a_run_are_computed_once(bench, ragged, monkeypatch):
    run = simulate(bench.personal, ragged, bench.partial, seed=2)
    asked = []
    plain = running.models_and_outputs
    monkeypatch.setattr(running, "models_and_outputs", lambda *given: asked.append(given) or plain(*given))
    models, outputs = run.personal_models(run.selected), run.outputs(run.selected)
    assert run.personal_models(run.selected) is models
    assert run.outputs(run.selected) is outputs
    assert len(asked) == 1
