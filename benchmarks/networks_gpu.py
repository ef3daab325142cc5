# SPDX-License-Identifier: Apache-2.0
"""Rounds of 100 clients with the CNN and the LSTM on a GPU: the engine, a bare `vmap` round, a PyTorch loop.

CNN: 28 x 28 images, 32 and 64 filters, 128 hidden units, 62 classes (1,206,590 parameters), 200 images per client,
batch 20, one epoch. LSTM: two layers of 256, 72 characters (815,752 parameters), 40 sequences of 80 characters per
client, batch 4, one epoch (10 steps). Products of float32 are TF32's: JAX's default there, and PyTorch is told to.
Skipped where JAX sees no GPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import network_problems as problems
from benchmarks import networks_by_hand, networks_torch
from benchmarks.by_hand import torch_rows
from benchmarks.measure import Result, Target, in_turns, medians, ratio, seconds_of
from idiolect.algorithms import LocalSGD
from idiolect.core.algorithm import Algorithm
from idiolect.core.keys import Purpose, root_key, round_key
from idiolect.data.federation import Federation
from idiolect.engines.population import to_device
from idiolect.engines.simulate import Session, Training
from idiolect.models import Model
from idiolect.objectives import ClientLoss, GlobalModel

ROOT = Path(__file__).parents[1]
CLASSES = 62
ENGINE, BFLOAT16, BARE, TORCH = "engine", "engine, bfloat16 products", "bare vmap", "torch loop"
PERSONAL = {  # what a round does with every client's rows
    "ditto": "one epoch on w_m, and beside every step one on v_m, same batch",
    "apfl": "one epoch: per step a gradient at w_m and one at the mix, a = 0.25 fixed",
    "fedrep": "one epoch on the last layer, then one on the others",
    "flow": "one epoch on w_l with half of the rows, one on psi and w_g with the others",
}
MEMORY_BYTES = 6e9


class Sizes(NamedTuple):
    """How much is measured."""

    clients: int
    rows: int
    batch_size: int
    texts: tuple[int, int]  # sequences per client, their length
    turns: int
    rounds: int  # per turn
    small: bool


FULL = Sizes(100, 200, 20, (40, 80), turns=3, rounds=10, small=False)
QUICK = Sizes(3, 8, 4, (4, 5), turns=1, rounds=1, small=True)


def run(quick: bool) -> Result:
    """Seconds per round and ratios of the same run."""
    if jax.default_backend() != "gpu":
        return Result({}, skipped=f"JAX sees no GPU here, only {jax.default_backend()}")
    sizes = QUICK if quick else FULL
    torch = _torch()
    cnn, of_cnn = networks(sizes, torch)
    lstm, of_lstm = recurrent(sizes, torch)
    memory = chunked_memory(sizes)
    target = Target("GPU memory, CNN, 500 clients, chunks of 50", memory["peak GB"], MEMORY_BYTES / 1e9, "GB")
    return Result({"cnn": cnn, "lstm": lstm, "memory": memory}, (*of_cnn, *of_lstm, target))


def networks(sizes: Sizes, torch: Any) -> tuple[dict[str, Any], list[Target]]:
    """Everything that is timed with the CNN."""
    federation, model = problems.images(sizes.clients, sizes.rows, CLASSES), problems.cnn(CLASSES, sizes.small)
    fedavg = _fedavg(model, sizes.batch_size)
    fedavg_bfloat16 = _fedavg(problems.cnn(CLASSES, sizes.small, compute="bfloat16"), sizes.batch_size)
    bare = _bare(networks_by_hand.cnn_loss, fedavg, federation, sizes)
    clocks = {
        ENGINE: problems.engine_clock(fedavg, federation, "batched", rounds=sizes.rounds),
        BARE: bare,
        BFLOAT16: problems.engine_clock(fedavg_bfloat16, federation, "batched", rounds=sizes.rounds),
    }
    for method in PERSONAL:
        algorithm = problems.one_epoch(method, model, sizes.batch_size)
        clocks[method] = problems.engine_clock(algorithm, federation, "batched", rounds=sizes.rounds)
    seconds = _timed(clocks, sizes)
    numbers = _numbers(seconds) | {"what a round does": PERSONAL}
    middle = medians(seconds)
    flow = ratio(seconds, "flow", ENGINE)
    targets = [
        Target(f"CNN: {ENGINE} / {BARE}", ratio(seconds, ENGINE, BARE), 1.15),
        Target(f"CNN: {BFLOAT16} (stretch)", middle[BFLOAT16], 0.025, "s"),
        *(Target(f"CNN: {method}", middle[method], 0.12, "s") for method in ("ditto", "apfl", "fedrep")),
        Target("CNN: flow / FedAvg", flow, 3.2),
    ]
    if torch is not None:
        spent = _torch_seconds(torch, "cnn", model, federation, sizes)
        numbers |= {f"{TORCH}, seconds of a round": spent, f"{TORCH} / {ENGINE}": spent / middle[ENGINE]}
        targets.append(Target(f"CNN: {TORCH} / {ENGINE}", spent / middle[ENGINE], 35.0, at_least=True))
    return numbers, targets


def recurrent(sizes: Sizes, torch: Any) -> tuple[dict[str, Any], list[Target]]:
    """Everything that is timed with the LSTM."""
    federation, model = problems.texts(sizes.clients, *sizes.texts), problems.character_lstm(sizes.small)
    fedavg, few = _fedavg(model, 4), sizes._replace(batch_size=4, rounds=min(4, sizes.rounds))
    clocks = {
        ENGINE: problems.engine_clock(fedavg, federation, "batched", rounds=few.rounds),
        f"{BARE}, naive scan": _bare(networks_by_hand.lstm_loss, fedavg, federation, few),
    }
    seconds = _timed(clocks, few)
    numbers, middle = _numbers(seconds), medians(seconds)
    if torch is not None:
        spent = _torch_seconds(torch, "character_lstm", model, federation, few)
        numbers |= {f"{TORCH}, seconds of a round": spent, f"{TORCH} / {ENGINE}": spent / middle[ENGINE]}
    return numbers, [Target("LSTM: engine", middle[ENGINE], 0.15, "s")]


def chunked_memory(sizes: Sizes) -> dict[str, Any]:
    """The highest use of GPU memory in a process of its own, evaluation included."""
    clients, chunk, rows = (10, 5, 8) if sizes.small else (500, 50, 200)
    command = [sys.executable, "-m", "benchmarks.networks_gpu_child", *map(str, (clients, chunk, rows))]
    # what is set aside in advance would count as used
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    return json.loads(done.stdout)


def _fedavg(model: Model, batch_size: int) -> LocalSGD:
    loss = ClientLoss(model=model)
    return LocalSGD(GlobalModel(loss), epochs=1, batch_size=batch_size, step_size=problems.STEP_SIZE)


def _timed(clocks: dict[str, Callable[[], float]], sizes: Sizes) -> dict[str, list[float]]:
    """Seconds in turns; progress goes to the error stream, since compiling takes most of the time."""

    def told(name: str, clock: Callable[[], float]) -> float:
        began = time.perf_counter()
        spent = clock()
        print(f"  {name}: {spent:.4f} s a round, {time.perf_counter() - began:.1f} s in all", file=sys.stderr)
        return spent

    return in_turns(
        {name: lambda name=name, clock=clock: told(name, clock) for name, clock in clocks.items()}, sizes.turns
    )


def _numbers(seconds: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "median seconds of a round": medians(seconds),
        "least and largest": {name: [min(spent), max(spent)] for name, spent in seconds.items()},
        "ratio to the engine": {name: ratio(seconds, name, ENGINE) for name in seconds if name != ENGINE},
    }


def _bare(loss: Any, algorithm: Algorithm, federation: Federation, sizes: Sizes) -> Callable[[], float]:
    """Seconds of a bare round, after checking that its first one ends where the engine's does."""
    root, rows = root_key(0), federation.train
    data = to_device(rows.pad(np.arange(rows.clients)), np.float32)
    start = algorithm.init_server(round_key(root, Purpose.INIT_SERVER, 0)).shared

    def train(rounds: int, shared: Any) -> Any:
        for number in range(rounds):
            arguments = (loss, root, np.int32(number), shared, data, problems.STEP_SIZE, sizes.batch_size)
            shared = networks_by_hand.fedavg_round(*arguments)
        return shared

    with jax.default_matmul_precision("highest"):  # with TF32's, neither would be the other's judge
        training = Training(rounds=1, record_every=1, executor="batched")
        session = Session([algorithm], federation, training, [0], ("log_loss",), None)
        session.train()
        for ours, theirs in zip(jax.tree.leaves(session.server.shared), jax.tree.leaves(train(1, start))):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    return lambda: seconds_of(lambda: train(sizes.rounds, start)) / sizes.rounds


def _torch_seconds(torch: Any, name: str, model: Model, federation: Federation, sizes: Sizes) -> float:
    """Seconds of one whole round of the loop over all clients, after one client that warms up."""
    loss = ClientLoss(model=model)
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    data = torch_rows(torch, device, federation.train)
    params = loss.init(jax.random.key(0))
    net = getattr(networks_torch, name)(torch, params).to(device)
    _allow_tf32(torch, False)
    problems.check_same(torch, net, loss, params, federation.train, data)
    _allow_tf32(torch, True)

    def work(clients: list[Any]) -> float:
        began = time.perf_counter()
        networks_torch.one_round(torch, net, clients, sizes.batch_size, problems.STEP_SIZE)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    work(data[:2])
    return work(data)


def _allow_tf32(torch: Any, allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def _torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch if torch.cuda.is_available() or jax.default_backend() == "cpu" else None
