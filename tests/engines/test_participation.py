# SPDX-License-Identifier: Apache-2.0
"""Who takes part: uniform, exact, without repeats, cheap in any population; and what an empty round does."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc

import numpy as np
import pytest

from idiolect.engines.cohorts import Participation
from idiolect.engines.debug import debug
from idiolect.engines.simulate import simulate


def test_cohorts_have_the_asked_size_no_repeats_and_ascend():
    members, present = Participation(20, 6).draw(0, range(50))
    assert members.shape == present.shape == (50, 6)
    assert (np.diff(members, axis=1) > 0).all()
    assert members.min() >= 0
    assert members.max() < 20
    assert present.all()


def test_every_client_and_every_pair_is_equally_likely():
    members, _ = Participation(8, 3).draw(1, range(4000))
    counts = np.bincount(members.ravel(), minlength=8)
    # each client 4000 * 3/8 = 1500 times, variance 1500 * 5/8; 7 degrees of freedom pass 24.3 once in 1000
    assert ((counts - 1500) ** 2 / (1500 * 5 / 8)).sum() * 7 / 8 < 24.3
    pairs = np.zeros((8, 8))
    for row in members:
        pairs[np.ix_(row, row)] += 1
    together = pairs[np.triu_indices(8, 1)]
    # each of 28 pairs 4000 * 3/28 = 428.6 times with standard deviation 19.6: 4.5 deviations at most
    assert np.abs(together - 4000 * 3 / 28).max() < 4.5 * 19.6


def test_dropout_is_a_coin_per_member():
    _, present = Participation(50, 20, 0.3).draw(2, range(500))
    assert abs(present.mean() - 0.7) < 4 * np.sqrt(0.21 / 10_000)  # four standard deviations


def test_a_round_is_named_by_seed_and_number_alone():
    who = Participation(30, 5, 0.2)
    late = who.draw(7, range(10, 13))
    everything = who.draw(7, range(13))
    for part, whole in zip(late, everything):
        np.testing.assert_array_equal(part, whole[10:])
    assert (who.draw(8, range(13))[0] != everything[0]).any()


def test_a_cohort_of_a_million_costs_what_the_cohort_costs():
    def seconds(clients):
        best = np.inf
        for _ in range(3):
            began = time.perf_counter()
            Participation(clients, 10).draw(0, range(30))
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(1_000_000) < 20 * seconds(1_000)
    tracemalloc.start()
    Participation(1_000_000, 10, 0.1).draw(0, range(30))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000  # a permutation of the population alone would take 8 MB


@pytest.mark.usefixtures("standard_dtypes")
def test_a_round_without_anybody_changes_nothing(bench, ragged, workbench):
    training = dataclasses.replace(bench.partial, rounds=1, dropout=0.999)
    seed = next(s for s in range(99) if not Participation(6, 4, 0.999).draw(s, range(1))[1].any())
    for executor in ("batched", "looped"):
        run = simulate(bench.optax, ragged, dataclasses.replace(training, executor=executor), seed=seed)
        start = simulate(bench.optax, ragged, dataclasses.replace(training, rounds=0), seed=seed)
        # Adam's moments and its step counter included
        assert workbench.same_bits(run.server, start.server)
        assert run.ledger.upload_bytes == run.ledger.samples == 0
        assert run.ledger.download_bytes > 0  # the broadcast had gone out
        assert run.ledger.rounds == 1


def test_a_client_alone_in_its_round_is_the_whole_mean(bench, ragged, workbench):
    training = dataclasses.replace(bench.partial, rounds=2, cohort=1, dropout=0.0)
    run, plain = (engine(bench.stateful, ragged, training, seed=1) for engine in (simulate, debug))
    assert workbench.distance(run.server, plain.server) < 1e-6
    assert run.ledger.messages_up == run.ledger.messages_down == 2
