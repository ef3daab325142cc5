# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: all that no round changes, checked and compiled for; and what may be asked beside it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import jax
import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key, Purpose, host_generator
from idiolect.engines import demand, door, start
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.cohorts import Participation
from idiolect.engines.door import Splits, Training
from idiolect.engines.evaluate import Standing
from idiolect.engines.on_disk import OnDisk
from idiolect.engines.population import InMemory, to_device
from idiolect.engines.shard import Shards, make_shards
from idiolect.engines.start import WireTypes

Progress = Callable[[int, int], None]  # rounds done, rounds in all
Measure = Callable[[int, Standing], dict[str, float]]  # (lane, where it stands) -> numbers for the history


class Remembered(Protocol):
    """Somewhere to keep bytes by a key: the folder of compiled programs, say."""

    def get(self, key: str) -> bytes | None:
        """What was kept under the key."""

    def put(self, key: str, value: bytes) -> None:
        """Keep it in place of what was kept."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What a run may be asked beside algorithm, rows, training, seeds and scores; nothing of it changes a model."""

    checkpoint: Checkpoint | None = None  # where to save the state
    resume: bool = False  # go on from the checkpoint, where there is one
    progress: Progress | None = None
    state_folder: Path | None = None  # client states live there and rows are read as needed; None: all in memory
    choose_by: str = ""  # the score that selects a round; empty: the first
    select_last: bool = False  # the last round is the selected one, whatever its scores
    measure: Measure | None = None  # further numbers for each record
    spent: Sequence[Ledger] = ()  # by lane: what was paid before the first round
    memory: Remembered | None = None  # of what was measured before, for executor "auto"


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Lane i trains `algorithms[i]` with `seeds[i]`; all lanes run in one program."""

    federation: Splits
    algorithms: tuple[Algorithm, ...]  # as admitted
    seeds: tuple[int, ...]
    training: Training  # with executor, chunk and block filled in
    requested: Training  # as it was asked for
    participations: tuple[Participation, ...]
    scores: tuple[str, ...]
    choose_by: str
    select_last: bool
    population: InMemory | OnDisk
    algorithm: Algorithm  # all of them, stacked along a lane axis
    roots: Key
    turns: np.ndarray | None  # who runs side by side, where lanes run in turn
    wire: WireTypes
    shards: Shards | None = None  # the devices that clients are laid over; None: there is one
    held: dict[str, ClientData] = dataclasses.field(default_factory=dict)  # split -> its rows, once on the device

    @property
    def lanes(self) -> str:
        """How `run_block` runs them."""
        if len(self.seeds) == 1:
            return "one"
        return "together" if self.turns is None else "in_turn"

    @functools.cached_property
    def widest(self) -> int:
        """Clients in a round of the lane that has most."""
        return max(who.cohort for who in self.participations)

    @functools.cached_property
    def judged(self) -> np.ndarray | None:
        """The clients that a record scores, ascending, the same in every lane and round; None: all."""
        size, clients = self.training.evaluate_clients, self.federation.train.clients
        if not 0 < size < clients:
            return None
        draw = host_generator(self.seeds[0], Purpose.EVALUATED, 0)
        return np.sort(draw.choice(clients, size, replace=False, shuffle=False))

    @property
    def scored(self) -> int:
        """Clients that a record scores."""
        return self.federation.train.clients if self.judged is None else len(self.judged)

    @functools.cached_property
    def uniform(self) -> bool:
        """Whether all clients have as many rows."""
        counts = self.federation.train.counts
        return bool((counts == counts[0]).all())

    @functools.cached_property
    def fingerprint(self) -> str:
        """What a checkpoint must agree on to be continued: program, settings, seeds, rows, precision."""
        splits = (self.federation.train, self.federation.validation, self.federation.test)
        leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(self.algorithm)]
        # how a round is executed changes rounding at most, and more rounds go on from the same place: neither makes
        # another run
        training = dataclasses.replace(self.training, rounds=0, executor="", chunk=0, block=0, devices=1)
        kinds = jax.tree.structure(self.algorithm)
        facts = repr((kinds, leaves, self.seeds, training, digests(splits), self.scores))
        return hashlib.sha256(facts.encode()).hexdigest()


def digests(splits: Sequence[Rows]) -> list[tuple[tuple[int, ...], int]]:
    """What several splits' rows are, in few bytes."""
    found = [rows.digest(part) for rows in splits for part in ("inputs", "targets", "offsets")]
    return found + [rows.digest("weights") for rows in splits if rows.weights is not None]


