# SPDX-License-Identifier: Apache-2.0
"""One FedAvg round through the engine, float32, in turns with a sequential PyTorch loop where that is installed.

The CNN (10 clients x 200 images, batch 20), the two-layer LSTM (10 clients x 40 sequences of 80 characters, batch 4)
and a perceptron 784-200-10 (100 clients x 100 rows, batch 10). Both sides start from the same parameters, and PyTorch's
loss and one gradient must equal ours, or the benchmark fails.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

import jax

from benchmarks import network_problems as problems
from benchmarks import networks_torch
from benchmarks.by_hand import torch_rows
from benchmarks.measure import Result, Target, in_turns, medians, ratio, seconds_of
from benchmarks.problems import images as flat_images
from idiolect.algorithms import LocalSGD
from idiolect.data.federation import Federation
from idiolect.models import MLP, Model
from idiolect.objectives import ClientLoss, GlobalModel

EXECUTORS = {"batched": ("batched", 0), "one at a time": ("chunked", 1), "looped": ("looped", 0)}
LIMITS = {"cnn": 1.0, "character_lstm": 1.5, "mlp": 0.1}  # ours / PyTorch
TURNS = 5


def run(quick: bool) -> Result:
    """Seconds per round by executor, the best of them held against PyTorch's better number of threads."""
    torch = _torch()
    numbers: dict[str, Any] = {}
    targets = []
    for name, problem in (("cnn", _images), ("character_lstm", _texts), ("mlp", _flat)):
        federation, model, batch_size = problem(quick)
        loss = ClientLoss(model=model)
        algorithm = LocalSGD(GlobalModel(loss), epochs=1, batch_size=batch_size, step_size=problems.STEP_SIZE)
        clocks = {
            label: problems.engine_clock(algorithm, federation, *choice, rounds=1 if quick or name != "mlp" else 10)
            for label, choice in EXECUTORS.items()
        }
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


def _torch_clocks(
    torch: Any, name: str, loss: ClientLoss, federation: Federation, batch_size: int
) -> dict[str, Callable[[], float]]:
    data = torch_rows(torch, "cpu", federation.train)
    params = loss.init(jax.random.key(0))
    model = getattr(networks_torch, name)(torch, params)
    problems.check_same(torch, model, loss, params, federation.train, data)

    def loop(threads: int) -> float:
        torch.set_num_threads(threads)
        step_size = problems.STEP_SIZE
        return seconds_of(lambda: networks_torch.one_round(torch, model, data, batch_size, step_size) and 0)

    choices = sorted({1, torch.get_num_threads()})
    return {f"torch loop, {threads} threads": lambda threads=threads: loop(threads) for threads in choices}


def _images(quick: bool) -> tuple[Federation, Model, int]:
    clients, rows = (2, 8) if quick else (10, 200)
    return problems.images(clients, rows, 10), problems.cnn(10, quick), 4 if quick else 20


def _texts(quick: bool) -> tuple[Federation, Model, int]:
    return problems.texts(*(2, 4, 5) if quick else (10, 40, 80)), problems.character_lstm(quick), 4


def _flat(quick: bool) -> tuple[Federation, Model, int]:
    clients, rows = (2, 8) if quick else (100, 100)
    return flat_images(clients, rows), MLP(784, 10, (4 if quick else 200,)), 4 if quick else 10


def _torch() -> Any:
    """PyTorch where JAX computes on the CPU too."""
    if importlib.util.find_spec("torch") is None or jax.default_backend() != "cpu":
        return None
    import torch

    return torch
