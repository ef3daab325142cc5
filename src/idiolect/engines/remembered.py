# SPDX-License-Identifier: Apache-2.0
"""Seconds of a round that were measured before, by program and machine: what `auto` need not measure again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os

import jax
import numpy as np

from idiolect.engines.plan import Plan, Remembered


@dataclasses.dataclass
class Table:
    """The executors of one program on one machine, and their seconds by name."""

    memory: Remembered | None
    key: str
    seconds: dict[str, float]

    def put(self, measured: dict[str, float]) -> None:
        """Keep what was measured."""
        known, self.seconds = self.seconds, self.seconds | measured
        if self.memory is not None and self.seconds != known:
            self.memory.put(self.key, json.dumps(self.seconds).encode())


def open_remembered(memory: Remembered | None, plan: Plan) -> Table:
    """What is known of this plan's program here; several hosts, which must choose alike, remember nothing."""
    if memory is None or jax.process_count() > 1:
        return Table(None, "", {})
    key = _program(plan)
    return Table(memory, key, json.loads(memory.get(key) or b"{}"))


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
