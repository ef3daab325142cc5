# SPDX-License-Identifier: Apache-2.0
"""Rounds of 100 clients with the CNN and the LSTM on a GPU: the engine, a bare `vmap` round, a PyTorch loop.

CNN: 28 x 28 images, 32 and 64 filters, 128 hidden units, 62 classes (1,206,590 parameters), 200 images per client,
batch 20, one epoch. LSTM: two layers of 256, 72 characters (815,752 parameters), 40 sequences of 80 characters per
client, batch 4, one epoch (10 steps). Products of float32 are TF32's: JAX's default there, and PyTorch is told to.
Memory and PyTorch are measured in processes of their own, each with a bound on its time, and come last. Skipped where
JAX sees no GPU.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import network_problems as problems
from benchmarks import networks_by_hand
from benchmarks.apart import measured_apart, say
from benchmarks.measure import Result, Target, in_turns, medians, ratio, seconds_of
from idiolect.algorithms import LocalSGD
from idiolect.core.algorithm import Algorithm
from idiolect.core.keys import Purpose, root_key, round_key
from idiolect.data.federation import Federation
from idiolect.engines.population import to_device
from idiolect.engines.simulate import Training, open_session
from idiolect.models import Model
from idiolect.objectives import ClientLoss, GlobalModel

ENGINE, BFLOAT16, BARE, TORCH = "engine", "engine, bfloat16 products", "bare vmap", "torch loop"
PERSONAL = {  # what a round does with every client's rows
    "ditto": "one epoch on w_m, and beside every step one on v_m, same batch",
    "apfl": "one epoch: per step a gradient at w_m and one at the mix, a = 0.25 fixed",
    "fedrep": "one epoch on the last layer, then one on the others",
    "flow": "one epoch on w_l with half of the rows, one on psi and w_g with the others",
}
APART_SECONDS = 150.0  # for starting, checking and timing in a process of its own
OPEN = (  # everything promised, not measured yet
    Target(f"CNN: {ENGINE} / {BARE}", None, 1.15),
    Target(f"CNN: {BFLOAT16} (stretch)", None, 0.025, "s"),
    *(Target(f"CNN: {method}", None, 0.12, "s") for method in ("ditto", "apfl", "fedrep")),
    Target("CNN: flow / FedAvg", None, 3.2),
    Target("LSTM: engine", None, 0.15, "s"),
    Target("GPU memory, CNN, 500 clients, chunks of 50", None, 6.0, "GB"),
    Target(f"CNN: {TORCH} / {ENGINE}", None, 35.0, at_least=True),
)


class Sizes(NamedTuple):
    """How much is measured."""

    clients: int
    rows: int
    batch_size: int
    sequences: int  # per client
    turns: int
    rounds: int  # per turn
    small: bool


FULL = Sizes(100, 200, 20, 40, turns=3, rounds=10, small=False)
QUICK = Sizes(3, 8, 4, 4, turns=1, rounds=1, small=True)


def parts(quick: bool) -> Iterator[Result]:
    """The result so far, after every part of it: targets that no part has reached yet are not measured."""
    if jax.default_backend() != "gpu":
        yield Result({}, skipped=f"JAX sees no GPU here, only {jax.default_backend()}")
        return
    sizes = QUICK if quick else FULL
    numbers: dict[str, Any] = {}
    found: dict[str, float] = {}
    for name, part in (("cnn", networks), ("lstm", recurrent), ("memory", chunked_memory), ("torch", torch_loops)):
        say(f"{name}:")
        numbers[name], reached = part(sizes, numbers)
        found |= reached
        targets = (dataclasses.replace(target, measured=found.get(target.what)) for target in OPEN)
        yield Result(dict(numbers), tuple(targets))


def networks(sizes: Sizes, _: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Everything that is timed with the CNN."""
    federation, model = problems.contest("cnn", sizes.clients, sizes.rows, sizes.small)
    fedavg = _fedavg(model, sizes.batch_size)
    lowered = problems.cnn(problems.CLASSES, sizes.small, compute="bfloat16")
    clocks = {
        ENGINE: problems.engine_clock(fedavg, federation, "batched", rounds=sizes.rounds),
        BARE: _bare(networks_by_hand.cnn_loss, fedavg, federation, sizes),
        BFLOAT16: problems.engine_clock(_fedavg(lowered, sizes.batch_size), federation, "batched", rounds=sizes.rounds),
    }
    for method in PERSONAL:
        algorithm = problems.one_epoch(method, model, sizes.batch_size)
        clocks[method] = problems.engine_clock(algorithm, federation, "batched", rounds=sizes.rounds)
    seconds = _timed(clocks, sizes)
    middle = medians(seconds)
    reached = {
        f"CNN: {ENGINE} / {BARE}": ratio(seconds, ENGINE, BARE),
        f"CNN: {BFLOAT16} (stretch)": middle[BFLOAT16],
        "CNN: flow / FedAvg": ratio(seconds, "flow", ENGINE),
    }
    reached |= {f"CNN: {method}": middle[method] for method in PERSONAL}
    return _numbers(seconds) | {"what a round does": PERSONAL}, reached


