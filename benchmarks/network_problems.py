# SPDX-License-Identifier: Apache-2.0
"""The networks that are timed, their drawn federations, and the check that PyTorch computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from idiolect.algorithms import find
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import Batch, Rows
from idiolect.data.federation import Federation, no_rows
from idiolect.data.task import Task
from idiolect.engines.simulate import Training, open_session
from idiolect.models import CNN, CharacterLSTM, Model
from idiolect.objectives import OBJECTIVES, ClientLoss

STEP_SIZE = 0.01
CHARACTERS = 72
CLASSES = 62  # of the contest on a GPU
LENGTH = 80  # characters of a sequence there


def images(clients: int, rows: int, classes: int, validation: int = 0) -> Federation:
    """Drawn 28 x 28 images with drawn labels."""

    def draw(coordinate: int, amount: int) -> Rows:
        draws = np.random.default_rng(coordinate)
        inputs = draws.random((clients * amount, 28, 28, 1), dtype=np.float32)
        return _rows(inputs, draws.integers(0, classes, clients * amount).astype(np.int32), clients)

    train = draw(0, rows)
    return _federation(train, draw(1, validation) if validation else no_rows(train), classes)


def texts(clients: int, rows: int, length: int) -> Federation:
    """Drawn sequences; the target of a character is the next one."""
    tokens = np.random.default_rng(0).integers(0, CHARACTERS, (clients * rows, length + 1)).astype(np.int32)
    train = _rows(tokens[:, :-1], np.ascontiguousarray(tokens[:, 1:]), clients)
    return _federation(train, no_rows(train), CHARACTERS)


def cnn(classes: int, small: bool, compute: str = "float32") -> CNN:
    """Flow 2023's: 32 and 64 filters, 128 hidden units; `small` is for trying whether it runs."""
    sizes: dict[str, Any] = {"filters": (2, 2), "hidden": 4} if small else {}
    return CNN(28, 28, 1, classes, compute=compute, **sizes)


def character_lstm(small: bool) -> CharacterLSTM:
    """Two layers of 256."""
    sizes: dict[str, Any] = {"hidden": 4} if small else {}
    return CharacterLSTM(CHARACTERS, CHARACTERS, **sizes)


def contest(name: str, clients: int, rows: int, small: bool) -> tuple[Federation, Model]:
    """The rows and the network of `networks-gpu`: "cnn" or "character_lstm"."""
    if name == "cnn":
        return images(clients, rows, CLASSES), cnn(CLASSES, small)
    return texts(clients, rows, 5 if small else LENGTH), character_lstm(small)


def one_epoch(method: str, model: Model, batch_size: int) -> Algorithm:
    """A registered method on its own objective, one pass over the rows per round."""
    found = find(method)
    assert found.objective is not None, method
    objective = OBJECTIVES[found.objective](ClientLoss(model=model), **found.objective_preset)
    return found.algorithm(objective, **found.preset, epochs=1, batch_size=batch_size, step_size=STEP_SIZE)


def engine_clock(
    algorithm: Algorithm, federation: Federation, executor: str, chunk: int = 0, rounds: int = 1
) -> Callable[[], float]:
    """Seconds of a round through the engine: draws, steps, mean and ledger, without evaluation; a mean of `rounds`."""

    def clock() -> float:
        training = Training(rounds=rounds, record_every=rounds, executor=executor, chunk=chunk)
        session = open_session([algorithm], federation, training, [0], ("log_loss",))
        session.train()
        return session.state.seconds / rounds

    return clock


def check_same(torch: Any, model: Any, loss: ClientLoss, params: Any, rows: Rows, data: Any) -> None:
    """Same loss, and the same gradient of the last layer's bias, on a few rows of the first client."""
    inputs, targets = (part[:8] for part in data[0])
    outputs = model(inputs)
    theirs = torch.nn.CrossEntropyLoss()(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
    theirs.backward()
    last = list(params)[-1] if "dense" not in params else "dense"
    batch = Batch(*(part[:8] for part in rows.of(0)))
    with jax.default_matmul_precision("highest"):
        ours, gradient = jax.jit(jax.value_and_grad(lambda own: loss.value(None, own, batch)[0]))(params)
    np.testing.assert_allclose(float(ours), float(theirs.detach()), rtol=1e-4)
    their_gradient = getattr(model, last).bias.grad.cpu().numpy()
    np.testing.assert_allclose(gradient[last]["bias"], their_gradient, rtol=1e-3, atol=1e-5)


def _rows(inputs: np.ndarray, targets: np.ndarray, clients: int) -> Rows:
    return Rows(inputs, targets, np.linspace(0, len(inputs), clients + 1).astype(np.int64))


def _federation(train: Rows, validation: Rows, classes: int) -> Federation:
    task = Task.classification(tuple(map(str, range(classes))))
    return Federation(train, validation, no_rows(train), tuple(map(str, range(train.clients))), task)
