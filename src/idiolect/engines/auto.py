# SPDX-License-Identifier: Apache-2.0
"""auto: measure the executors once, and several devices, take the fastest, and write the choice down.

The choice and the block length go into the resolved spec, so that repeats and resumed runs use the same programs.
"""

from __future__ import annotations

import dataclasses
import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from idiolect.engines.advance import move
from idiolect.engines.demand import block_length
from idiolect.engines.door import Training
from idiolect.engines.plan import Plan, on_devices
from idiolect.engines.population import InMemory
from idiolect.engines.state import State, lay_out

WORTH_SECONDS = 10.0  # a run shorter than this gains less from a better executor than compiling the others costs
BLOCK_SECONDS = 1.0  # a block should end about this often, so that progress and interrupts stay alive


def resolve(plan: Plan, state: State) -> Plan:
    """The plan with executor, chunk, block and devices of its training filled in."""
    training, seconds = plan.training, 0.0
    if training.executor == "auto":
        training, seconds = _fastest(plan, state)
        plan = dataclasses.replace(plan, training=training)
    if training.devices == "auto":
        plan, seconds = _choose_devices(plan, state, seconds)
        training = plan.training
    block = training.block
    if not block:
        block = block_length(training, plan.widest, len(plan.seeds))
        if seconds > BLOCK_SECONDS / block:  # a long block would silence progress and interrupts
            block = max(1, int(BLOCK_SECONDS / seconds))
    return dataclasses.replace(plan, training=dataclasses.replace(training, block=block))


def _fastest(plan: Plan, state: State) -> tuple[Training, float]:
    training, cohort = plan.training, plan.widest
    batched = dataclasses.replace(training, executor="batched", chunk=0)
    if training.rounds == 0 or cohort == 0:
        return batched, 0.0
    seconds = _measure(plan, state, batched)
    # every other executor is compiled to be measured: for a short run that takes longer than it could save
    if seconds * training.rounds < WORTH_SECONDS:
        return batched, seconds
    others = [dataclasses.replace(training, executor="chunked", chunk=chunk) for chunk in (1, 8) if chunk < cohort]
    if plan.lanes == "one" and plan.shards is None:
        others += [dataclasses.replace(training, executor=name, chunk=0) for name in ("looped", "looped_steps")]
    measured = [(seconds, batched), *((_measure(plan, state, other), other) for other in others)]
    seconds, chosen = min(measured, key=lambda pair: pair[0])
    return chosen, seconds


def _choose_devices(plan: Plan, state: State, seconds: float) -> tuple[Plan, float]:
    """The plan on all devices where that is faster than on one, and what a round takes; `seconds`, if not 0, on one."""
    one = dataclasses.replace(plan, training=dataclasses.replace(plan.training, devices=1))
    devices = min(len(jax.devices()), plan.federation.train.clients)
    if devices == 1 or plan.widest == 0 or not isinstance(plan.population, InMemory):
        return one, seconds
    seconds = seconds or _measure(one, state, one.training)
    if seconds * plan.training.rounds < WORTH_SECONDS:
        return one, seconds
    more = on_devices(plan, devices)
    state = lay_out(more, state)
    # what is best for one client at a time on one device may be best side by side on several
    ways = {("batched", 0), ("chunked", 1)} if plan.requested.executor == "auto" else {_executor_of(plan)}
    best, chosen = seconds, one
    for executor, chunk in sorted(ways):
        training = dataclasses.replace(more.training, executor=executor, chunk=chunk)
        taken = _measure(more, state, training)
        if taken < best:
            best, chosen = taken, dataclasses.replace(more, training=training)
    return chosen, best


def _executor_of(plan: Plan) -> tuple[str, int]:
    return plan.training.executor, plan.training.chunk


def _measure(plan: Plan, state: State, training: Training) -> float:
    """Seconds per round, after compilation; the state is left as it was."""
    plan, first = dataclasses.replace(plan, training=training), state._replace(round=0)
    jax.block_until_ready(move(plan, first, 1)[:3])
    began = time.perf_counter()
    jax.block_until_ready(move(plan, first, 1)[:3])
    seconds = time.perf_counter() - began
    # several processes must choose alike: the slowest one decides
    return float(np.max(multihost_utils.process_allgather(seconds))) if jax.process_count() > 1 else seconds
