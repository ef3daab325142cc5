# SPDX-License-Identifier: Apache-2.0
"""100,000 clients, 10 per round, rows memory-mapped and states on disk: memory, its growth, and cohorts.

Each training is its own process, so that its peak of resident memory is its own.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import TURNS, Result, Target, in_turns, medians
from idiolect.engines.cohorts import Participation

ROOT = Path(__file__).parents[1]
ROWS = {"train": 20, "validation": 2, "test": 2}  # per client
FEATURES, CLASSES, COHORT = 60, 10, 10
METHODS = ("fedavg", "personalized_local_sgd")  # without and with state on the clients
MEMORY_TURNS = 5
PIECE = 5000  # clients written at a time
MEGABYTE = 2**20


def run(quick: bool) -> Result:
    """Peak memory of both methods after few and many rounds; cost of a cohort of 10."""
    clients, lengths = (600, (2, 4)) if quick else (100_000, (200, 1000, 5000))
    numbers: dict[str, Any] = {"cohort, ms per round": _cohort_milliseconds(1 if quick else TURNS)}
    targets = [
        Target(f"choosing 10 of {population} clients", spent, 1.0, "ms")
        for population, spent in numbers["cohort, ms per round"].items()
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, rows in ROWS.items():
            _write_rows(folder / split, clients, rows)
        numbers["rows on disk, MB"] = sum(path.stat().st_size for path in folder.rglob("*.npy")) / MEGABYTE
        for method in METHODS[1:] if quick else METHODS:
            # allocators make one process differ from the next by tens of MB: both lengths in turns, and medians
            found = {rounds: [] for rounds in lengths}
            for _ in range(1 if quick else MEMORY_TURNS):
                for rounds in lengths:
                    found[rounds].append(_train(folder, method, rounds))
            peaks = {rounds: [child["peak MB above start"] for child in found[rounds]] for rounds in lengths}
            numbers[method] = {f"{rounds} rounds": _medians(children) for rounds, children in found.items()}
            highest = max(map(max, peaks.values()))
            targets.append(Target(f"{method}: peak memory above the interpreter's start", highest, 1024.0, "MB"))
            for few, many in itertools.pairwise(lengths):
                # a peak is a maximum over blocks, so it creeps up at first; growth that lasts shows in the later pair
                growth = [long - short for short, long in zip(peaks[few], peaks[many])]
                numbers[method] |= {f"growth from {few} to {many}, MB, each turn": [round(step, 1) for step in growth]}
                middle = statistics.median(growth)
                targets.append(Target(f"{method}: growth from {few} to {many} rounds", middle, 20.0, "MB"))
    return Result(numbers, tuple(targets))


def _cohort_milliseconds(turns: int) -> dict[str, float]:
    rounds = range(1000)

    def clock(population: int) -> float:
        began = time.perf_counter()
        Participation(population, COHORT).draw(0, rounds)
        return (time.perf_counter() - began) / len(rounds) * 1000

    populations = (100_000, 1_000_000)
    return medians(in_turns({f"{size:,}": lambda size=size: clock(size) for size in populations}, turns))


def _write_rows(folder: Path, clients: int, rows: int) -> None:
    """The files of `data.store.save_rows`, a piece of the population at a time: they need not fit in memory."""
    folder.mkdir(parents=True)
    amount = clients * rows
    inputs = np.lib.format.open_memmap(folder / "inputs.npy", "w+", np.float32, (amount, FEATURES))
    targets = np.lib.format.open_memmap(folder / "targets.npy", "w+", np.int32, (amount,))
    for first in range(0, clients, PIECE):
        draw = np.random.default_rng([rows, first])
        piece = slice(first * rows, min(first + PIECE, clients) * rows)
        inputs[piece] = draw.standard_normal(inputs[piece].shape, np.float32)
        targets[piece] = inputs[piece, :CLASSES].argmax(axis=1)
    np.save(folder / "offsets.npy", np.arange(clients + 1, dtype=np.int64) * rows)


def _train(folder: Path, method: str, rounds: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale_child", str(folder), method, str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return json.loads(done.stdout)


def _medians(children: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(child[name] for child in children) for name in children[0]}
