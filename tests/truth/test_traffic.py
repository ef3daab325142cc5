# SPDX-License-Identifier: Apache-2.0
"""Bytes per round in model units: sections 1, 3 and 6 of ALGORITHMS say what each method sends."""

from __future__ import annotations

import dataclasses

import pytest

from idiolect.accounting.bytes import bytes_of, model_units, wire
from idiolect.algorithms import ALGORITHMS, find
from idiolect.core.checks import unset
from idiolect.core.settings import know_population
from idiolect.engines.start import wire_types
from idiolect.objectives import OBJECTIVES

TABLE = [
    # name, settings, (down, up), delivered
    ("local_sgd", {}, (1, 1), 1),
    ("fedavg", {}, (1, 1), 1),
    ("fedprox", {}, (1, 1), 1),
    ("fedavg_fine_tuning", {}, (1, 1), 1),
    ("fedadam", {}, (1, 1), 1),
    ("fedyogi", {}, (1, 1), 1),
    ("minibatch_sgd", {}, (1, 1), 1),
    ("local", {}, (0, 0), 0),
    ("scaffold", {"option": 1}, (2, 2), 1),
    ("scaffold", {"option": 2}, (2, 2), 1),
    ("lsgd_pfl", {}, (1, 1), 1),
    ("lsgd_pfl", {"output": "weighted_average"}, (1, 2), 1),
    ("acd_pfl", {}, (1, 1), 1),
    ("asvrcd_pfl", {}, (1, 1), 1),
    ("svrcd_pfl", {}, (1, 1), 1),
    ("ascd_pfl", {}, (1, 1), 1),
    ("scd_pfl", {}, (1, 1), 1),
    ("ascd_then_asvrcd", {}, (1, 1), 1),
    ("l2gd", {}, (1, 1), 0),
    ("l2sgd_plus", {}, (1, 1), 0),
    ("pfedme", {}, (1, 1), 1),
    ("scafflix", {}, (1, 1), 1),
    ("i_scaffnew", {}, (1, 1), 1),
    ("scaffnew", {}, (1, 1), 1),
    ("flix_gd", {}, (1, 1), 1),
    ("flix_sgd", {}, (1, 1), 1),
    # a net of one exit beside a linear model of 12 parameters: 3 inputs, one layer of 350, two outputs are 2,102
    ("flow", {}, (2114 / 12, 2114 / 12), 2114 / 12),
    ("flow", {"fixed_share": 0.5}, (1, 1), 1),
    ("pi_flow", {}, (2126 / 12, 2126 / 12), 2126 / 12),
    ("pc_flow", {}, (1, 1), 1),
    ("personalized_local_sgd", {}, (1, 1), 1),
    ("personalized_local_sgd", {"output": "mean_of_means"}, (1, 2), 1),
    ("personalized_local_sgd", {"output": "own_mean"}, (1, 1), 1),
]


def test_the_table_covers_the_registry():
    assert {row[0] for row in TABLE} == set(ALGORITHMS)


@pytest.mark.parametrize(("name", "settings", "units", "delivered"), TABLE)
def test_model_units_per_round(lab, name, settings, units, delivered):
    method = find(name)
    client_loss, data, _ = lab.softmax_problem()
    model = client_loss.init(None)
    algorithm = method.algorithm(OBJECTIVES[method.objective](client_loss), **{**method.preset, **settings})
    algorithm = know_population(algorithm, 5)
    algorithm = dataclasses.replace(algorithm, **dict.fromkeys(unset(algorithm), 0.5))
    broadcast, upload, deliver = wire_types(algorithm, data)
    assert (model_units(broadcast, model), model_units(upload, model)) == units
    assert model_units(deliver, model) == delivered
    # personal parameters stay at home, except where the method is to average them
    assert bool(wire(broadcast, upload).warnings) == (name in ("l2gd", "l2sgd_plus"))
    scalars = bytes_of((broadcast, upload)) - sum(units) * bytes_of(model)
    # a weight, a round counter where an average needs it, a schedule of three integers, a value of F
    assert scalars <= 8 + 3 * 4 + 8
    assert algorithm.traffic(broadcast, 5) == ((0, 0) if name == "local" else None)
