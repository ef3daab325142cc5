# SPDX-License-Identifier: Apache-2.0
"""A resolved request repeats to the last bit."""

from __future__ import annotations

import dataclasses

import pytest

from idiolect.engines.simulate import simulate

pytestmark = pytest.mark.optimized  # bits, also of different programs


def facts(run):
    """A run's history and ledger without its clock."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history], run.ledger


def test_two_runs_of_one_request_are_equal_to_the_last_bit(bench, ragged, workbench):
    first = simulate(bench.stateful, ragged, bench.partial, seed=3)
    again = simulate(bench.stateful, ragged, first.training, seed=3)
    assert workbench.same_bits((again.server, again.states), (first.server, first.states))
    assert facts(again) == facts(first)
    other = simulate(bench.stateful, ragged, bench.partial, seed=4)
    assert workbench.distance(other.server, again.server) > 1e-4


def test_auto_writes_its_choice_down_and_the_choice_repeats(bench, ragged, workbench):
    asked = dataclasses.replace(bench.partial, executor="auto", block=0)
    first = simulate(bench.stateful, ragged, asked, seed=3)
    assert first.training.executor in ("batched", "chunked", "looped", "looped_steps")
    assert 1 <= first.training.block <= asked.record_every
    again = simulate(bench.stateful, ragged, first.training, seed=3)
    assert again.training == first.training
    assert workbench.same_bits((again.server, again.states), (first.server, first.states))
    assert facts(again) == facts(first)
