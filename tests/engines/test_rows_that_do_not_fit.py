# SPDX-License-Identifier: Apache-2.0
"""Rows that a model or a loss would take without a word, and be wrong: the door refuses them, by client."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from idiolect.algorithms import LocalSGD
from idiolect.core import RequestError
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.engines.simulate import Training, simulate
from idiolect.models import CNN, CharacterLSTM, Linear
from idiolect.objectives import ClientLoss, GlobalModel


def federation(inputs, targets, held_out=None):
    """Two clients, `a` with the first two rows, `b` with the last two."""
    rows = Rows(np.asarray(inputs), np.asarray(targets), np.array([0, 2, 4]))
    classes = Task.classification(("0", "1", "2"))
    return Federation(rows, rows, rows, ("a", "b"), classes, held_out=held_out)


NUMBERS = np.ones((4, 3), np.float32)
LABELS = np.array([0, 1, 2, 0], np.int32)
TOKENS = np.array([[0, 1], [1, 2], [2, 0], [0, 1]], np.int32)
STRANGE = np.array([[0, 1], [1, 2], [2, 5], [0, 1]], np.int32)
LSTM = CharacterLSTM(3, 3, 2, 2, 1)
REFUSED = {
    "label": (Linear(3, 2), "cross_entropy", NUMBERS, LABELS, "from 0 to 1, but client 'b' has 2; number the classes"),
    "negative label": (Linear(3, 3), "cross_entropy", NUMBERS, LABELS - 1, "from 0 to 2, but client 'a' has -1;"),
    "no class": (Linear(3, 3), "cross_entropy", NUMBERS, LABELS + 0.5, "from 0 to 2, but client 'a' has 0.5;"),
    "third class": (Linear(3), "logistic", NUMBERS, LABELS, "from 0 to 1, but client 'b' has 2;"),
    "token": (LSTM, "cross_entropy", STRANGE, TOKENS, "knows the tokens 0 to 2, but client 'b' has 5; give it the"),
    "token label": (
        LSTM,
        "cross_entropy",
        TOKENS,
        STRANGE,
        "a token from 0 to 2, or -1 for none, but client 'b' has 5; give the model an output for each token of the",
    ),
    "no token": (
        LSTM,
        "cross_entropy",
        TOKENS.astype(np.float32),
        TOKENS,
        "reads tokens, whole numbers from 0 to 2, got inputs of type float32; make the federation with tokens=True, or",
    ),
    "image": (CNN(8, 8, 1, 3), "cross_entropy", np.ones((4, 9, 8, 1)), LABELS, "made for images of 8 x 8 x 1, got inp"),
    "width": (Linear(4, 3), "cross_entropy", NUMBERS, LABELS, "Linear does not take inputs of shape (3,)"),
    "columns": (
        Linear(3, 2),
        "squared",
        NUMBERS,
        LABELS * 0.5,
        "squared needs an output for every target, got outputs",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_do_not_fit_are_refused(case):
    model, criterion, inputs, targets, sentence = REFUSED[case]
    algorithm = LocalSGD(GlobalModel(ClientLoss(model=model, criterion=criterion)))
    with pytest.raises(RequestError) as refused:
        simulate(algorithm, federation(inputs, targets), Training(rounds=1))
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


def test_clients_that_are_held_out_are_looked_at_too():
    algorithm = LocalSGD(GlobalModel(ClientLoss(model=LSTM)))
    whole = federation(TOKENS, TOKENS, held_out=federation(STRANGE, TOKENS))
    with pytest.raises(
        RequestError, match=r"client 'b' has 5; give it the vocabulary of all clients, also of those hel"
    ):
        simulate(algorithm, whole, Training(rounds=1))
    with pytest.raises(
        RequestError, match=r"All inputs must have one shape, got \(2,\) and \(3,\); crop, pad or resize"
    ):
        federation(TOKENS, TOKENS, held_out=federation(NUMBERS, LABELS))
    other = dataclasses.replace(federation(TOKENS, TOKENS), task=Task.classification(("0", "1")))
    with pytest.raises(RequestError, match="held out must have one task, got 3 and 2 classes"):
        federation(TOKENS, TOKENS, held_out=other)
