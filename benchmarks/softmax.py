# SPDX-License-Identifier: Apache-2.0
"""Softmax regression 784 -> 10 on 100 clients: 100 rounds of one epoch, 100,000 steps of 10 rows, float32.

Every executor in turns, and a plain PyTorch loop beside them where PyTorch is installed.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import jax

from benchmarks import by_hand
from benchmarks.measure import TURNS, Result, Target, in_turns, medians, ratio, seconds_of
from benchmarks.problems import images, softmax_sgd
from idiolect.engines.simulate import Training, open_session

EXECUTORS = {"batched": ("batched", 0), "one at a time": ("chunked", 1)}
LIMIT_SECONDS = 3.0  # on two cores, after compilation
LEAST_RATIO = 10.0  # of a sequential PyTorch loop


def run(quick: bool) -> Result:
    """Seconds of training after compilation, by executor; held to the target is the one that `auto` takes here."""
    clients, rounds = (4, 2) if quick else (100, 100)
    federation, algorithm = images(clients, 20 if quick else 100), softmax_sgd()

    def engine(executor: str, chunk: int) -> float:
        training = Training(rounds=rounds, record_every=rounds, executor=executor, chunk=chunk)
        session = open_session([algorithm], federation, training, [0], ("log_loss",))
        session.train()
        return session.state.seconds

    clocks = {name: lambda choice=choice: engine(*choice) for name, choice in EXECUTORS.items()}
    turns = 1 if quick else TURNS
    torch_rounds = max(1, rounds // 10)  # a tenth of the rounds: time grows with them, and a turn must stay short
    torch, device = _torch()
    loops: list[str] = []
    if torch is not None:
        data = by_hand.torch_rows(torch, device, federation.train)

        def loop(threads: int) -> float:
            torch.set_num_threads(threads)
            arguments = (torch, data, torch_rounds, algorithm.batch_size, algorithm.step_size)
            return seconds_of(lambda: by_hand.in_torch(*arguments)) * rounds / torch_rounds

        # such small products are often fastest on one thread: PyTorch is judged by its better choice
        for threads in sorted({1, torch.get_num_threads()}):
            loops.append(f"torch loop, {device}, {threads} threads")
            clocks[loops[-1]] = lambda threads=threads: loop(threads)
    seconds = in_turns(clocks, turns)
    middle = medians(seconds)
    numbers = {
        "steps": clients * rounds * (2 if quick else 10),
        "median seconds": middle,
        "least seconds": {name: min(spent) for name, spent in seconds.items()},
    }
    targets = [Target("training after compilation, batched", middle["batched"], LIMIT_SECONDS, "s")]
    if torch is None:
        numbers["torch"] = "not installed, or without JAX's device: no ratio"
    else:
        better = min(loops, key=lambda name: middle[name])
        ratios = {f"{better} / {name}": ratio(seconds, better, name) for name in EXECUTORS}
        numbers |= ratios
        targets += [Target(what, times, LEAST_RATIO, at_least=True) for what, times in ratios.items()]
    return Result(numbers, tuple(targets))


def _torch() -> tuple[Any, str]:
    """PyTorch and its name for the device that JAX uses: a ratio across devices would say nothing."""
    if importlib.util.find_spec("torch") is None:
        return None, ""
    import torch

    if jax.default_backend() == "cpu":
        return torch, "cpu"
    return (torch, "cuda") if torch.cuda.is_available() else (None, "")
