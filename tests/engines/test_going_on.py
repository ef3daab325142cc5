# SPDX-License-Identifier: Apache-2.0
"""A session that goes on after another with other settings: what is kept, what is adjusted, what is paid."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.core.addressing import PerClient
from idiolect.core.checks import RequestError
from idiolect.engines.door import Training
from idiolect.engines.plan import Options
from idiolect.engines.session import Session, open_session

EXACT = Training(rounds=5, record_every=5, precision="float64", executor="batched", block=5)


def dialled(algorithm, **settings):
    """The algorithm with other settings of its objective."""
    return dataclasses.replace(algorithm, objective=dataclasses.replace(algorithm.objective, **settings))


def path(algorithms, federation, training=EXACT, seeds=(3,), act=None):
    """One session per algorithm, each after the one before, `training.rounds` rounds each; `act` on it at once."""
    sessions = []
    for place, algorithm in enumerate(algorithms):
        asked = dataclasses.replace(training, rounds=(place + 1) * training.rounds)
        lanes = [algorithm] * len(seeds)
        opened = (
            sessions[-1].go_on(lanes, asked, Options()) if sessions else open_session(lanes, federation, asked, seeds)
        )
        sessions.append(opened)
        if act is not None:
            act(sessions[-1])
        yield sessions[-1]


def alpha_h(session, alphas):
    """sum_m alpha_m h_m, its largest entry, and the largest entry of h."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(session.snapshot().states.control)]
    sums = [np.tensordot(np.broadcast_to(alphas, leaf.shape[:1]), leaf, 1) for leaf in leaves]
    return max(np.abs(one).max() for one in sums), max(np.abs(leaf).max() for leaf in leaves)


@pytest.fixture(scope="module")
def scafflix(workbench):
    return workbench.build("scafflix", local_step=0.4, communication_probability=0.4)


@pytest.mark.parametrize("cohort", [0, 4])
def test_sum_of_alpha_h_stays_zero_along_a_path(scafflix, ragged, cohort):
    training = dataclasses.replace(EXACT, cohort=cohort)
    values = (0.8, 0.4, 0.1, 0.0, 0.5)
    for value, session in zip(values, path([dialled(scafflix, personalization=v) for v in values], ragged, training)):
        assert alpha_h(session, value)[0] < 1e-15  # before a round of this value
        session.train()
        total, largest = alpha_h(session, value)
        assert total < 1e-15
        assert largest > 1e-3 or value == 0


def test_h_follows_one_alpha_and_starts_anew_with_unequal_ones(scafflix, ragged):
    unequal = PerClient(np.linspace(0.2, 0.9, ragged.clients))
    first, second, third = (dialled(scafflix, personalization=value) for value in (0.8, 0.2, unequal))
    walk = path([first, second, third], ragged)
    session = next(walk)
    session.train()
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(session.snapshot().states.control)]
    session = next(walk)
    after = [np.asarray(leaf) for leaf in jax.tree.leaves(session.snapshot().states.control)]
    for old, new in zip(before, after):
        np.testing.assert_allclose(new, 0.25 * old, rtol=1e-12)  # 0.2 / 0.8
    session.train()
    session = next(walk)
    assert alpha_h(session, unequal.values) == (0.0, 0.0)
    session.train()
    assert alpha_h(session, unequal.values)[0] < 1e-15


def test_own_optima_are_solved_once_and_only_when_they_are_needed(scafflix, ragged):
    values = (1.0, 1.0, 0.5, 0.2)
    paid, kept = [], []
    for session in path([dialled(scafflix, personalization=value) for value in values], ragged):
        paid.append(session.recorders[0].ledger.gradients_personal)
        session.train()
        kept.append(jax.tree.map(np.asarray, session.snapshot().states.prepared.optimum))
    cold = open_session([dialled(scafflix, personalization=0.5)], ragged, EXACT, [3], ("log_loss",))
    assert paid == [0, 0, cold.recorders[0].ledger.gradients_personal, 0]
    assert paid[2] > 0
    assert all(not leaf.any() for leaf in jax.tree.leaves(kept[1]))
    solved = jax.tree.map(np.asarray, cold.snapshot().states.prepared.optimum)
    for found in kept[2:]:
        for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(solved)):
            np.testing.assert_array_equal(mine, theirs)


def test_it_starts_where_the_other_stands_and_counts_rounds_on(scafflix, ragged):
    walk = path([dialled(scafflix, personalization=value) for value in (0.8, 0.4)], ragged)
    first = next(walk)
    (run,) = first.run()
    second = next(walk)
    assert second.state.round == 5
    for mine, theirs in zip(jax.tree.leaves(second.snapshot().server), jax.tree.leaves(run.server)):
        np.testing.assert_array_equal(mine, theirs)
    (later,) = second.run()
    assert [row["round"] for row in later.history] == [5, 10]
    assert later.ledger.rounds == 5  # its own
    assert later.ledger.download_bytes == run.ledger.download_bytes


@pytest.mark.parametrize(("before", "now"), [(0.8, 0.6), (0.2, 0.1)])
def test_a_warm_start_is_nearer_after_a_few_rounds(scafflix, ragged, workbench, before, now):
    """Measured 24 and 31 times as near after 5 rounds (communication_probability 0.2)."""
    base = dataclasses.replace(scafflix, communication_probability=0.2)
    long, short = (dataclasses.replace(EXACT, rounds=rounds, record_every=5) for rounds in (200, 5))
    (target,) = open_session([dialled(base, personalization=now)], ragged, long, [3], ("log_loss",)).run()
    (cold,) = open_session([dialled(base, personalization=now)], ragged, short, [3], ("log_loss",)).run()
    earlier = dataclasses.replace(EXACT, rounds=60, record_every=5)
    first = open_session([dialled(base, personalization=before)], ragged, earlier, [3], ("log_loss",))
    first.train()
    further = dataclasses.replace(EXACT, rounds=65, record_every=5)
    second = first.go_on([dialled(base, personalization=now)], further, Options())
    (warm,) = second.run()
    near, far = (workbench.distance(run.server, target.server) for run in (warm, cold))
    assert near < far / 5


