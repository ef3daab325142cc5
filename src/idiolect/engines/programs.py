# SPDX-License-Identifier: Apache-2.0
"""The two large programs of a run, a block and a record: compiled side by side, and what the compiler says of them.

JAX keeps what is compiled here, so that the run's own calls find it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from idiolect.engines import door
from idiolect.engines.advance import lower_block
from idiolect.engines.demand import free_on_device
from idiolect.engines.judge import lower_scores
from idiolect.engines.plan import Plan
from idiolect.engines.population import InMemory
from idiolect.engines.state import State

# operations per second that small clients reach at least, and seconds that a step takes whatever it computes: guesses
# of where a measurement could matter, and of how many rounds are a second
_RATES = {"cpu": (2e9, 5e-5)}
_OF_ACCELERATORS = (1e13, 1e-4)
_USABLE = 0.9  # of free memory: the allocator loses some between its pieces


def compile_all(plan: Plan, state: State, *, scores: bool = True) -> list[Any]:
    """The compiled block and, with `scores`, the record, compiled at the same time."""

    def one(lower: Callable[[Plan, State], Any]) -> Any:
        with door.run_precision(plan.training.precision):  # each thread has its own
            return lower(plan, state).compile()

    if not scores or not isinstance(plan.population, InMemory):
        return [one(lower_block)]
    with ThreadPoolExecutor(1) as pool:
        record = pool.submit(one, lower_scores)
        return [one(lower_block), record.result()]


def share_of_memory(plan: Plan, state: State) -> tuple[float, float]:
    """What a block and a record need, of the memory that is free; 0 where that is not known."""
    free = free_on_device()
    block, record = extra_bytes(plan, state)
    return (block / (_USABLE * free), record / (_USABLE * free)) if free else (0.0, 0.0)


def extra_bytes(plan: Plan, state: State) -> tuple[float, float]:
    """What a block and a record need beside their arguments, which are there, as the compiler planned it."""

    def one(compiled: Any) -> float:
        found = compiled.memory_analysis()
        if found is None:  # not every backend says
            return 0.0
        return float(found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes)

    block, *record = (one(compiled) for compiled in compile_all(plan, state))
    return block, max(record, default=0.0)


def guess_seconds(plan: Plan, counted: float) -> float:
    """Of a round on a slow machine, from `operations`; 0 where they are not known."""
    if not counted:
        return 0.0
    rate, step = _RATES.get(jax.default_backend(), _OF_ACCELERATORS)
    devices = 1 if plan.shards is None else plan.shards.devices
    steps = capacity = plan.population.capacity
    # those of the client with most rows, where they are no draw
    with contextlib.suppress(TypeError, jax.errors.ConcretizationTypeError):
        steps = max(1, int(plan.algorithms[0].steps(plan.wire.sent, capacity)))
    return steps * (counted / devices / rate + step)


def operations(plan: Plan, state: State) -> float:
    """Of one local step of all clients at hand, as the compiler counts them before it optimises; 0: not known."""
    if plan.training.executor.startswith("looped"):
        return 0.0
    try:
        with door.run_precision(plan.training.precision):
            counted = lower_block(plan, state).cost_analysis()
    except (NotImplementedError, RuntimeError):  # not every backend counts
        return 0.0
    # a loop's body counts once, and so do the steps of a round
    return float((counted or {}).get("flops", 0.0))
