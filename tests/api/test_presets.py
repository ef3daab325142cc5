# SPDX-License-Identifier: Apache-2.0
"""A registered name builds the method that it names: presets apply, and what the caller gives wins."""

from __future__ import annotations

import pytest

from idiolect import ALGORITHMS, OBJECTIVES, WS2, ClientLoss, GlobalModel, Linear

LOSS = ClientLoss(model=Linear(features=3, outputs=2))
PRESET = [name for name, method in ALGORITHMS.items() if method.preset]
DIVIDED = [name for name, method in ALGORITHMS.items() if method.objective_preset]
OTHER = {str: "another", float: 0.123, int: 7}


@pytest.mark.parametrize("name", PRESET)
def test_presets_apply_and_what_is_given_wins(name):
    method = ALGORITHMS[name]
    objective = OBJECTIVES[method.objective](LOSS)
    built = method(objective)
    assert isinstance(built, method.algorithm)
    assert {key: getattr(built, key) for key in method.preset} == dict(method.preset)
    given = {key: OTHER[type(value)] for key, value in method.preset.items()}
    assert {key: getattr(method(objective, **given), key) for key in given} == given


@pytest.mark.parametrize("name", DIVIDED)
def test_presets_of_the_objective_take_the_place_of_defaults_alone(name):
    method = ALGORITHMS[name]
    built = method(WS2(LOSS)).objective
    assert (built.personal_part, built.rescale) == (method.objective_preset["personal_part"], False)
    assert method(WS2(LOSS, personal_part="bias")).objective.personal_part == "bias"
    assert method(WS2(LOSS), rescale=True).objective.rescale is True


def test_the_documented_way_is_no_longer_another_method():
    objective = GlobalModel(LOSS)
    assert ALGORITHMS["fedavg"](objective).weighting == "samples"
    assert ALGORITHMS["fedprox"](objective).penalty == 0.1
    assert ALGORITHMS["fedadam"](objective, server_step_size=0.5).server_optimizer == "fedadam"


def test_there_are_presets_to_try():
    assert len(PRESET) > 10
    assert len(DIVIDED) == 5
