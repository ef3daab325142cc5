# SPDX-License-Identifier: Apache-2.0
"""The CIFAR-10 workload of pfl-research on a GPU: 1500 rounds of 50 of 1000 clients, 50 images of 32 x 32 x 3 each.

Its two-convolution network (`simple_cnn`: 32 and 64 filters, 128 hidden units, dropout 0.25 and 0.5; 1,626,442
parameters), local batch 10, one epoch, step 0.1, clients of equal weight, and an evaluation every 10 rounds, as in
apple/pfl-research, benchmarks/image_classification/configs/baseline.yaml and benchmarks/model/pytorch/cnn.py. Images
and labels are drawn. The 10,000 images that are evaluated are 10 per client, and both models of every client are.

Beside it the softmax problem of `recording`, where a round takes least. Skipped where JAX sees no GPU.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks import recording
from benchmarks.apart import measured_apart, say
from benchmarks.measure import Result, Target
from idiolect.algorithms import LocalSGD
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.engines.simulate import Options, Training, open_session
from idiolect.models import CNN
from idiolect.objectives import ClientLoss, GlobalModel

EVERY = 10  # rounds between records
CLASSES = 10
SCORES = ("log_loss", "accuracy")
APART_SECONDS = 100.0
OPEN = (
    Target("after compilation, auto, recorded every 10 rounds", None, 14.0, "s"),
    Target("from an empty cache to the end of the run", None, 18.0, "s"),
    Target("with the cache of an earlier run", None, 15.0, "s"),
    Target("cost of recording", None, 10.0, "%"),
    Target("cost of recording, softmax", None, 10.0, "%"),
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is trained."""

    clients: int = 1000
    cohort: int = 50
    rows: int = 50
    scored: int = 10  # images per client, validation and test alike
    rounds: int = 1500
    side: int = 32
    filters: tuple[int, int] = (32, 64)
    hidden: int = 128


QUICK = Sizes(clients=6, cohort=3, rows=20, scored=5, rounds=20, side=8, filters=(2, 3), hidden=4)


def parts(quick: bool) -> Iterator[Result]:
    """The result so far, after every part of it."""
    numbers: dict[str, Any] = {}
    found: dict[str, float] = {}
    # the other processes first: this one would hold the GPU's memory as soon as it asks what there is
    for part in (in_one_process, softmax) if quick else (apart, in_one_process, softmax):
        if part is in_one_process and jax.default_backend() != "gpu":
            yield Result({}, skipped=f"JAX sees no GPU here, only {jax.default_backend()}")
            return
        said, reached = part(quick)
        numbers |= said
        found |= reached
        yield Result(dict(numbers), tuple(dataclasses.replace(one, measured=found.get(one.what)) for one in OPEN))


def apart(quick: bool) -> tuple[dict[str, Any], dict[str, float]]:
    """Whole runs in processes of their own, with an empty cache of programs and with the one that this left."""
    numbers, reached = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {"IDIOLECT_CACHE": os.path.join(folder, "cache")}
        for target in OPEN[1:3]:
            found = measured_apart(["-m", "benchmarks.rounds_gpu", str(int(quick))], APART_SECONDS, environment)
            say(f"{target.what}: {found}")
            numbers[target.what] = found
            if not isinstance(found, str):
                reached[target.what] = found["seconds to the end of the run"]
    return numbers, reached


def in_one_process(quick: bool) -> tuple[dict[str, Any], dict[str, float]]:
    """Training after compilation: batched without records, batched with them, and as `auto` trains."""
    sizes = QUICK if quick else Sizes()
    algorithm, federation = problem(sizes)
    ways = {
        "batched, recorded at the end": ("batched", sizes.rounds),
        f"batched, recorded every {EVERY} rounds": ("batched", EVERY),
        f"auto, recorded every {EVERY} rounds": ("auto", EVERY),
    }
    seconds = {}
    for name, (executor, every) in ways.items():
        training = Training(
            rounds=sizes.rounds, cohort=sizes.cohort, record_every=every, block=EVERY, executor=executor
        )
        # one block and one record first, which compile
        opened = open_session([algorithm], federation, training, [0], SCORES)
        opened.train(upto=EVERY)
        began = time.perf_counter()
        opened.train()
        # those that remain, as if they were all
        seconds[name] = (time.perf_counter() - began) * sizes.rounds / max(sizes.rounds - EVERY, 1)
        say(f"{name}: {seconds[name]:.2f} s, with {opened.training.executor} {opened.training.chunk or ''}")
    bare, recorded, auto = seconds.values()
    cost = 100 * (recorded / bare - 1)
    numbers = {"seconds after compilation": seconds, "cost of recording, %": cost}
    return numbers, {OPEN[0].what: auto, OPEN[3].what: cost}


