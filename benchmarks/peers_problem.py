# SPDX-License-Identifier: Apache-2.0
"""The problems that every library gets: rows, settings and initial parameters, written once and read by all.

Standard library and NumPy alone, since every environment imports it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PARAMS = "params/"


class Turns(NamedTuple):
    """How the rounds of a run are divided: the first gives the first result, then some that warm up, then turns."""

    warm: int
    turns: int
    each: int

    @property
    def rounds(self) -> int:
        """All of them."""
        return 1 + self.warm + self.turns * self.each


@dataclasses.dataclass(frozen=True)
class Problem:
    """FedAvg with plain SGD: one epoch per round, every client of the cohort weighs the same."""

    name: str
    model: str  # "linear", "mlp" or "cnn"
    clients: int
    rows: int  # of a client
    shape: tuple[int, ...]  # of an input
    classes: int
    hidden: int
    cohort: int
    batch_size: int
    step_size: float
    turns: Turns
    tolerance: float  # of the final training loss, in parts of how far ours came down

    @property
    def steps(self) -> int:
        """Of a round, all clients together."""
        return self.cohort * -(-self.rows // self.batch_size)


SOFTMAX = Problem("softmax", "linear", 100, 100, (784,), 10, 0, 100, 10, 0.01, Turns(19, 4, 20), 0.02)
CNN = Problem("cnn", "cnn", 100, 100, (28, 28, 1), 10, 128, 10, 20, 0.05, Turns(2, 3, 3), 0.15)
MEMORY = Problem("memory", "mlp", 500, 20, (784,), 10, 200, 100, 10, 0.05, Turns(5, 3, 8), 0.05)
CIFAR = Problem("cifar10", "cnn", 1000, 50, (32, 32, 3), 10, 128, 50, 10, 0.1, Turns(29, 3, 40), 0.15)
CIFAR_ROUNDS = 1500  # of pfl-research's benchmark; a part is run and scaled up


def smaller(problem: Problem) -> Problem:
    """For trying whether it runs."""
    few = {"clients": 4, "rows": 8, "cohort": min(problem.cohort, 4) // 2 or 1, "batch_size": 4}
    if problem.cohort == problem.clients:
        few["cohort"] = few["clients"]
    return dataclasses.replace(problem, **few, hidden=min(problem.hidden, 8), turns=Turns(1, 1, 1))


def draw_rows(problem: Problem, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in noise around a point per class, so that there is something to learn, and their labels."""
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, problem.classes, problem.clients * problem.rows)
    centres = draws.normal(size=(problem.classes, *problem.shape)).astype(np.float32)
    inputs = draws.normal(size=(len(labels), *problem.shape)).astype(np.float32)
    inputs += 0.1 * centres[labels]
    return inputs, labels.astype(np.int32)


def write(folder: Path, problem: Problem, params: dict[str, Any]) -> Path:
    """One file with everything: settings, rows in the order of the clients, initial parameters by dotted name."""
    inputs, targets = draw_rows(problem)
    named = {PARAMS + name: leaf for name, leaf in _flat(params).items()}
    path = folder / f"{problem.name}.npz"
    settings = np.array(json.dumps(dataclasses.asdict(problem)))
    np.savez(path, settings=settings, inputs=inputs, targets=targets, **named)
    return path


class Given(NamedTuple):
    """A problem as a library reads it."""

    problem: Problem
    inputs: np.ndarray
    targets: np.ndarray
    params: dict[str, Any]

    def of(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """A client's rows."""
        own = slice(client * self.problem.rows, (client + 1) * self.problem.rows)
        return self.inputs[own], self.targets[own]


def read(path: Path) -> Given:
    """What `write` has written."""
    with np.load(path) as file:
        settings = json.loads(str(file["settings"]))
        leaves = {name.removeprefix(PARAMS): file[name] for name in file.files if name.startswith(PARAMS)}
        rows = file["inputs"], file["targets"]
    settings |= {"shape": tuple(settings["shape"]), "turns": Turns(*settings["turns"])}
    return Given(Problem(**settings), *rows, _nested(leaves))


def _flat(params: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    flat: dict[str, np.ndarray] = {}
    for name, value in params.items():
        deeper = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if deeper else {prefix + name: np.asarray(value, np.float32)}
    return flat


def _nested(leaves: dict[str, np.ndarray]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *path, last = name.split(".")
        place = params
        for part in path:
            place = place.setdefault(part, {})
        place[last] = leaf
    return params
