# SPDX-License-Identifier: Apache-2.0
"""One FedAvg round with the CNN (10 clients x 200 images, batch 20) and with the two-layer LSTM (10 clients x 40
sequences of 80 characters, batch 4), float32, through the engine; a sequential PyTorch loop beside it where installed.

Both start from the same parameters, and PyTorch's loss and one gradient must equal ours, or the benchmark fails.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks import networks_torch
from benchmarks.by_hand import torch_rows
from benchmarks.measure import Result, Target, in_turns, medians, ratio, seconds_of
from idiolect.algorithms import LocalSGD
from idiolect.core.data import Batch, Rows
from idiolect.data.federation import Federation, no_rows
from idiolect.data.task import Task
from idiolect.engines.simulate import Session, Training
from idiolect.models import CNN, CharacterLSTM
from idiolect.objectives import ClientLoss, GlobalModel

EXECUTORS = {"batched": ("batched", 0), "one at a time": ("chunked", 1), "looped": ("looped", 0)}
LIMITS = {"cnn": 1.0, "character_lstm": 1.5}  # ours / PyTorch
TURNS = 5
STEP_SIZE = 0.01


def run(quick: bool) -> Result:
    """Seconds per round by executor, the best of them held against PyTorch's better number of threads."""
    torch = _torch()
    numbers: dict[str, Any] = {}
    targets = []
    for name, problem in (("cnn", _images), ("character_lstm", _texts)):
        federation, model, batch_size = problem(quick)
        loss = ClientLoss(model=model)
        algorithm = LocalSGD(GlobalModel(loss), epochs=1, batch_size=batch_size, step_size=STEP_SIZE)
        clocks = {label: _engine(algorithm, federation, *choice) for label, choice in EXECUTORS.items()}
        loops = _torch_clocks(torch, name, loss, federation, batch_size) if torch is not None else {}
        seconds = in_turns(clocks | loops, 1 if quick else TURNS)
        middle = medians(seconds)
        numbers[name] = {"median seconds of a round": middle}
        best = min(EXECUTORS, key=lambda label: middle[label])
        if loops:
            other = min(loops, key=lambda label: middle[label])
            numbers[name][f"{best} / {other}"] = ratio(seconds, best, other)
            spread = [a / b for a, b in zip(seconds[best], seconds[other])]
            numbers[name]["least and largest ratio of a turn"] = [min(spread), max(spread)]
            targets.append(Target(f"{name}: {best} / {other}", statistics.median(spread), LIMITS[name]))
        else:
            numbers[name]["torch"] = "not installed: no ratio"
    return Result(numbers, tuple(targets))


def _engine(algorithm: LocalSGD, federation: Federation, executor: str, chunk: int) -> Callable[[], float]:
    def clock() -> float:
        training = Training(rounds=1, record_every=1, executor=executor, chunk=chunk)
        session = Session([algorithm], federation, training, [0], ("log_loss",), None)
        session.train()
        return session.seconds

    return clock


def _torch_clocks(
    torch: Any, name: str, loss: ClientLoss, federation: Federation, batch_size: int
) -> dict[str, Callable[[], float]]:
    data = torch_rows(torch, "cpu", federation.train)
    params = loss.init(jax.random.key(0))
    model = getattr(networks_torch, name)(torch, params)
    _check_same(torch, model, loss, params, federation.train, data)

    def loop(threads: int) -> float:
        torch.set_num_threads(threads)
        return seconds_of(lambda: networks_torch.one_round(torch, model, data, batch_size, STEP_SIZE) and 0)

    choices = sorted({1, torch.get_num_threads()})
    return {f"torch loop, {threads} threads": lambda threads=threads: loop(threads) for threads in choices}


def _check_same(torch: Any, model: Any, loss: ClientLoss, params: Any, rows: Rows, data: Any) -> None:
    """Same loss, and the same slope of the last layer's bias, on a few rows of the first client."""
    inputs, targets = (part[:8] for part in data[0])
    outputs = model(inputs)
    theirs = torch.nn.CrossEntropyLoss()(outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1))
    theirs.backward()
    last = list(params)[-1] if "dense" not in params else "dense"
    batch = Batch(*(part[:8] for part in rows.of(0)))
    ours, slope = jax.value_and_grad(lambda own: loss.value(None, own, batch)[0])(params)
    np.testing.assert_allclose(float(ours), float(theirs.detach()), rtol=1e-4)
    np.testing.assert_allclose(slope[last]["bias"], getattr(model, last).bias.grad.numpy(), rtol=1e-3, atol=1e-5)


def _images(quick: bool) -> tuple[Federation, CNN, int]:
    clients, rows = (2, 8) if quick else (10, 200)
    draw = np.random.default_rng(0)
    inputs = draw.random((clients * rows, 28, 28, 1), dtype=np.float32)
    labels = draw.integers(0, 10, clients * rows).astype(np.int32)
    small: dict[str, Any] = {"filters": (2, 2), "hidden": 4} if quick else {}
    return _federation(inputs, labels, clients, 10), CNN(28, 28, 1, 10, **small), 4 if quick else 20


def _texts(quick: bool) -> tuple[Federation, CharacterLSTM, int]:
    clients, rows, length = (2, 4, 5) if quick else (10, 40, 80)
    tokens = np.random.default_rng(0).integers(0, 72, (clients * rows, length + 1)).astype(np.int32)
    small: dict[str, Any] = {"hidden": 4} if quick else {}
    federation = _federation(tokens[:, :-1], tokens[:, 1:], clients, 72)
    return federation, CharacterLSTM(72, 72, **small), 4


def _federation(inputs: np.ndarray, targets: np.ndarray, clients: int, classes: int) -> Federation:
    offsets = np.linspace(0, len(inputs), clients + 1).astype(np.int64)
    rows = Rows(inputs, np.ascontiguousarray(targets), offsets)
    task = Task.classification(tuple(map(str, range(classes))))
    return Federation(rows, no_rows(rows), no_rows(rows), tuple(map(str, range(clients))), task)


def _torch() -> Any:
    """PyTorch where JAX computes on the CPU too."""
    if importlib.util.find_spec("torch") is None or jax.default_backend() != "cpu":
        return None
    import torch

    return torch
