# SPDX-License-Identifier: Apache-2.0
"""Where client rows and client states are kept; here on the device, in `engines.on_disk` on disk."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jax.typing import DTypeLike

from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key
from idiolect.core.objective import Prepares
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree
from idiolect.data.store import is_mapped, read_clients
from idiolect.engines.shard import Shards, pick, to_host
from idiolect.engines.start import init_lanes

SPLITS = ("validation", "test")


def to_device(data: ClientData, dtype: DTypeLike) -> ClientData:
    """Padded rows as device arrays, floating ones in the run's precision."""

    def cast(leaf: np.ndarray) -> jax.Array:
        # on the host: on the device, each shape would need a program of its own
        return jax.device_put(np.asarray(leaf, dtype) if np.issubdtype(leaf.dtype, np.floating) else leaf)

    return jax.tree.map(cast, data)


def load(rows: Rows, clients: np.ndarray, capacity: int, dtype: DTypeLike) -> ClientData:
    """The named clients' padded rows on the device."""
    if is_mapped(rows):
        rows, clients = read_clients(rows, clients), np.arange(len(clients))
    return to_device(padded(rows, clients, capacity), dtype)


def padded(rows: Rows, clients: np.ndarray, capacity: int) -> ClientData:
    """The named clients' rows, padded; for a device with memory of its own as they lie, where nothing is to be padded.

    A CPU would share that memory with whoever made the rows, and may change them.
    """
    everyone = np.array_equal(clients, np.arange(rows.clients)) and rows.weights is None
    if jax.default_backend() == "cpu" or not everyone or (rows.counts != capacity).any():
        return rows.pad(clients, capacity)
    inputs, targets = (part.reshape(rows.clients, capacity, *part.shape[1:]) for part in (rows.inputs, rows.targets))
    return ClientData(inputs, targets, rows.counts.astype(np.int32), None)


class Scored(Protocol):
    """Anything with rows to score: a federation, or what a site has of one."""

    @property
    def validation(self) -> Rows:
        """Rows that choose."""

    @property
    def test(self) -> Rows:
        """Rows that judge."""


def held_capacity(parts: Scored) -> int:
    """One for validation and test rows, so that one compiled program evaluates both; a masked row where is none."""
    return max(1, *(int(rows.counts.max(initial=0)) for rows in (parts.validation, parts.test)))


def load_held(parts: Scored, clients: np.ndarray, dtype: DTypeLike) -> dict[str, ClientData]:
    """The named clients' validation and test rows on the device."""
    capacity = held_capacity(parts)
    return {split: to_device(getattr(parts, split).pad(clients, capacity), dtype) for split in SPLITS}


class Gathered(NamedTuple):
    """What a block of rounds starts from."""

    states: Tree  # of the clients at hand, with a lane axis in front
    data: ClientData  # their rows
    places: np.ndarray | None  # where the block's members stand among them; None: all clients, in order
    members: np.ndarray | None = None  # the numbers of the clients at hand; None: all clients


def unprepared(algorithm: Algorithm, clients: np.ndarray, states: Tree) -> int | None:
    """The first of the clients whose preparation failed, in any lane."""
    objective = algorithm.objective
    if not isinstance(objective, Prepares):
        return None
    failed = to_host(objective.unprepared(states.prepared))
    numbers = clients[failed.reshape(-1, len(clients)).any(axis=0)]
    return int(numbers[0]) if numbers.size else None


class InMemory:
    """Everything on the device, or over several; the states are those of the run's `State`.

    What its methods take and return, those of `OnDisk` do too; states have a lane axis in front.
    """

    def __init__(self, rows: Rows, dtype: DTypeLike, shards: Shards | None = None):
        self.shards = shards
        self.capacity = int(rows.counts.max(initial=1))
        self.numbers = np.arange(rows.clients) if shards is None else shards.numbers

        read = functools.partial(load, rows, capacity=self.capacity, dtype=dtype)
        self.data = read(self.numbers) if shards is None else shards.load(read)
        self._some: ClientData | None = None  # the rows of those that records score, where they are not all

    def start(self, algorithm: Algorithm, roots: Key) -> tuple[Tree, Tally, int | None]:
        """(initial states, their cost by lane and client or part, the first client whose preparation failed)."""
        clients = self.numbers.astype(np.int32)
        states, tally = init_lanes(algorithm, roots, clients, self.data)
        if self.shards is not None:
            states, tally = self.shards.lay(states, axis=1), self.shards.cut(tally, axis=1)
        return states, tally, unprepared(algorithm, self.numbers, states)

    def gather(self, states: Tree, members: np.ndarray | None) -> Gathered:
        """States and rows of a block's members (lanes, rounds, cohort), None: all clients. Here it is always all."""
        return Gathered(states, self.data, members)

    def scatter(self, gathered: Gathered, states: Tree, reached: int) -> Tree:
        """Keep what a block that ended with round `reached` made of the states gathered; returns all of them."""
        return states

    def parts(self, states: Tree, only: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, Tree, ClientData]]:
        """(client numbers, states, rows) of all clients, or of some, in parts that fit in memory: here in one."""
        states = states if self.shards is None else self.shards.lay(states, axis=1)
        if only is None:
            yield self.numbers, states, self.data
            return
        chosen = pick if self.shards is None else self.shards.pick
        numbers = only if self.shards is None else only[self.shards._replace(clients=len(only)).numbers]
        if self._some is None:  # a run always asks for the same: their rows are gathered once
            self._some = chosen(self.data, numbers, axis=0)
        yield numbers, chosen(states, numbers, axis=1), self._some

    def stands_at(self, reached: int) -> bool:
        """Whether the states kept are those after round `reached`: here a `State` holds its own."""
        return True

    def mark(self, reached: int) -> None:
        """The states kept are those after round `reached`."""