def test_lanes_go_on_as_single_runs_do(scafflix, ragged):
    values = (1.0, 0.4)
    algorithms = [dialled(scafflix, personalization=value) for value in values]
    for lanes, single in zip(path(algorithms, ragged, seeds=(3, 8)), path(algorithms, ragged, seeds=(8,))):
        both, (alone,) = lanes.run(), single.run()
        for mine, theirs in zip(jax.tree.leaves(both[1].states), jax.tree.leaves(alone.states)):
            np.testing.assert_allclose(mine, theirs, atol=1e-12)
        assert both[1].ledger == alone.ledger


@pytest.mark.parametrize("name", ["acd_pfl", "asvrcd_pfl", "ascd_then_asvrcd", "l2sgd_plus", "lsgd_pfl"])
def test_a_penalty_is_dialled_to_the_point_that_a_cold_start_finds(workbench, ragged, name):
    """What belongs to the old F (momentum, snapshots, averages) must not pull the warm run elsewhere.

    The optimum of the last value is one point; both starts must come near it, from different sides.
    """
    more = {"lsgd_pfl": {"output": "weighted_average", "step_size": 0.3, "strong_convexity": 0.1}}.get(name, {})
    base = workbench.build(name, "mx2", **more)
    rounds = dataclasses.replace(EXACT, rounds=3000, record_every=3000, block=3000)
    *_, warm = (
        session.run()[0] for session in path([dialled(base, penalty=value) for value in (3.0, 0.5)], ragged, rounds)
    )
    (cold,) = open_session([dialled(base, penalty=0.5)], ragged, rounds, [3], ("log_loss",)).run()
    (other,) = open_session([dialled(base, penalty=3.0)], ragged, rounds, [3], ("log_loss",)).run()
    near = workbench.distance(warm.personal_models(), cold.personal_models())
    far = workbench.distance(other.personal_models(), cold.personal_models())
    assert near < 1e-4 * far


AS_THEY_ARE = {  # whose states hold nothing of the old setting: (further settings, what is dialled, there and back)
    "pfedme": ({"step_size": 0.2, "local_steps": 5, "inner_steps": 5, "batch_size": 0}, "penalty", (3.0, 0.5)),
    "l2gd": ({"step_size": 2.0}, "penalty", (3.0, 0.5)),
    "flix_sgd": ({"step_size": 0.5, "local_steps": 5, "batch_size": 0}, "personalization", (0.8, 0.3)),
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_a_path_that_stays_is_a_plain_run_and_one_that_comes_back_ends_where_that_ends(workbench, ragged, name):
    """Rounds count on, so that the last stretch has the coins of the plain run: both must meet, to rounding.

    The first two stretches show the first half: the same value twice is the plain run, bit for bit.
    """
    more, setting, (here, there) = AS_THEY_ARE[name]
    base = workbench.build(name, **more)
    training = dataclasses.replace(EXACT, rounds=400, record_every=400, block=400)
    plain = list(path([dialled(base, **{setting: here})] * 3, ragged, training, act=Session.train))
    whole = dataclasses.replace(training, rounds=800)
    once = open_session([dialled(base, **{setting: here})], ragged, whole, [3], ("log_loss",))
    once.train()
    assert workbench.same_bits(
        (plain[1].snapshot().server, plain[1].snapshot().states), (once.snapshot().server, once.snapshot().states)
    )
    values = (here, there, here)
    walked = list(path([dialled(base, **{setting: v}) for v in values], ragged, training, act=Session.train))
    ends = [[(one.snapshot().server, one.snapshot().states) for one in sessions] for sessions in (plain, walked)]
    assert workbench.distance(ends[0][1], ends[1][1]) > 1e-3  # elsewhere in between
    assert workbench.distance(ends[0][2], ends[1][2]) < 1e-12


def test_a_block_solver_starts_anew_at_its_iterates(workbench, ragged):
    """The snapshot's gradient is that of the old F: a round must refresh it before anything else."""
    base = workbench.build("asvrcd_pfl", "mx2")
    walk = path([dialled(base, penalty=value) for value in (3.0, 0.5)], ragged)
    next(walk).train()
    session = next(walk)
    fresh = open_session([base], ragged, EXACT, [3], ("log_loss",))
    assert bool(session.snapshot().server.refresh_due)
    assert int(session.snapshot().server.ended) == int(fresh.snapshot().server.ended)
    for block in (session.snapshot().server.shared, session.snapshot().states.personal):
        for y, z, v, gradient in zip(*(jax.tree.leaves(part) for part in block)):
            assert np.abs(y).max() > 1e-3
            np.testing.assert_array_equal(z, y)
            np.testing.assert_array_equal(v, y)
            assert not np.asarray(gradient).any()


def test_what_cannot_follow_is_refused(scafflix, workbench, ragged, tmp_path):
    first = open_session([scafflix], ragged, EXACT, [3], ("log_loss",))
    with pytest.raises(RequestError, match="only with its algorithm, objective and precision"):
        first.go_on([scafflix], dataclasses.replace(EXACT, precision="float32"), Options())
    with pytest.raises(RequestError, match="only with its algorithm, objective and precision"):
        first.go_on([workbench.build("flix_sgd")], EXACT, Options())
    with pytest.raises(RequestError, match="only with client states in memory"):
        first.go_on([scafflix], EXACT, Options(state_folder=tmp_path))
