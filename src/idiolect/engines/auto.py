# SPDX-License-Identifier: Apache-2.0
"""auto: the executor and the devices that are fastest, known without measuring wherever that is possible.

An accelerator works on as many clients side by side as its memory takes. So does a CPU where a client's step is small;
where it is large, it works on one client after another, whose model stays in its caches. What is left open, long runs
on a CPU or over several devices, is looked up among what was measured before, and measured only where that takes at
most a twentieth of the run. The choice and the block length go into the resolved spec, so that repeats and resumed runs
use the same programs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from idiolect.core import tree
from idiolect.engines import programs
from idiolect.engines.advance import move
from idiolect.engines.demand import block_length, fitting_chunk
from idiolect.engines.door import Training
from idiolect.engines.plan import Plan, Remembered, on_devices
from idiolect.engines.population import InMemory
from idiolect.engines.state import State, lay_out

WORTH_SECONDS = 10.0  # a run shorter than this gains less from a better executor than compiling the others costs
BLOCK_SECONDS = 1.0  # a block should end about this often, so that progress and interrupts stay alive
TOO_LONG = 5  # times that: a block that was compiled for a guess is compiled anew
SHARE = 0.05  # of the run that may be spent on measuring, compilation included
# Operations of a client's step from which a CPU is faster with one client after another than with all side by side.
# Seconds of a round of 100 clients, all / one: 0.0079 / 0.0096 at 3e5 (softmax 784-10, batches of 10), 0.097 / 0.053 at
# 8e6 (784-200-10, batches of 20); of 10 clients 0.97 / 0.70 at 1.5e9 (a CNN); two cores, 2026-11-19.
LARGE_STEP = 1e6
SHORT_ROUND = 0.2  # seconds: measured twice, since a first round also takes its memory


def resolve(plan: Plan, state: State, memory: Remembered | None = None) -> Plan:
    """The plan with executor, chunk, block and devices of its training filled in."""
    asked = plan.training
    if asked.executor != "auto" and asked.devices != "auto" and asked.block:
        return plan
    devices = 1 if isinstance(asked.devices, str) else asked.devices
    plan = _with(plan, devices=devices, block=asked.block or block_length(asked, plan.widest, len(plan.seeds)))
    if asked.rounds == 0 or plan.widest == 0:
        return _with(plan, executor="batched") if asked.executor == "auto" else plan
    choice = _Choice(plan, state, asked, memory)
    if asked.executor == "auto":
        choice.take_executor()
    else:
        choice.take_block()
    choice.take_devices()
    return choice.settled()


def _with(plan: Plan, **changes: object) -> Plan:
    training = dataclasses.replace(plan.training, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(plan, training=training)


class _Choice:
    """A plan on its way to the fastest one: what is known of rounds so far, and what measuring may still take."""

    def __init__(self, plan: Plan, state: State, asked: Training, memory: Remembered | None):
        self.plan, self.state, self.asked = plan, state, asked
        self.known = open_remembered(memory, plan)
        self.seconds = 0.0  # of a round of `plan`; 0: not measured
        self.counted = 0.0  # operations of a local step of all clients at hand
        self.compiling = 0.0  # seconds of compiling one executor
        self.left = 0.0  # seconds for further measurements

    def take_executor(self) -> None:
        """The widest that fits, or one client at a time; on a CPU, in a long run, the fastest."""
        self._take_widest()
        if jax.default_backend() != "cpu" or not self._may_measure():
            return
        first = self.plan
        chunks = [chunk for chunk in (1, 8) if chunk < (first.training.chunk or first.widest)]
        others = [("chunked", chunk) for chunk in chunks]
        if first.lanes == "one" and first.shards is None:
            others += [("looped", 0), ("looped_steps", 0)]
        for executor, chunk in others:
            self._try(_with(first, executor=executor, chunk=chunk))

    def take_devices(self) -> None:
        """All devices, where that is faster than one and may be chosen."""
        devices = min(len(jax.devices()), self.plan.federation.train.clients)
        one = self.plan
        if self.asked.devices != "auto":
            return
        if devices == 1 or not isinstance(one.population, InMemory) or not self._may_measure():
            return
        more = on_devices(one, devices)
        # what is best for one client at a time on one device may be best side by side on several
        ways = {("batched", 0), ("chunked", 1)} if self.asked.executor == "auto" else set()
        for executor, chunk in sorted(ways) or [(one.training.executor, one.training.chunk)]:
            self._try(_with(more, executor=executor, chunk=chunk))

    def take_block(self) -> None:
        """As many rounds as about a second has, by what the compiler counts: the block is compiled once."""
        if not self.asked.block:
            self.counted = programs.operations(self.plan, self.state)
            self.plan = _with(self.plan, block=_shortened(self.plan, programs.guess_seconds(self.plan, self.counted)))

    def settled(self) -> Plan:
        """The plan, with shorter blocks where the guess was far off."""
        block, looped = self.plan.training.block, self.plan.training.executor.startswith("looped")
        limit = BLOCK_SECONDS * (1 if looped else TOO_LONG)  # a looped executor compiles no block
        if not self.asked.block and self.seconds * block > limit:
            self.plan = _with(self.plan, block=_shortened(self.plan, self.seconds))
        return self.plan

    def _take_widest(self) -> None:
        """All clients of a round side by side, or as many as memory takes; what was compiled to find out is used."""
        plan = self.plan
        chunk = fitting_chunk(plan.widest, len(plan.seeds) * tree.size_in_bytes(plan.wire.upload))
        while True:
            self.plan = _with(plan, executor="chunked" if chunk else "batched", chunk=chunk)
            self.take_block()
            if self._takes_large_steps(chunk or plan.widest):
                chunk = 1
                self.plan = _with(self.plan, executor="chunked", chunk=chunk)
            began = time.perf_counter()
            shares = programs.share_of_memory(self.plan, self.state)
            self.compiling = time.perf_counter() - began
            shares = _agreed(shares[0]), _agreed(shares[1])
            if chunk == 1 or max(shares) <= 1:
                return
            at_once = (chunk or plan.widest, chunk or plan.scored)
            chunk = _smaller_chunk(shares, at_once, chunk or plan.widest + 1)

    def _operations(self) -> float:
        """`counted`, once it is."""
        self.counted = self.counted or programs.operations(self.plan, self.state)
        return self.counted

    def _takes_large_steps(self, at_once: int) -> bool:
        """Whether a CPU is faster with one client at a time, where `counted` is of so many."""
        devices = 1 if self.plan.shards is None else self.plan.shards.devices
        return jax.default_backend() == "cpu" and self._operations() * devices >= LARGE_STEP * at_once

    def _may_measure(self) -> bool:
        """Whether the run is so long that it may pay to measure others, once its own program was measured."""
        guess = programs.guess_seconds(self.plan, self._operations())
        # even a slow machine would be done before measuring is worth it
        if 0 < guess * self.asked.rounds < WORTH_SECONDS / TOO_LONG:
            return False
        if not self.seconds:
            self._measure_first()
        return self.seconds * self.asked.rounds >= WORTH_SECONDS

    def _measure_first(self) -> None:
        began = time.perf_counter()
        self.seconds = self.known.seconds.get(_name(self.plan)) or _measure(self.plan, self.state)
        spent = _agreed(self.compiling + time.perf_counter() - began)
        # what is loaded says nothing of how long the others compile: it was measured when it was compiled
        self.compiling = max(_agreed(self.compiling), self.known.seconds.get("compiling") or 0.0)
        self.known.put({_name(self.plan): self.seconds, "compiling": self.compiling})
        self.left = SHARE * self.seconds * self.asked.rounds - spent

    def _try(self, other: Plan) -> None:
        """Take the other plan where it is faster, by what was measured before or is now, as far as there is time."""
        seconds = self.known.seconds.get(_name(other))
        if seconds is None:
            if self.compiling + 3 * self.seconds > self.left:
                return
            began = time.perf_counter()
            seconds = _measure(other, lay_out(other, self.state))
            self.left -= _agreed(time.perf_counter() - began)
            self.known.put({_name(other): seconds})
        if seconds < self.seconds:
            self.plan, self.seconds = other, seconds


def _name(plan: Plan) -> str:
    training = plan.training
    return f"{training.executor} {training.chunk} on {training.devices}"


def _smaller_chunk(shares: tuple[float, float], at_once: tuple[int, int], than: int) -> int:
    """Clients whose block and whose record both fit, where so many `at_once` take these shares of the memory."""
    # one that trains the whole cohort at once, and scores as many, may be all that it takes
    return max(1, min(than - 1, *(int(count / share) for share, count in zip(shares, at_once) if share > 1)))


def _shortened(plan: Plan, seconds: float) -> int:
    return max(1, min(plan.training.block, int(BLOCK_SECONDS / seconds))) if seconds else plan.training.block


def _measure(plan: Plan, state: State) -> float:
    """Seconds per round, after compilation; the state is left as it was."""
    first = state._replace(round=0)
    if plan.training.executor.startswith("looped"):
        _clock(plan, first)  # it compiles as it goes
    else:
        programs.compile_all(plan, first, scores=False)
    seconds = _clock(plan, first)
    if seconds < SHORT_ROUND:
        seconds = min(seconds, _clock(plan, first))
    return _agreed(seconds)


def _clock(plan: Plan, state: State) -> float:
    began = time.perf_counter()
    jax.block_until_ready(move(plan, state, 1)[:2])
    return time.perf_counter() - began


def _agreed(seconds: float) -> float:
    """Several processes must choose alike: the slowest one decides."""
    return float(np.max(multihost_utils.process_allgather(seconds))) if jax.process_count() > 1 else seconds


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
    # all that the time of a round depends on: structure and shapes, not values, and the machine
    shapes = [(np.shape(leaf), str(leaf.dtype)) for leaf in jax.tree.leaves((plan.algorithm, plan.wire))]
    counts = plan.federation.train.counts
    rows = (plan.federation.train.inputs.shape[1:], len(counts), int(counts.max()), float(counts.mean()))
    device = jax.devices()[0]
    machine = (jax.__version__, device.platform, device.device_kind, len(jax.devices()), os.cpu_count())
    who = (plan.widest, plan.lanes, len(plan.seeds), plan.uniform, plan.training.precision)
    facts = repr((jax.tree.structure(plan.algorithm), shapes, rows, who, machine))
    key = f"seconds of a round {hashlib.sha256(facts.encode()).hexdigest()}"
    return Table(memory, key, json.loads(memory.get(key) or b"{}"))
