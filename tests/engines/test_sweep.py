# SPDX-License-Identifier: Apache-2.0
"""A sweep is one program, and each of its lanes is the run it stands for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from idiolect.core import RequestError
from idiolect.engines.block import TRACES
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.simulate import Options, open_session, simulate, simulate_many

pytestmark = pytest.mark.optimized  # bits, also of different programs


@pytest.fixture(scope="module")
def lanes(bench, ragged):
    """Three step sizes under one seed, and the first step size under another."""
    algorithms = [dataclasses.replace(bench.stateful, step_size=step) for step in (0.05, 0.1, 0.3, 0.05)]
    traced = dict(TRACES)
    runs = simulate_many(algorithms, ragged, bench.partial, seeds=[3, 3, 3, 8])
    return algorithms, runs, {name: TRACES[name] - traced.get(name, 0) for name in TRACES}


def test_a_sweep_is_one_program(lanes):
    *_, traced = lanes
    assert traced["block"] == 1
    assert traced["evaluate"] <= 2  # all lanes on validation rows, and one lane on test rows


def test_each_lane_is_its_own_run(lanes, bench, ragged, workbench):
    algorithms, runs, _ = lanes
    for algorithm, run in zip(algorithms, runs):
        alone = simulate(algorithm, ragged, bench.partial, seed=run.seed)
        assert workbench.distance((run.server, run.states), (alone.server, alone.states)) < 1e-6
        assert run.ledger == alone.ledger
        assert workbench.distance(run.personal_models(), alone.personal_models()) < 1e-6
        for ours, theirs in zip(run.history, alone.history):
            assert ours.keys() == theirs.keys()
            for name in ours.keys() - {"seconds"}:
                np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, err_msg=name)
    assert workbench.distance(runs[0].server, runs[1].server) > 1e-4  # step sizes matter
    assert workbench.distance(runs[0].server, runs[3].server) > 1e-4  # seeds matter


def test_a_lane_that_diverges_is_marked_and_the_others_go_on(lanes, bench, ragged, workbench):
    algorithms, runs, _ = lanes
    wild = [dataclasses.replace(algorithms[0], step_size=1e30), algorithms[1]]
    diverged, sound = simulate_many(wild, ragged, bench.partial, seeds=[3, 3])
    assert diverged.recorder.diverged.client is not None
    assert sound.recorder.diverged is None
    assert workbench.distance(sound.server, runs[1].server) < 1e-6


def test_a_sweep_resumes_to_the_last_bit(lanes, bench, ragged, workbench, tmp_path):
    algorithms, runs, _ = lanes
    seeds = [run.seed for run in runs]
    half = dataclasses.replace(bench.partial, rounds=3)
    simulate_many(algorithms, ragged, half, seeds=seeds, options=Options(checkpoint=Checkpoint(tmp_path, every=3)))
    again = simulate_many(
        algorithms, ragged, bench.partial, seeds=seeds, options=Options(checkpoint=Checkpoint(tmp_path), resume=True)
    )
    for ours, theirs in zip(again, runs):
        assert workbench.same_bits((ours.server, ours.states), (theirs.server, theirs.states))
        assert ours.ledger == theirs.ledger


def test_only_floats_and_seeds_may_differ(bench, ragged):
    longer = dataclasses.replace(bench.stateful, epochs=2)
    with pytest.raises(RequestError, match="only floats and seeds may differ, got 2 different structures"):
        simulate_many([bench.stateful, longer], ragged, bench.partial, seeds=[0, 0])
    with pytest.raises(RequestError, match="simulate_many needs one seed per algorithm, got 1 algorithms and 2 seeds"):
        simulate_many([bench.stateful], ragged, bench.partial, seeds=[0, 1])


def test_lanes_that_draw_the_same_steps_run_side_by_side(bench, ragged, workbench):
    """Two seeds by two step sizes: the seed draws the schedule, the step size has no part in it."""
    drawn = workbench.build("scaffnew", local_step=0.1, communication_probability=0.4)
    algorithms = [dataclasses.replace(drawn, local_step=step) for step in (0.1, 0.1, 0.3, 0.3)]
    session = open_session(algorithms, ragged, bench.full, [3, 8, 3, 8], ("log_loss",))
    assert sorted(map(sorted, session.plan.turns.tolist())) == [[0, 2], [1, 3]]
    for algorithm, run in zip(algorithms, session.run()):
        alone = simulate(algorithm, ragged, bench.full, seed=run.seed)
        assert workbench.distance((run.server, run.states), (alone.server, alone.states)) < 1e-6
        assert run.ledger == alone.ledger

    def groups(lanes, seeds):
        return open_session(lanes, ragged, bench.full, seeds, ("log_loss",)).plan.turns.shape

    assert groups(algorithms, [3, 3, 3, 8]) == (4, 1)  # three and one have no common shape
    few_rows = [dataclasses.replace(algorithm, batch_size=2) for algorithm in algorithms]
    assert groups(few_rows, [3, 8, 3, 8]) == (4, 1)  # nothing to be read together
    often = [dataclasses.replace(drawn, communication_probability=p) for p in (0.2, 0.6)]
    assert groups(often, [3, 3]) == (2, 1)


@pytest.mark.parametrize("executor", ["looped", "looped_steps"])
def test_lanes_of_the_looped_executor_come_one_after_another(executor, lanes, bench, ragged, workbench):
    algorithms, runs, _ = lanes
    training = dataclasses.replace(bench.partial, executor=executor)
    looped = simulate_many(algorithms[2:], ragged, training, seeds=[3, 8])
    for ours, theirs in zip(looped, runs[2:]):
        assert workbench.distance((ours.server, ours.states), (theirs.server, theirs.states)) < 1e-6
        assert ours.ledger.useful_steps == theirs.ledger.useful_steps
        assert ours.ledger.upload_bytes == theirs.ledger.upload_bytes
