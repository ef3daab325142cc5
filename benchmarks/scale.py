# SPDX-License-Identifier: Apache-2.0
"""100,000 and 1,000,000 clients, rows memory-mapped and states on disk: memory, its growth, cohorts, hidden disk work.

Each training is its own process, so that its memory is its own. `parts` hands on what is measured after each training.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import TURNS, Result, Target, in_turns, medians
from idiolect.engines.cohorts import Participation

ROOT = Path(__file__).parents[1]
ROWS = {"train": 20, "validation": 2, "test": 2}  # per client
FEATURES, CLASSES = 60, 10
METHODS = ("fedavg", "personalized_local_sgd")  # without and with state on the clients
PIECE = 5000  # clients written at a time
MEGABYTE = 2**20


class Size(NamedTuple):
    """How many there are, and how long they train."""

    clients: int
    cohort: int
    marks: tuple[int, ...]  # rounds after which memory is compared; the last one ends the training
    turns: int  # trainings: allocators make one process differ from the next by tens of MB


SIZES = (Size(100_000, 10, (200, 1000, 5000), 3), Size(1_000_000, 100, (200, 1000), 1))
QUICK = (Size(600, 100, (100, 200), 1),)


def parts(quick: bool) -> Iterator[Result]:
    """Memory of both methods after few and many rounds; cost of a cohort; what a round waits for the disk."""
    numbers: dict[str, Any] = {}
    targets = []
    for size in QUICK if quick else SIZES:
        spent = _cohort_milliseconds(size, 1 if quick else TURNS)
        own = numbers[f"{size.clients:,} clients"] = {"cohort, ms per round": spent}
        targets.append(Target(f"choosing {size.cohort} of {size.clients:,} clients", spent, 1.0, "ms"))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for split, rows in ROWS.items():
                _write_rows(folder / split, size.clients, rows)
            own["rows on disk, MB"] = sum(path.stat().st_size for path in folder.rglob("*.npy")) / MEGABYTE
            for method in METHODS[1:] if quick else METHODS:
                children = [_train(folder, method, size) for _ in range(size.turns)]
                own[method] = _medians(children)
                targets += _targets(f"{method}, {size.clients:,} clients", size, children)
                yield Result(numbers, tuple(targets))


def _targets(what: str, size: Size, children: list[dict[str, float]]) -> list[Target]:
    peak = max(child["peak MB above start"] for child in children)
    found = [Target(f"{what}: peak memory above the interpreter's start", peak, 1024.0, "MB")]
    few, many = size.marks[-2:]
    growth = [
        child[f"anonymous MB after {many} rounds"] - child[f"anonymous MB after {few} rounds"] for child in children
    ]
    found.append(Target(f"{what}: growth from {few} to {many} rounds", statistics.median(growth), 20.0, "MB"))
    ways = [f"ms per round waiting for the disk, {way}" for way in ("reading ahead", "not reading ahead")]
    ahead, alone = (statistics.median(child[way] for child in children) for way in ways)
    return [*found, Target(f"{what}: disk work hidden", 1 - ahead / alone, 0.9, "", at_least=True)]


def _cohort_milliseconds(size: Size, turns: int) -> float:
    rounds = range(1000)

    def clock() -> float:
        began = time.perf_counter()
        Participation(size.clients, size.cohort).draw(0, rounds)
        return (time.perf_counter() - began) / len(rounds) * 1000

    return medians(in_turns({"cohort": clock}, turns))["cohort"]


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


def _train(folder: Path, method: str, size: Size) -> dict[str, float]:
    numbers = map(str, (size.cohort, *size.marks))
    command = [sys.executable, "-m", "benchmarks.scale_child", str(folder), method, *numbers]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _medians(children: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(child[name] for child in children) for name in children[0]}
