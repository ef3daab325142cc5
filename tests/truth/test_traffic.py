# SPDX-License-Identifier: Apache-2.0
"""Bytes per round in model units: what each method sends."""

from __future__ import annotations

import dataclasses

import jax
import pytest

from idiolect.accounting.bytes import bytes_of, model_units, wire
from idiolect.algorithms import ALGORITHMS, find
from idiolect.core.checks import unset
from idiolect.core.settings import know_population
from idiolect.engines.billing import sends
from idiolect.engines.start import wire_types
from idiolect.models import MLP
from idiolect.objectives import OBJECTIVES, ClientLoss

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
    ("all_for_all", {}, (1, 1), 1),
    ("all_for_all_adaptive", {}, (1, 1), 1),
    ("all_for_all_naive", {}, (5, 5), 1),  # every client listens to all a little
    ("all_for_one", {}, (1, 1), 1),
    # a net of one exit beside a linear model of 12 parameters: 3 inputs, one layer of 350, two outputs are 2,102
    ("flow", {}, (2114 / 12, 2114 / 12), 2114 / 12),
    ("flow_printed", {}, (2114 / 12, 2114 / 12), 2114 / 12),
    ("flow", {"fixed_share": 0.5}, (1, 1), 1),
    ("pi_flow", {}, (2126 / 12, 2126 / 12), 2126 / 12),
    ("pc_flow", {}, (1, 1), 1),
    ("personalized_local_sgd", {}, (1, 1), 1),
    ("personalized_local_sgd", {"output": "mean_of_means"}, (1, 2), 1),
    ("personalized_local_sgd", {"output": "own_mean"}, (1, 1), 1),
    ("apfl", {}, (1, 1), 1),
    ("apfl", {"learn_share": True}, (1, 1), 1),
    ("ditto", {}, (1, 1), 1),
    # of the network's 3 parameters of an input, 4 hidden units and 3 classes: the body is 16 + 8, the head 15 of 39
    ("fedper", {}, (24 / 39, 24 / 39), 24 / 39),
    ("fedrep", {}, (24 / 39, 24 / 39), 24 / 39),
    ("lg_fedavg", {}, (15 / 39, 15 / 39), 15 / 39),
    ("fedbabu", {}, (24 / 39, 24 / 39), 24 / 39),
    ("fedbn", {}, (31 / 39, 31 / 39), 31 / 39),  # 8 of scale and shift stay
    ("knn_per", {}, (1, 1), 1),
    ("ifca", {"clusters": 3}, (3, 1), 3),  # and the cluster's number
    ("hypcluster", {}, (2, 1), 2),
    ("per_fedavg", {}, (1, 1), 1),
    ("per_fedavg", {"variant": "hessian_free"}, (1, 1), 1),
    ("partialfed", {}, (1, 1), 1),
]


def test_the_table_covers_the_registry():
    assert {row[0] for row in TABLE} == set(ALGORITHMS)


@pytest.mark.parametrize(("name", "settings", "units", "delivered"), TABLE)
def test_model_units_per_round(lab, name, settings, units, delivered):
    method = find(name)
    client_loss, data, _ = lab.softmax_problem()
    if method.objective == "ws2":  # parts of a network
        client_loss = ClientLoss(model=MLP(3, 3, (4,), normalize="layer"))
    model = client_loss.init(jax.random.key(0))
    objective = OBJECTIVES[method.objective](client_loss, **method.objective_preset)
    algorithm = method.algorithm(objective, **{**method.preset, **settings})
    algorithm = know_population(algorithm, 5)
    algorithm = dataclasses.replace(algorithm, **dict.fromkeys(unset(algorithm), 0.5))
    broadcast, upload, deliver, _ = wire_types(algorithm, data)
    assert (model_units(broadcast, model), model_units(upload, model)) == units
    assert model_units(deliver, model) == delivered
    # personal parameters stay at home, except where the method is to average them
    assert bool(wire(broadcast, upload).warnings) == (name in ("l2gd", "l2sgd_plus"))
    scalars = bytes_of((broadcast, upload)) - round(sum(units) * bytes_of(model))
    # a weight, a round counter where an average needs it, a schedule of three integers, a value of F
    assert scalars <= 8 + 3 * 4 + 8
    assert sends(algorithm) == (name != "local")