def make_plan(
    algorithms: Sequence[Algorithm],
    federation: Splits,
    training: Training,
    seeds: Sequence[int],
    scores: tuple[str, ...],
    options: Options,
) -> Plan:
    """Check everything, once, before anything is computed. The executor may still be "auto": see `engines.auto`."""
    _check(federation, training, seeds, scores)
    rows, dtype = federation.train, door.PRECISIONS[training.precision]
    _check_folder(options, training, len(seeds))
    participations = tuple(door.participation_of(algorithm, training, rows.clients) for algorithm in algorithms)
    with door.run_precision(training.precision):
        admitted = tuple(
            door.admit(algorithm, rows.clients, training.precision, who.chance)
            for algorithm, who in zip(algorithms, participations)
        )
        door.check_fit(admitted[0], federation)
        demand.check_block(training, max(who.cohort for who in participations), len(seeds))
        # a lane axis is always there, for one run too: there is one program to write and to test
        stacked, roots = door.admit_lanes(admitted), start.make_roots(np.asarray(seeds, np.int32))
        folder, devices = options.state_folder, training.devices
        # "auto" begins on one: `engines.auto` measures whether more are faster
        shards = make_shards(devices, rows.clients) if isinstance(devices, int) and devices > 1 else None
        population = InMemory(rows, dtype, shards) if folder is None else OnDisk(rows, dtype, folder)
        turns = None
        # lanes whose servers draw how many steps come next run in turn, grouped by what they drew: in lockstep each
        # would pay for the longest
        if len(seeds) > 1 and start.draws_steps(admitted[0], population.capacity):
            turns = start.turns(stacked, roots, population.capacity)
        # bytes are read off the types of a first client's messages: no rows are needed, and none are sent
        return Plan(
            federation=federation,
            algorithms=admitted,
            seeds=tuple(seeds),
            training=training,
            requested=training,
            participations=participations,
            scores=scores,
            choose_by=options.choose_by or scores[0],
            select_last=options.select_last,
            population=population,
            algorithm=stacked,
            roots=roots,
            turns=turns,
            wire=start.wire_types(admitted[0], to_device(rows.pad(np.arange(1), population.capacity), dtype)),
            shards=shards,
        )


def on_devices(plan: Plan, devices: int) -> Plan:
    """The same plan with its clients laid over so many devices; they must be in memory."""
    training = dataclasses.replace(plan.training, devices=devices)
    rows, dtype = plan.federation.train, door.PRECISIONS[training.precision]
    with door.run_precision(training.precision):
        shards = make_shards(devices, rows.clients) if devices > 1 else None
        population = InMemory(rows, dtype, shards)
    return dataclasses.replace(plan, training=training, population=population, shards=shards, held={})


def _check_folder(options: Options, training: Training, lanes: int) -> None:
    if options.state_folder is None:
        return
    if lanes > 1:
        raise RequestError(f"A state_folder is for one run at a time, got {lanes}; leave it out, or run one.")
    if training.devices not in (1, "auto"):
        raise RequestError(
            f"A state_folder is for one device, got training.devices = {training.devices}; leave it out, or use 1."
        )


def _check(federation: Splits, training: Training, seeds: Sequence[int], scores: tuple[str, ...]) -> None:
    door.check_training(training, federation.train.clients)
    door.check_federation(federation)
    door.check_seeds(seeds)
    if not scores:
        raise RequestError('A run needs at least one score to record, got none; use ("log_loss",), say.')
