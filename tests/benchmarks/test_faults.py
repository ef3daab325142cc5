# SPDX-License-Identifier: Apache-2.0
"""A short version of each kind of fault that `python -m benchmarks faults` tries."""

from __future__ import annotations

import pytest
from benchmarks.faults import _result, table
from benchmarks.faults_damage import damage
from benchmarks.faults_disk import refuse_disk
from benchmarks.faults_frame import Counts
from benchmarks.faults_kills import kill, spread
from benchmarks.faults_specs import mutate_specs


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """Programs that one trial compiles serve the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDIOLECT_CACHE", str(tmp_path_factory.mktemp("compiled")))
        yield


def test_killed_commands_come_to_the_same_end(tmp_path):
    for command, most in (("run", 7), ("advise", 5)):
        found = kill(tmp_path / command, most, (command,))
        assert not found.failures
        assert found.kinds == {"same end": most}


def test_damaged_files_are_refused_or_do_not_matter(tmp_path):
    found = damage(tmp_path, 15, 6, ("run",))
    assert not found.failures
    assert found.kinds["refused"] >= 5
    assert found.trials == 21


def test_disks_that_refuse(tmp_path):
    found = refuse_disk(tmp_path, 8, ("advise",))
    assert not found.failures
    assert found.trials == 8


def test_mutated_specs(tmp_path):
    found = mutate_specs(tmp_path, 12)
    assert not found.failures
    assert found.trials == 12


def test_places_are_spread_from_the_first_to_the_last():
    assert spread(5, 9) == [0, 1, 2, 3, 4]
    places = spread(100, 9)
    assert len(places) == 9
    assert {0, 1, 2, 97, 98, 99} < set(places)


def test_a_failure_is_counted_and_shown():
    found = Counts()
    found.add("same end")
    found.add("unexpected", "run: Unexpected KeyError")
    result = _result({"kills": found}, quick=False)
    assert result.numbers["kills"] == {"trials": 2, "same end": 1, "unexpected": 1, "failures": 1}
    assert result.verdict(False) == "open"
    assert "| kills | 2 | same end 1, unexpected 1 | 1 |" in table({"kills": found}, {})
