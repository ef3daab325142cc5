# SPDX-License-Identifier: Apache-2.0
"""Clients that never take part (alpha_m = 0 of FLIX): no message, no gradient beyond their own solve, in any engine.

The same runs show that sum_m alpha_m h_m is conserved whichever executor runs which cohort.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.core import RequestError
from idiolect.core.addressing import PerClient
from idiolect.core.settings import settings
from idiolect.engines.debug import debug
from idiolect.engines.door import Training, participation_of
from idiolect.engines.simulate import Options, open_session, simulate, simulate_many

ALPHAS = np.array([0.0, 0.8, 0.5, 0.0, 0.9, 0.2])  # clients 0 and 3 are their own
ROWS = np.array([3, 5, 4, 5, 3, 4])  # of the ragged federation
MODEL = 8 * (3 * 3 + 3)  # float64 weights and bias
EVERY = Training(rounds=4, record_every=4, precision="float64", executor="batched", block=4)
SOME = dataclasses.replace(EVERY, cohort=3, dropout=0.25)


def flix(workbench, name, alphas=ALPHAS):
    built = workbench.build(name)
    value = PerClient(np.asarray(alphas, float)) if np.ndim(alphas) else alphas
    return dataclasses.replace(built, objective=dataclasses.replace(built.objective, personalization=value))


def session_of(algorithm, federation, training, seeds=(3,)):
    return open_session([algorithm] * len(seeds), federation, training, list(seeds), ("log_loss",))


@pytest.fixture(scope="module")
def runs(workbench, ragged):
    """Scafflix and flix_sgd, with all of those that take part and with some of them."""
    return {
        (name, training.cohort): simulate(flix(workbench, name), ragged, training, seed=3)
        for name in ("scafflix", "flix_sgd")
        for training in (EVERY, SOME)
    }


@pytest.mark.parametrize("name", ["scafflix", "flix_sgd"])
def test_by_hand(runs, name):
    run = runs[name, 0]
    ledger, there = run.ledger, ALPHAS > 0
    scalar = 4 if name == "scafflix" else 0  # the number of iterations, an int32, rides along
    assert ledger.rounds == 4
    assert ledger.messages_down == ledger.messages_up == 4 * 4
    # what settles is the next broadcast: the same four clients are in every round
    assert ledger.download_bytes == 16 * (MODEL + scalar)
    assert ledger.upload_bytes == 16 * (MODEL + 8)
    assert ledger.delivery_bytes == 4 * MODEL
    # per round and client that is there: `useful_steps` of them, and scafflix's iteration of the exchange
    steps = ledger.useful_steps // 4 + (4 if name == "scafflix" else 0)
    assert ledger.gradients_shared == steps * ROWS[there].sum()
    assert run.recorder.client_bytes == [0 if alpha == 0 else ledger.total_bytes // 4 for alpha in ALPHAS]


@pytest.mark.parametrize("cohort", [0, 3])
@pytest.mark.parametrize("name", ["scafflix", "flix_sgd"])
def test_bytes_by_client_add_up_and_who_stays_out_keeps_its_start(runs, workbench, ragged, name, cohort):
    run = runs[name, cohort]
    assert sum(run.recorder.client_bytes) == run.ledger.total_bytes
    assert run.recorder.client_bytes[0] == run.recorder.client_bytes[3] == 0 < min(run.recorder.client_bytes[1:3])
    fresh = session_of(flix(workbench, name), ragged, EVERY).snapshot().states
    for mine, start in zip(jax.tree.leaves(run.states), jax.tree.leaves(fresh)):
        np.testing.assert_array_equal(np.asarray(mine)[[0, 3]], np.asarray(start)[[0, 3]])


@pytest.mark.parametrize("cohort", [0, 3])
@pytest.mark.parametrize(("executor", "chunk"), [("chunked", 2), ("looped", 0)])
def test_executors_agree_and_conserve_the_sum(runs, workbench, ragged, cohort, executor, chunk):
    asked = dataclasses.replace(SOME if cohort else EVERY, executor=executor, chunk=chunk)
    session = session_of(flix(workbench, "scafflix"), ragged, asked)
    session.train()
    expected = runs["scafflix", cohort]
    assert workbench.distance(session.snapshot().server, expected.server) < 1e-13
    assert workbench.distance(session.snapshot().states, expected.states) < 1e-13
    mine, theirs = (recorder.history[-1] for recorder in (session.recorders[0], expected.recorder))
    for name in ("rounds", "download_bytes", "upload_bytes", "messages_up", "gradients_shared", "gradients_personal"):
        assert mine[name] == theirs[name], name
    for states in (session.snapshot().states, expected.states):
        for h in map(np.asarray, jax.tree.leaves(states.control)):
            assert np.abs(h).max() > 1e-3
            assert np.abs(np.tensordot(ALPHAS, h, 1)).max() < 1e-15  # it starts at 0 and never moves


@settings
class Closed(LocalSGD):
    """Any method may leave clients out."""

    def takes_part(self):
        return ALPHAS > 0


def test_plain_python_agrees(workbench, uniform):
    algorithm, once = (
        Closed(workbench.build_objective("global_model")),
        dataclasses.replace(SOME, rounds=1, precision="float32"),
    )
    plain, compiled = (run(algorithm, uniform, once, seed=3) for run in (debug, simulate))
    assert workbench.distance(plain.server, compiled.server) < 1e-6
    assert plain.tally.shared == compiled.ledger.gradients_shared > 0


def test_with_alpha_zero_for_all_nothing_is_sent_in_a_lane_or_alone(runs, workbench, ragged):
    alphas = (ALPHAS, np.zeros(6))
    alone = [runs["scafflix", 0], simulate(flix(workbench, "scafflix", alphas[1]), ragged, EVERY, seed=3)]
    lanes = simulate_many([flix(workbench, "scafflix", alpha) for alpha in alphas], ragged, EVERY, seeds=[3, 3])
    nobody = alone[1].ledger
    assert nobody.rounds == nobody.total_bytes == nobody.messages_down == nobody.gradients_shared == 0
    assert nobody.gradients_personal > 0  # its own solves
    assert alone[1].recorder.last_round == 4
    for single, lane in zip(alone, lanes):
        assert dataclasses.replace(single.ledger, executed_steps=0) == dataclasses.replace(
            lane.ledger, executed_steps=0
        )
        assert single.recorder.client_bytes == lane.recorder.client_bytes
        assert workbench.distance(lane.server, single.server) < 1e-13
        assert workbench.distance(lane.states, single.states) < 1e-13


def test_states_on_disk_stay_out_too(runs, workbench, ragged, tmp_path):
    run = simulate(flix(workbench, "scafflix"), ragged, SOME, seed=3, options=Options(state_folder=tmp_path))
    assert workbench.distance(run.server, runs["scafflix", 3].server) < 1e-13
    assert run.ledger == runs["scafflix", 3].ledger


def test_a_cohort_is_drawn_from_those_that_take_part(workbench, ragged):
    who = participation_of(flix(workbench, "flix_gd"), SOME, 6)
    members, _ = who.draw(0, range(200))
    assert set(members.ravel().tolist()) == {1, 2, 4, 5}
    assert who.chance == 0.75 * 0.75
    wide, present = who.draw(0, range(5), width=5)
    assert (wide[:, 3:] == 2**31 - 1).all()
    assert not present[:, 3:].any()
    with pytest.raises(RequestError, match=r"at most the number of clients that take part, 4 of 6, got 5\. Use 0"):
        simulate(flix(workbench, "flix_gd"), ragged, dataclasses.replace(EVERY, cohort=5))
