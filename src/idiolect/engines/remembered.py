# SPDX-License-Identifier: Apache-2.0
"""Seconds of a round that were measured before, by program and machine: what `auto` need not measure again."""

from __future__ import annotations

import hashlib
import json
import os

import jax
import numpy as np

from idiolect.engines.plan import Plan, Remembered


class Table:
    """The executors of one program on one machine, and their seconds."""

    def __init__(self, memory: Remembered | None, key: str):
        self._memory, self._key = memory, key
        self._seconds: dict[str, float] = {}
        content = None if memory is None else memory.get(key)
        if content is not None:
            self._seconds = {name: float(seconds) for name, seconds in json.loads(content).items()}

    def seconds(self, name: str) -> float | None:
        """What was measured under the name."""
        return self._seconds.get(name)

    def put(self, measured: dict[str, float]) -> None:
        """Keep what was measured, by name."""
        if self._seconds != (more := self._seconds | measured):
            self._seconds = more
            if self._memory is not None:
                self._memory.put(self._key, json.dumps(more).encode())


def open_remembered(memory: Remembered | None, plan: Plan) -> Table:
    """What is known of this plan's program here; several hosts, which must choose alike, remember nothing."""
    alone = jax.process_count() == 1
    return Table(memory if alone else None, _program(plan) if alone and memory is not None else "")


def _program(plan: Plan) -> str:
    """A key for all that the time of a round depends on: structure and shapes, not values, and the machine."""
    shapes = [(np.shape(leaf), str(leaf.dtype)) for leaf in jax.tree.leaves((plan.algorithm, plan.wire))]
    counts = plan.federation.train.counts
    rows = (plan.federation.train.inputs.shape[1:], len(counts), int(counts.max()), float(counts.mean()))
    device = jax.devices()[0]
    machine = (jax.__version__, device.platform, device.device_kind, len(jax.devices()), os.cpu_count())
    who = (plan.widest, plan.lanes, len(plan.seeds), plan.uniform, plan.training.precision)
    facts = repr((jax.tree.structure(plan.algorithm), shapes, rows, who, machine))
    return f"seconds of a round {hashlib.sha256(facts.encode()).hexdigest()}"
