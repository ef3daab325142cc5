# SPDX-License-Identifier: Apache-2.0
"""The side-by-side with other libraries, without them: nothing is installed, their answers are recorded."""

from __future__ import annotations

import copy
import json
import math
import sys

import numpy as np
import pytest
from benchmarks.growth import power
from benchmarks.peers_contest import NotMeasuredError, Way, choose, contest, judge
from benchmarks.peers_environments import OURS, PEERS, Environment, prepare
from benchmarks.peers_idiolect import initial
from benchmarks.peers_problem import CNN, MEMORY, SOFTMAX, read, smaller, write
from benchmarks.peers_table import table

from benchmarks import peers, peers_environments

START = 2.0  # loss before the first round
SEEN = {
    "how": "1 thread",
    "facts": {},
    "first result, s": 2.0,
    "MB after the first round": 100.0,
    "seconds of a round": [0.01, 0.02, 0.01],
    "CPU seconds of a round": [0.01, 0.01, 0.01],
    "loss at the end": 1.0,
    "peak MB": 120.0,
}


@pytest.fixture
def recorded():
    """What three libraries answered: one as we do but slower, one that trained something else, one that failed."""
    slower = SEEN | {"seconds of a round": [0.2, 0.4, 0.3]}
    elsewhere = SEEN | {"loss at the end": 1.5}
    found = {"idiolect": SEEN, "pfl": slower, "fedjax": elsewhere, "flower": "not measured: ended early: no ray"}
    return copy.deepcopy(found)


def part(libraries):
    return {"libraries": libraries, "rounds": 100, "steps of a round": 1000, "load before and after": [0.5, 1.0]}


@pytest.mark.parametrize("problem", [CNN, MEMORY])
def test_every_library_reads_what_was_written(problem, tmp_path):
    small = smaller(problem)
    params = initial(small)
    given = read(write(tmp_path, small, params))
    assert given.problem == small
    assert {layer: set(own) for layer, own in given.params.items()} == {
        layer: set(own) for layer, own in params.items()
    }
    np.testing.assert_array_equal(given.params["dense_0"]["weights"], params["dense_0"]["weights"])
    assert len(given.inputs) == len(given.targets) == small.clients * small.rows
    np.testing.assert_array_equal(given.of(1)[0], given.inputs[small.rows : 2 * small.rows])


def test_ratios_are_medians_of_the_turns_and_losses_are_held_to_ours(recorded):
    judge(recorded, SOFTMAX, START)
    assert recorded["pfl"]["seconds of a round, ratio"] == pytest.approx(20)  # of 20, 20 and 30
    assert recorded["pfl"]["same loss"]
    assert not recorded["fedjax"]["same loss"]
    assert recorded["fedjax"]["loss apart, of the progress"] == pytest.approx(0.5)  # 0.5 of 2 - 1


def test_the_table_leaves_nothing_out(recorded):
    judge(recorded, SOFTMAX, START)
    environments = {"flower": {"notes": ["flwr 1.42 could not be installed: no certifi"]}}
    text = table({"environments": environments, "softmax": part(recorded)})
    assert "flwr 1.42 could not be installed: no certifi" in text
    assert "flower: not measured: ended early: no ray" in text
    assert "ELSEWHERE: 50.0%" in text
    assert "load 0.5 -> 1.0" in text


def test_a_target_is_open_where_a_library_is_missing_or_ends_elsewhere(recorded):
    judge(recorded, SOFTMAX, START)
    met = {target.what: target.met for target in peers.targets({"softmax": part(recorded)})}
    assert met["softmax: pfl / idiolect"]
    assert not met["same loss as ours, of all that were measured"]
    recorded["pfl"] = "not measured"
    assert not next(peers.targets({"softmax": part(recorded)})).met


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    library, made = PEERS[0], []

    def make(folder, choice):
        made.append(choice)
        folder.mkdir()

    monkeypatch.setattr(peers_environments, "_make", make)
    assert prepare(library, tmp_path) == prepare(library, tmp_path)
    assert len(made) == 1


def test_the_next_version_is_tried_and_the_reason_kept(tmp_path, monkeypatch):
    flower = next(library for library in PEERS if library.name == "flower")
    monkeypatch.setattr(peers_environments, "_make", lambda folder, choice: "no such version")
    found = prepare(flower, tmp_path)
    assert found.python is None
    assert len(found.notes) == len(flower.choices)
    assert "1.42" in found.notes[0]
    assert "no such version" in found.notes[0]


def test_our_own_side_trains_and_a_library_that_is_not_there_is_said_to_be_missing(tmp_path):
    problem = smaller(SOFTMAX)
    path = write(tmp_path, problem, initial(problem))
    missing = next(library for library in PEERS if library.name == "fedjax")
    absent = Way(Environment(missing, sys.executable), "jit", path, tmp_path / "fedjax.txt")
    with pytest.raises(NotMeasuredError, match="No module named 'fedjax'"):
        choose([absent], problem, START)
    ours = Way(Environment(OURS, sys.executable), "1 device", path, tmp_path / "ours.txt")
    found = contest({"idiolect": ours}, problem)
    judge(found, problem, math.log(10))  # of a model that knows nothing
    numbers = found["idiolect"]
    assert numbers["loss at the end"] < math.log(10)
    assert numbers["seconds of a round, ratio"] == 1
    assert numbers["peak MB"] > 50
    json.dumps(found)


def test_a_power_is_found_again():
    values = [1, 2, 4, 8]
    slope, low, high = power(values, [3 * value**1.5 for value in values])
    assert slope == pytest.approx(1.5)
    assert low == pytest.approx(high)
