# SPDX-License-Identifier: Apache-2.0
"""Training alone: every client chooses for itself, whatever the others' rows say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.experiments.lanes import Lane
from idiolect.experiments.own_choice import LEAST, choose_own_training, own_steps
from idiolect.theory.constants import Constants

FOLDS, CLIENTS = 3, 4
NAN = float("nan")


def lane(step_size, losses, diverged=None):
    """`losses`: round -> one number per client, the same in every fold but for a little."""
    recorders = [SimpleNamespace(diverged=diverged)] * FOLDS
    records = [
        {number: {"log_loss": np.array(own) + 0.01 * fold} for number, own in losses.items()} for fold in range(FOLDS)
    ]
    return Lane({"step_size": step_size}, "log_loss", recorders, records)


@pytest.fixture
def lanes():
    slow = lane(0.1, {0: [0.2, 0.9, 0.9, NAN], 2: [0.5, 0.3, 0.9, NAN], 8: [0.9, 0.5, 0.6, NAN]})
    fast = lane(0.4, {0: [0.2, 0.9, 0.9, NAN], 2: [0.6, 0.8, 0.5, NAN], 8: [0.9, 0.9, 0.4, NAN]})
    return [slow, fast, lane(1.6, {0: [0.0] * CLIENTS}, diverged="Training diverged in round 1")]


def test_each_client_goes_as_far_as_its_own_rows_say(lanes):
    found = choose_own_training(lanes, lanes[0])
    assert found.rounds == 8
    assert found.step_sizes[0] == pytest.approx(0.1 * LEAST / 8)  # it does best untrained
    assert found.step_sizes[1] == pytest.approx(0.1 * 2 / 8)
    assert found.step_sizes[2] == pytest.approx(0.4)
    _, common = lanes[0].best
    assert found.step_sizes[3] == pytest.approx(0.1 * max(common, LEAST) / 8)  # nothing to choose by
    np.testing.assert_allclose(found.losses[:, :3], [[0.2, 0.3, 0.4], [0.21, 0.31, 0.41], [0.22, 0.32, 0.42]])
    assert np.isnan(found.losses[:, 3]).all()


def test_other_clients_rows_choose_nothing(lanes):
    before = choose_own_training(lanes, lanes[0])
    for one in lanes[:2]:
        for records in one.records:
            for number, own in records.items():
                own["log_loss"][2] = 1.0 - 0.1 * number  # one client's rows say something else
    after = choose_own_training(lanes, lanes[0])
    ratio = before.rounds / after.rounds
    np.testing.assert_allclose(np.multiply(before.step_sizes, ratio)[:2], after.step_sizes[:2])


def test_a_single_fold_is_judged_by_the_common_choice(lanes):
    single = [Lane(one.point, "log_loss", one.recorders[:1], one.records[:1]) for one in lanes[:2]]
    found = choose_own_training(single, single[0])
    np.testing.assert_array_equal(found.losses, single[0].clients(single[0].best[1], "log_loss"))


def test_own_steps_are_multiples_of_the_clients_own_unit_for_all_rounds(lanes):
    bases = np.array([1.0, 2.0, 4.0, 8.0])
    plain, own = choose_own_training(lanes, lanes[0]), choose_own_training(lanes, lanes[0], bases)
    np.testing.assert_allclose(own.step_sizes, bases * plain.step_sizes)
    for one in lanes[:2]:
        for records in one.records:
            records[8]["log_loss"][2] = 0.9  # the client that trained longest now stops early
    assert choose_own_training(lanes, lanes[0], bases).rounds == own.rounds == 8
    assert choose_own_training(lanes, lanes[0]).rounds == 2


def test_own_units_follow_the_clients_own_curvature():
    one = np.array([2.0, 0.0])
    constants = Constants(one, 0 * one, np.array([6.0, 0.0]), exact=True, source="")
    np.testing.assert_allclose(own_steps(constants, 0), [0.25, 1.0])
    np.testing.assert_allclose(own_steps(constants, 2), [0.125, 1.0])


def test_without_a_step_size_or_a_score_there_is_nothing_to_choose(lanes):
    bare = Lane({}, "log_loss", lanes[0].recorders, lanes[0].records)
    assert choose_own_training([bare], bare) is None
    empty = lane(0.1, {0: [NAN] * CLIENTS, 2: [NAN] * CLIENTS})
    assert choose_own_training([empty], empty) is None


def test_training_alone_has_converged_where_what_clients_choose_stands_still():
    """The first client is best at once and grows worse: the mean course of the candidate would never stand still."""
    rounds = [*range(1, 13), 15, 20, 25, 30]
    falling = {n: [0.1 + 0.01 * n, 0.5 + 0.5 * 0.5**n, 0.5, 0.5] for n in rounds}
    slow = {n: [0.1 + 0.01 * n, 0.5 + 0.5 / n, 0.5, 0.5] for n in rounds}
    for losses, settled in ((falling, True), (slow, False)):
        one = lane(0.1, losses)
        assert choose_own_training([one], one, np.ones(CLIENTS)).converged is settled


def test_of_few_clients_one_may_still_gain_next_to_nothing():
    rounds = [*range(1, 13), 15, 20, 25, 30]
    # more than a thousandth of its loss in the last third, but not of the mean client's
    one = lane(0.1, {n: [0.5 - 0.0001 * n, 0.5, 0.5, 0.5] for n in rounds})
    assert choose_own_training([one], one, np.ones(CLIENTS)).converged


def test_one_client_in_ten_may_go_on_improving_for_ever():
    """Where all rows of a client are of one class its log loss falls for ever: more rounds are of no use for that."""
    rounds = [*range(1, 13), 15, 20, 25, 30]
    for endless, settled in ((1, True), (2, False)):
        one = lane(0.1, {n: [3.0 / n] * endless + [0.5 + 0.5 * 0.5**n] * (10 - endless) for n in rounds})
        found = choose_own_training([one], one, np.ones(10))
        assert (found.converged, found.trained) == (settled, 30)


def test_a_step_that_ends_worse_than_it_began_is_not_stable():
    good, bad = (
        lane(0.1, {0: [1.0] * 4, 1: [0.5] * 4, 2: [0.6] * 4}),
        lane(0.4, {0: [1.0] * 4, 1: [0.4] * 4, 2: [9.0] * 4}),
    )
    assert good.stable
    assert not bad.stable
    assert bad.best > good.best  # its first round alone would win a race
