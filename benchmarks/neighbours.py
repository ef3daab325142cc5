# SPDX-License-Identifier: Apache-2.0
"""All-for-all with 10,000 agents that listen to about 50 others each: seconds, memory, and ways to mix.

Each training is its own process, so that its peak of resident memory is its own.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import TURNS, Result, Target, in_turns, medians, seconds_of
from idiolect.core import mixing
from idiolect.core.mixing import Neighbours

ROOT = Path(__file__).parents[1]
DIMENSION, ROWS, CLOSE = 50, 10, 50
TRAININGS = 3


def run(quick: bool) -> Result:
    """1000 synchronous rounds through the engine; then one product Lambda v, four ways."""
    agents, rounds = (400, 4) if quick else (10_000, 1000)
    command = [sys.executable, "-m", "benchmarks.neighbours_child", str(agents), str(rounds)]
    children = []
    for _ in range(1 if quick else TRAININGS):
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        children.append(json.loads(done.stdout))
    numbers: dict[str, Any] = {name: statistics.median(child[name] for child in children) for name in children[0]}
    numbers["one product, ms"] = _products(agents, 1 if quick else TURNS)
    targets = (
        Target(f"{rounds} rounds of {agents} agents, compilation included", numbers["rounds, s"], 60.0, "s"),
        Target("peak memory of the process", numbers["peak MB"], 2048.0, "MB"),
    )
    return Result(numbers, targets)


def neighbourhoods(agents: int) -> Neighbours:
    """Agents at random places on a line, in random order; they listen to those within one distance, 50 on average."""
    places = np.random.default_rng(0).random(agents)
    order = np.argsort(places)
    reach = CLOSE / agents / 2
    last = np.searchsorted(places[order], places[order] + reach, side="right")
    ahead = last - np.arange(agents) - 1
    first = np.repeat(np.arange(agents), ahead)
    second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(ahead) - ahead, ahead)
    pairs = order[first], order[second], np.zeros(len(first))
    from idiolect.collaborate import neighbourhoods_from_pairs

    return neighbourhoods_from_pairs(agents, *pairs, accuracy=1.0)


def _products(agents: int, turns: int) -> dict[str, float]:
    """Slot by slot (ours), all slots at once, a sum over sorted pairs, the whole matrix."""
    lists = jax.tree.map(lambda leaf: jnp.asarray(leaf), neighbourhoods(agents))
    lists = lists._replace(weights=lists.weights.astype(jnp.float32))
    values = jnp.asarray(np.random.default_rng(1).normal(size=(agents, DIMENSION)), jnp.float32)
    rows = jnp.repeat(jnp.arange(agents), lists.indices.shape[0])
    flat, shares = lists.indices.T.reshape(-1), lists.weights.T.reshape(-1)
    matrix = jnp.asarray(mixing.dense(lists), jnp.float32)

    def at_once(v: Any) -> Any:
        return jnp.einsum("kn,knd->nd", lists.weights, v[lists.indices])

    def by_segments(v: Any) -> Any:
        return jax.ops.segment_sum(shares[:, None] * v[flat], rows, agents, indices_are_sorted=True)

    ways: dict[str, Callable[[Any], Any]] = {
        "slot by slot": lambda v: mixing.mix(lists, v),
        "all slots at once": at_once,
        "sum over sorted pairs": by_segments,
        "matrix": lambda v: matrix @ v,
    }
    compiled = {name: jax.jit(way) for name, way in ways.items()}
    clocks = {name: lambda way=way: 1000 * seconds_of(lambda: way(values)) for name, way in compiled.items()}
    return medians(in_turns(clocks, turns))
