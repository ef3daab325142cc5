# SPDX-License-Identifier: Apache-2.0
"""The problems that are timed. Times do not depend on the values, so rows are drawn, not read."""

from __future__ import annotations

import numpy as np

from idiolect.algorithms import LSGDPFL, LocalSGD
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.models import MLP, Linear
from idiolect.objectives import Additive, ClientLoss, GlobalModel
from papers.unified_problems import logistic_mixture

FEATURES, CLASSES = 784, 10


def image_rows(clients: int, rows: int, coordinate: int, features: int = FEATURES) -> Rows:
    """Rows as wide as 28 x 28 images unless told, with the labels of one random softmax model."""
    draw = np.random.default_rng(coordinate)
    truth = np.random.default_rng(0).normal(size=(features, CLASSES)).astype(np.float32)
    inputs = draw.random((clients * rows, features), dtype=np.float32)
    labels = (inputs @ truth + draw.gumbel(size=(clients * rows, CLASSES))).argmax(axis=1).astype(np.int32)
    return Rows(inputs, labels, np.arange(clients + 1, dtype=np.int64) * rows)


def images(clients: int, rows: int, validation: int = 0, test: int = 0, features: int = FEATURES) -> Federation:
    """A federation of such rows."""
    splits = (image_rows(clients, amount, 1 + place, features) for place, amount in enumerate((rows, validation, test)))
    names = tuple(str(client) for client in range(clients))
    return Federation(*splits, names, Task.classification(tuple(str(label) for label in range(CLASSES))))


def softmax_sgd() -> LocalSGD:
    """Local SGD on softmax regression: one epoch per round in batches of 10."""
    loss = ClientLoss(model=Linear(FEATURES, CLASSES))
    return LocalSGD(GlobalModel(loss), epochs=1, batch_size=10, step_size=0.01)


def mlp_sgd() -> LocalSGD:
    """Local SGD on a perceptron 784-200-10: one epoch per round in batches of 10."""
    loss = ClientLoss(model=MLP(FEATURES, CLASSES, (200,)))
    return LocalSGD(GlobalModel(loss), epochs=1, batch_size=10, step_size=0.01)


def small_logistic(clients: int = 20, rows: int = 1000, dimension: int = 15) -> tuple[LSGDPFL, Federation]:
    """Unified 2023's logistic mixture in float64: LSGD-PFL, five local steps of one row each."""
    problem = logistic_mixture(clients=clients, rows=rows, dimension=dimension, dtype=np.float64)
    loss = ClientLoss(model=Linear(dimension, bias=False), criterion="logistic")
    algorithm = LSGDPFL(Additive(loss), local_steps=5, batch_size=1, step_size=0.1)
    return algorithm, problem.federation
