# SPDX-License-Identifier: Apache-2.0
"""One FedAvg round with the clients laid over two host devices, in turns with the best executor on one.

The problems of `networks`, and softmax 784-10 x 100 clients x 100 rows. Executors are tried twice each before the
turns, and the fastest of one device and the fastest of two take part, and PyTorch's loop where it is installed. CPU
seconds stand beside the clock's, since a neighbour's load cannot change them much: with as many of them, two quiet
cores take half of the time. One device and two must end with the same parameters, or the benchmark fails. In a process
of its own, since JAX divides the CPU before it computes anything.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.apart import say
from benchmarks.measure import TURNS, Result, Target, in_turns, medians, ratio

DEVICES = 2
EXECUTORS = {"batched": ("batched", 0), "one at a time": ("chunked", 1)}
LEAST = {"table_mlp": 2.0, "mlp": 1.4, "character_lstm": 1.1, "cnn": 1.05}  # one device / two, as the prototype's
PYTORCH = "PyTorch loop"
SLOW = ("character_lstm", "cnn")  # a round takes seconds


def run(quick: bool) -> Result:
    """Seconds of a round on one and on two devices."""
    command = [sys.executable, "-m", "benchmarks.shard", *(["--quick"] if quick else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    from benchmarks import networks

    numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    targets = [
        Target(f"{name}: best of one device / best of {DEVICES}", numbers[name]["one / two"], least, at_least=True)
        for name, least in LEAST.items()
        if name in numbers
    ]
    targets += [
        Target(f"{name}: best of {DEVICES} devices / {PYTORCH}", found[f"two / {PYTORCH}"], networks.LIMITS[name])
        for name, found in numbers.items()
        if f"two / {PYTORCH}" in found
    ]
    return Result(numbers, tuple(targets))


def main(quick: bool) -> None:
    """Measure, in this process."""
    import jax

    jax.config.update("jax_num_cpu_devices", DEVICES)
    from benchmarks import networks

    problems = {"softmax": _softmax, "table_mlp": networks._table, "mlp": networks._flat}
    problems |= {"character_lstm": networks._texts, "cnn": networks._images}
    found = {}
    for name, problem in [*problems.items()][: 2 if quick else None]:
        say(f"{name}:")
        found[name] = _compare(name, *problem(quick), quick)
        say(f"  {found[name]}")
    print(json.dumps(found))


def _softmax(quick: bool) -> tuple[Any, Any, int]:
    from benchmarks.problems import images
    from idiolect.models import Linear

    clients, rows = (2, 8) if quick else (100, 100)
    return images(clients, rows), Linear(784, 10), 4 if quick else 10


def _compare(name: str, federation: Any, model: Any, batch_size: int, quick: bool) -> dict[str, Any]:
    from benchmarks import networks
    from idiolect.algorithms import LocalSGD
    from idiolect.engines.simulate import Training, open_session
    from idiolect.objectives import ClientLoss, GlobalModel

    loss = ClientLoss(model=model)
    algorithm = LocalSGD(GlobalModel(loss), epochs=1, batch_size=batch_size, step_size=0.01)
    rounds = 1 if quick or name in SLOW else 10
    last: dict[int, Any] = {}
    spent: dict[int, float] = {}  # least CPU seconds of a round, of all threads: other work cannot take them

    def clock(devices: int, executor: str, chunk: int) -> float:
        training = Training(rounds=rounds, record_every=rounds, executor=executor, chunk=chunk, devices=devices)
        session = open_session([algorithm], federation, training, [0], ("log_loss",))
        began = time.process_time()
        session.train()
        spent[devices] = min(spent.get(devices, math.inf), (time.process_time() - began) / rounds)
        last[devices] = session.snapshot().server
        return session.state.seconds / rounds

    def best_of(devices: int) -> str:
        executors = [*EXECUTORS.items()][: 1 if quick else None]
        tried = {label: (clock(devices, *choice), clock(devices, *choice))[1] for label, choice in executors}
        return min(tried, key=lambda label: tried[label])

    chosen = {devices: best_of(devices) for devices in (1, DEVICES)}
    labels = {devices: f"{devices} devices, {label}" for devices, label in chosen.items()}
    spent.clear()  # those that compiled, and other executors
    clocks: dict[str, Callable[[], float]]
    clocks = {labels[n]: lambda n=n: clock(n, *EXECUTORS[chosen[n]]) for n in chosen}
    loops = networks.fastest_loop(name, loss, federation, batch_size)
    seconds = in_turns(clocks | loops, 1 if quick else 3 if name in SLOW else TURNS)
    _check_same(last[1], last[DEVICES])
    return {f"two / {PYTORCH}": ratio(seconds, labels[DEVICES], loop) for loop in loops} | {
        "median seconds of a round": medians(seconds),
        "least CPU seconds of a round": {labels[n]: spent[n] for n in chosen},
        "one / two": ratio(seconds, labels[1], labels[DEVICES]),
        "load after the turns": os.getloadavg()[0],
    }


def _check_same(one: Any, several: Any) -> None:
    import jax
    import numpy as np

    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(several), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
