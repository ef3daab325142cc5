# SPDX-License-Identifier: Apache-2.0
"""Bytes that are kept and operations of one client, against counts by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from idiolect.algorithms import IFCA, KNNPer, L2SGDPlus, Local, LocalSGD, PartialAveraging
from idiolect.core import keys
from idiolect.core.data import Rows
from idiolect.engines import door
from idiolect.engines.footprint import client_flops, storage
from idiolect.models import MLP, CharacterLSTM, Linear
from idiolect.objectives import MX2, WS2, ClientLoss, GlobalModel, LocalOnly

FEATURES, CLASSES, ROWS = 200, 10, 50
MODEL = 4 * (FEATURES + 1) * CLASSES  # bytes
LOSS = ClientLoss(model=Linear(FEATURES, CLASSES))
GRADIENT = 4 * ROWS * FEATURES * CLASSES  # two products of ROWS x FEATURES x CLASSES, two operations per term


def rows(*counts):
    inputs, targets = np.zeros((sum(counts), FEATURES), np.float32), np.zeros(sum(counts), np.int32)
    return Rows(inputs, targets, np.cumsum([0, *counts]))


def flops(algorithm, data=None):
    data = rows(30, 70) if data is None else data  # 50 on average
    algorithm = door.admit(algorithm, data.clients, "float32", 1.0)
    return client_flops(algorithm, algorithm.init_server(keys.root_key(0)), 0, data, "float32")


def kept(algorithm):
    return dataclasses.astuple(storage(door.admit(algorithm, 2, "float32", 1.0), rows(30, 70), "float32"))


def test_bytes_by_hand():
    assert kept(LocalSGD(GlobalModel(LOSS))) == (0, MODEL, MODEL)
    assert kept(Local(LocalOnly(LOSS))) == (MODEL, 0, MODEL)
    assert kept(LocalSGD(GlobalModel(LOSS), server_optimizer="adagrad")) == (0, 2 * MODEL, MODEL)
    assert kept(IFCA(GlobalModel(LOSS), clusters=2)) == (0, 2 * MODEL, MODEL)
    # the last layer stays: 4 x 10 + 10 numbers; the first layer is shared: 200 x 4 + 4
    net = WS2(ClientLoss(model=MLP(FEATURES, CLASSES, (4,))), personal_part="head", rescale=False)
    assert kept(PartialAveraging(net)) == (4 * 50, 4 * 804, 4 * 854)
    # a model, its mean gradient and its pull, and a gradient per row of the client with most rows
    assert kept(L2SGDPlus(MX2(LOSS), step_size=0.1, averaging_probability=0.5))[0] == (3 + 70) * MODEL
    # the model carries the client's own rows along
    assert kept(KNNPer(GlobalModel(LOSS)))[2] >= MODEL + 70 * FEATURES * 4


def test_operations_of_a_linear_model_by_hand():
    one = flops(LocalSGD(GlobalModel(LOSS)))
    assert (one.rows, one.steps, one.adaptation, one.complete) == (ROWS, 1, 0, True)
    # beside the products: the softmax and the step, a few operations per output and parameter
    assert GRADIENT < one.training < 1.05 * GRADIENT
    assert one.prediction == pytest.approx(2 * FEATURES * CLASSES, rel=0.02)
    # batches of 10 rows, 7 of them: a round is a fifth of 7 gradients
    some = flops(LocalSGD(GlobalModel(LOSS), local_steps=7, batch_size=10))
    assert some.training == pytest.approx(7 / 5 * GRADIENT, rel=0.1)
    # two passes over 50 rows in batches of 20 are 2 x 3 steps
    assert flops(LocalSGD(GlobalModel(LOSS), epochs=2, batch_size=20)).steps == 6


def test_loops_inside_a_method_count_every_turn():
    plain = LocalSGD(GlobalModel(LOSS))
    tuned = dataclasses.replace(plain, fine_tuning_steps=8)
    assert flops(tuned).adaptation == pytest.approx(8 * GRADIENT, rel=0.05)
    # FedRep: the head walks 5 steps, then the body 1; a step on either passes forward through both
    net = WS2(ClientLoss(model=MLP(FEATURES, CLASSES, (4,))), personal_part="head", rescale=False)
    both = PartialAveraging(net, trains="personal_then_shared", personal_passes=5)
    forward = 2 * ROWS * (FEATURES * 4 + 4 * CLASSES)
    head, body = 2 * ROWS * 4 * CLASSES, 2 * ROWS * (FEATURES * 4 + 4 * CLASSES)
    assert flops(both).training == pytest.approx(5 * (forward + head) + forward + body, rel=0.1)


def test_choosing_a_cluster_costs_a_forward_pass_for_each():
    clusters = flops(IFCA(GlobalModel(LOSS), clusters=2))
    assert clusters.adaptation == pytest.approx(2 * GRADIENT / 2, rel=0.05)
    assert clusters.training == pytest.approx(2 * GRADIENT / 2 + GRADIENT, rel=0.05)


def test_recurrent_layers_count_every_position():
    def prediction(length):
        model = CharacterLSTM(vocabulary=12, outputs=12, embedding=4, hidden=16, layers=1)
        data = Rows(np.zeros((8, length), np.int32), np.zeros((8, length), np.int32), np.asarray([0, 4, 8]))
        return flops(LocalSGD(GlobalModel(ClientLoss(model=model))), data).prediction

    # per position: inputs and state into four gates, the last layer; the gates' own arithmetic is a few percent
    by_hand = 2 * (4 + 16) * 4 * 16 + 2 * 16 * 12
    assert 1 < prediction(40) / (40 * by_hand) < 1.15
    assert prediction(40) == pytest.approx(2 * prediction(20), rel=0.01)