def softmax(quick: bool) -> tuple[dict[str, Any], dict[str, float]]:
    """The cost of recording where a round takes least."""
    found = recording.run(quick)
    cost = found.numbers["20 validation rows"]["cost of recording, %"]
    return {"softmax": found.numbers}, {OPEN[4].what: cost}


def problem(sizes: Sizes) -> tuple[LocalSGD, Federation]:
    """FedAvg with the network, on drawn images."""
    side = sizes.side
    model = CNN(side, side, 3, CLASSES, filters=sizes.filters, hidden=sizes.hidden, dropout=(0.25, 0.5))
    algorithm = LocalSGD(GlobalModel(ClientLoss(model=model)), epochs=1, batch_size=10, step_size=0.1)

    def draw(coordinate: int, amount: int) -> Rows:
        draws, count = np.random.default_rng(coordinate), sizes.clients * amount
        inputs = draws.random((count, side, side, 3), dtype=np.float32)
        labels = draws.integers(0, CLASSES, count).astype(np.int32)
        return Rows(inputs, labels, np.arange(sizes.clients + 1, dtype=np.int64) * amount)

    splits = (draw(0, sizes.rows), draw(1, sizes.scored), draw(2, sizes.scored))
    task = Task.classification(tuple(map(str, range(CLASSES))))
    return algorithm, Federation(*splits, tuple(map(str, range(sizes.clients))), task)


def main(quick: bool) -> None:
    """One whole run with `auto` in this process, test scores included; prints its seconds as JSON."""
    from idiolect.experiments.compilation import enable_cache

    enable_cache()
    if jax.default_backend() != "gpu" and not quick:
        sys.exit(f"JAX sees no GPU here, only {jax.default_backend()}")
    sizes = QUICK if quick else Sizes()
    algorithm, federation = problem(sizes)
    compiled: dict[str, float] = {}
    jax.monitoring.register_event_duration_secs_listener(lambda name, spent, **_: _note(compiled, name, spent))
    jax.block_until_ready(jax.numpy.zeros(1) + 1)  # the GPU is started: that takes what it takes without us
    began = time.perf_counter()
    training = Training(rounds=sizes.rounds, cohort=sizes.cohort, record_every=EVERY)
    first: list[float] = []
    options = Options(progress=lambda *_: first.append(time.perf_counter() - began) if not first else None)
    session = open_session([algorithm], federation, training, [0], SCORES, options)
    opened = time.perf_counter() - began
    session.train()
    trained = time.perf_counter() - began
    session.finish()
    found = {
        "seconds to the end of the run": time.perf_counter() - began,
        "to the first round": opened,
        "to the first block": first[0],
        "to the last round": trained,
        "training alone": session.state.seconds,
        "chosen": f"{session.training.executor} {session.training.chunk}",
        **compiled,
    }
    print(json.dumps(found))


def _note(compiled: dict[str, float], name: str, spent: float) -> None:
    """Adds up what JAX reports of tracing, lowering and compiling."""
    short = name.rpartition("/")[2]
    if "compil" in name or "trace" in name or "cache" in name or "lower" in name or "jaxpr" in name:
        compiled[f"{short}, s"] = compiled.get(f"{short}, s", 0.0) + spent
        compiled[f"{short}, times"] = compiled.get(f"{short}, times", 0) + 1


if __name__ == "__main__":
    main(bool(int(sys.argv[1])))
