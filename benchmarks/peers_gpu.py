# SPDX-License-Identifier: Apache-2.0
"""The CIFAR-10 workload of pfl-research on one GPU, by idiolect, plain PyTorch and pfl-research, as `peers` measures.

Libraries are those that this interpreter finds: a machine with a GPU may not reach a registry. Rounds are timed in
turns and scaled to the benchmark's number. Dropout is left out, since its draws differ between libraries.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax

from benchmarks import peers_environments as environments
from benchmarks.measure import Result
from benchmarks.peers import cache_folder, described, same_loss, side_by_side
from benchmarks.peers_environments import OURS, PEERS, Library
from benchmarks.peers_problem import CIFAR, CIFAR_ROUNDS, smaller
from benchmarks.peers_table import table

WAYS = {OURS.name: ("1 device",), "torch": ("1 thread",), "pfl": ("1 thread", "4 processes")}


def run(quick: bool) -> Result:
    """What each library needed."""
    # this process and those that it starts share one GPU: none may take most of its memory
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if jax.default_backend() != "gpu" and not quick:
        return Result({}, skipped=f"JAX sees no GPU here, only {jax.default_backend()}")
    os.environ.setdefault("PFL_PYTORCH_DEVICE", "cuda:0" if jax.default_backend() == "gpu" else "cpu")
    found = [environments.here(_on_gpu(library)) for library in (OURS, *PEERS) if library.name in WAYS]
    problem = smaller(CIFAR) if quick else CIFAR
    part = side_by_side(problem, found, cache_folder())
    numbers: dict[str, Any] = {"environments": described(found), problem.name: part}
    whole = {
        name: each["seconds of a round, median"] * CIFAR_ROUNDS
        for name, each in part["libraries"].items()
        if not isinstance(each, str)
    }
    lines = [f"{CIFAR_ROUNDS} rounds at this pace: {name} {seconds:.1f} s" for name, seconds in whole.items()]
    numbers |= {f"seconds of {CIFAR_ROUNDS} rounds": whole}
    text = "\n".join([table({name: numbers[name] for name in ("environments", problem.name)}), "", *lines])
    return Result(numbers, (same_loss({problem.name: part}),), text=text)


def _on_gpu(library: Library) -> Library:
    """With the ways to run it on one GPU."""
    return dataclasses.replace(library, variants=WAYS[library.name])