def recurrent(sizes: Sizes, _: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Everything that is timed with the LSTM."""
    federation, model = problems.contest("character_lstm", sizes.clients, sizes.sequences, sizes.small)
    fedavg, few = _fedavg(model, 4), sizes._replace(batch_size=4, rounds=min(4, sizes.rounds))
    clocks = {
        ENGINE: problems.engine_clock(fedavg, federation, "batched", rounds=few.rounds),
        f"{BARE}, naive scan": _bare(networks_by_hand.lstm_loss, fedavg, federation, few),
    }
    seconds = _timed(clocks, few)
    return _numbers(seconds), {"LSTM: engine": medians(seconds)[ENGINE]}


def chunked_memory(sizes: Sizes, _: Any) -> tuple[Any, dict[str, float]]:
    """The highest use of GPU memory in a process of its own, evaluation included."""
    clients, chunk, rows = (10, 5, 8) if sizes.small else (500, 50, 200)
    command = ["-m", "benchmarks.networks_gpu_child", *map(str, (clients, chunk, rows))]
    # what is set aside in advance would count as used
    found = measured_apart(command, APART_SECONDS, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    reached = {} if isinstance(found, str) else {"GPU memory, CNN, 500 clients, chunks of 50": found["peak GB"]}
    return found, reached


def torch_loops(sizes: Sizes, numbers: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """A whole round of a sequential loop over all clients, beside what the engine took before."""
    report: dict[str, Any] = {}
    reached: dict[str, float] = {}
    for short, name, rows, batch_size in (
        ("cnn", "cnn", sizes.rows, sizes.batch_size),
        ("lstm", "character_lstm", sizes.sequences, 4),
    ):
        choice = (name, sizes.clients, rows, batch_size, int(sizes.small))
        command = ["-m", "benchmarks.networks_gpu_torch", *map(str, choice)]
        report[short] = found = measured_apart(command, APART_SECONDS, {"JAX_PLATFORMS": "cpu"})
        if not isinstance(found, str):
            times = found["seconds of a round"] / numbers[short]["median seconds of a round"][ENGINE]
            found[f"{TORCH} / {ENGINE}"] = reached[f"{short.upper()}: {TORCH} / {ENGINE}"] = times
    return report, reached


def _fedavg(model: Model, batch_size: int) -> LocalSGD:
    loss = ClientLoss(model=model)
    return LocalSGD(GlobalModel(loss), epochs=1, batch_size=batch_size, step_size=problems.STEP_SIZE)


def _timed(clocks: dict[str, Callable[[], float]], sizes: Sizes) -> dict[str, list[float]]:
    """Seconds in turns."""

    def told(name: str, clock: Callable[[], float]) -> float:
        began = time.perf_counter()
        spent = clock()
        say(f"{name}: {spent:.4f} s a round", began)
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
        session = open_session([algorithm], federation, training, [0], ("log_loss",))
        session.train()
        for ours, theirs in zip(jax.tree.leaves(session.snapshot().server.shared), jax.tree.leaves(train(1, start))):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    return lambda: seconds_of(lambda: train(sizes.rounds, start)) / sizes.rounds
