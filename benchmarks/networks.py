# SPDX-License-Identifier: Apache-2.0
"""One FedAvg round through the engine, float32, in turns with a sequential PyTorch loop where that is installed.

The CNN (10 clients x 200 images, batch 20), the two-layer LSTM (10 clients x 40 sequences of 80 characters, batch 4)
and two perceptrons (100 clients x 100 rows, batch 10), 784-200-10 and, of a table, 20-64-10. Both sides start from the
same parameters, and PyTorch's loss and one gradient must equal ours, or the benchmark fails. PyTorch's numbers of
threads are tried twice each before the turns, and the faster takes part.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax

from benchmarks import network_problems as problems
from benchmarks import networks_torch
from benchmarks.apart import say
from benchmarks.by_hand import torch_rows
from benchmarks.measure import Result, Target, in_turns, medians, ratio, seconds_of
from benchmarks.problems import images as flat_images
from idiolect.algorithms import LocalSGD
from idiolect.data.federation import Federation
from idiolect.models import MLP, Model
from idiolect.objectives import ClientLoss, GlobalModel

EXECUTORS = {"batched": ("batched", 0), "one at a time": ("chunked", 1), "looped": ("looped", 0)}
LIMITS = {"cnn": 1.0, "character_lstm": 1.5, "mlp": 0.1, "table_mlp": 0.1}  # ours / PyTorch
TURNS = 5


def parts(quick: bool) -> Iterator[Result]:
    """After each network: seconds per round by executor, the best held against PyTorch's better number of threads."""
    numbers: dict[str, Any] = {}
    targets: list[Target] = []
    problems_by_name = {"table_mlp": _table, "mlp": _flat, "character_lstm": _texts, "cnn": _images}
    for name, problem in problems_by_name.items():
        say(f"{name}:")
        federation, model, batch_size = problem(quick)
        loss = ClientLoss(model=model)
        algorithm = LocalSGD(GlobalModel(loss), epochs=1, batch_size=batch_size, step_size=problems.STEP_SIZE)
        rounds = 1 if quick or "mlp" not in name else 10
        executors = dict([*EXECUTORS.items()][:1]) if quick and name != "table_mlp" else EXECUTORS
        clocks = {
            label: problems.engine_clock(algorithm, federation, *choice, rounds=rounds)
            for label, choice in executors.items()
        }
        loops = fastest_loop(name, loss, federation, batch_size)
        numbers[name] = {} if loops else {"torch": "not installed: no ratio"}
        seconds = in_turns(clocks | loops, 1 if quick else TURNS)
        middle = medians(seconds)
        numbers[name]["median seconds of a round"] = middle
        best = min(executors, key=lambda label: middle[label])
        for other in loops:
            numbers[name][f"{best} / {other}"] = ratio(seconds, best, other)
            spread = [a / b for a, b in zip(seconds[best], seconds[other])]
            numbers[name]["least and largest ratio of a turn"] = [min(spread), max(spread)]
            numbers[name]["load after the turns"] = os.getloadavg()[0]
            targets.append(Target(f"{name}: {best} / {other}", statistics.median(spread), LIMITS[name]))
        yield Result(dict(numbers), tuple(targets))


def fastest_loop(
    name: str, loss: ClientLoss, federation: Federation, batch_size: int
) -> dict[str, Callable[[], float]]:
    """PyTorch's loop by its label, with the number of threads that is faster in a trial; none without PyTorch."""
    torch = _torch()
    if torch is None or name not in LIMITS:
        return {}
    data = torch_rows(torch, "cpu", federation.train)
    params = loss.init(jax.random.key(0))
    model = getattr(networks_torch, name.removeprefix("table_"))(torch, params)
    problems.check_same(torch, model, loss, params, federation.train, data)

    def loop(threads: int) -> float:
        torch.set_num_threads(threads)
        step_size = problems.STEP_SIZE
        return seconds_of(lambda: networks_torch.one_round(torch, model, data, batch_size, step_size) and 0)

    choices = sorted({1, os.cpu_count() or 1})  # PyTorch itself tells what was set last
    tried = {f"torch loop, {threads} threads": lambda threads=threads: loop(threads) for threads in choices}
    second = {label: (clock(), clock())[1] for label, clock in tried.items()}
    say(f"  {second}")
    fastest = min(second, key=lambda label: second[label])
    return {fastest: tried[fastest]}


def _images(quick: bool) -> tuple[Federation, Model, int]:
    clients, rows = (2, 8) if quick else (10, 200)
    return problems.images(clients, rows, 10), problems.cnn(10, quick), 4 if quick else 20


def _texts(quick: bool) -> tuple[Federation, Model, int]:
    return problems.texts(*(2, 4, 5) if quick else (10, 40, 80)), problems.character_lstm(quick), 4


def _flat(quick: bool) -> tuple[Federation, Model, int]:
    clients, rows = (2, 8) if quick else (100, 100)
    return flat_images(clients, rows), MLP(784, 10, (4 if quick else 200,)), 4 if quick else 10


def _table(quick: bool) -> tuple[Federation, Model, int]:
    clients, rows = (2, 8) if quick else (100, 100)
    return flat_images(clients, rows, features=20), MLP(20, 10), 4 if quick else 10


def _torch() -> Any:
    """PyTorch where JAX computes on the CPU too."""
    if importlib.util.find_spec("torch") is None or jax.default_backend() != "cpu":
        return None
    import torch

    return torch
