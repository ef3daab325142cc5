# SPDX-License-Identifier: Apache-2.0
"""Where client rows and client states are kept: on the device, or on disk with only a block's clients on the device."""

from __future__ import annotations

import abc
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key
from idiolect.core.objective import Prepares
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree
from idiolect.data.store import RecordFile
from idiolect.engines.shard import Shards, pick, to_host
from idiolect.engines.start import init_clients, init_lanes

# Mapped pages count as this process's memory, and reading one maps its neighbours too: a few hundred kB per client.
_GIVE_BACK = getattr(mmap, "MADV_DONTNEED", None)  # Windows has no such advice
_PIECE = 64  # clients read before their pages are given back


def to_device(data: ClientData, dtype: DTypeLike) -> ClientData:
    """Padded rows as device arrays, floating ones in the run's precision."""

    def cast(leaf: np.ndarray) -> jax.Array:
        # on the host: on the device, each shape would need a program of its own
        return jax.device_put(np.asarray(leaf, dtype) if np.issubdtype(leaf.dtype, np.floating) else leaf)

    return jax.tree.map(cast, data)


def load(rows: Rows, clients: np.ndarray, capacity: int, dtype: DTypeLike) -> ClientData:
    """The named clients' padded rows on the device. Pages of mapped files that were read for them are given back."""
    maps: list[object] = [
        array.base
        for array in (rows.inputs, rows.targets, rows.weights)
        if isinstance(array, np.memmap) and array.mode == "r"
    ]
    whole = [base for base in maps if isinstance(base, mmap.mmap)]
    if not whole or _GIVE_BACK is None:
        return to_device(rows.pad(clients, capacity), dtype)
    padded = []
    for first in range(0, len(clients), _PIECE):
        padded.append(rows.pad(clients[first : first + _PIECE], capacity))
        for base in whole:
            # the pages stay in the cache of the system, which is not this process's memory: reading them again is cheap
            base.madvise(_GIVE_BACK)
    return to_device(jax.tree.map(lambda *pieces: np.concatenate(pieces), *padded), dtype)


class Gathered(NamedTuple):
    """What a block of rounds starts from."""

    states: Tree  # of the clients at hand, with a lane axis in front
    data: ClientData  # their rows
    places: np.ndarray | None  # where the block's members stand among them; None: all clients, in order
    members: np.ndarray | None = None  # the numbers of the clients at hand; None: all clients


class Population(abc.ABC):
    """Rows of all clients, and where their states are kept; states have a lane axis in front."""

    rows: Rows
    capacity: int

    @abc.abstractmethod
    def start(self, algorithm: Algorithm, roots: Key) -> tuple[Tree, Tally, int | None]:
        """(initial states, their cost by lane and client, the first client whose preparation failed)."""

    @abc.abstractmethod
    def gather(self, states: Tree, members: np.ndarray | None) -> Gathered:
        """States and rows of a block's members (lanes, rounds, cohort); None: all clients."""

    @abc.abstractmethod
    def scatter(self, gathered: Gathered, states: Tree, reached: int) -> Tree:
        """Keep what a block that ended with round `reached` made of the states gathered; returns all of them."""

    @abc.abstractmethod
    def parts(self, states: Tree, only: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, Tree, ClientData]]:
        """(client numbers, states, rows) of all clients, or of some, in parts that fit in memory."""

    def stands_at(self, reached: int) -> bool:
        """Whether the states kept are those after round `reached`; in memory, a `State` holds its own."""
        return True

    def mark(self, reached: int) -> None:  # noqa: B027
        """The states kept are those after round `reached`."""


def unprepared(algorithm: Algorithm, clients: np.ndarray, states: Tree) -> int | None:
    """The first of the clients whose preparation failed, in any lane."""
    objective = algorithm.objective
    if not isinstance(objective, Prepares):
        return None
    failed = to_host(objective.unprepared(states.prepared))
    numbers = clients[failed.reshape(-1, len(clients)).any(axis=0)]
    return int(numbers[0]) if numbers.size else None


class InMemory(Population):
    """Everything on the device, or over several; the states are those of the run's `State`."""

    def __init__(self, rows: Rows, dtype: DTypeLike, shards: Shards | None = None):
        self.rows, self.shards = rows, shards
        self.capacity = max(int(rows.counts.max(initial=1)), 1)
        self.numbers = np.arange(rows.clients) if shards is None else shards.numbers

        def read(clients: np.ndarray) -> ClientData:
            return to_device(rows.pad(clients, self.capacity), dtype)

        self.data = read(self.numbers) if shards is None else shards.load(read)
        self._some: ClientData | None = None  # the rows of those that records score, where they are not all

    def start(self, algorithm: Algorithm, roots: Key) -> tuple[Tree, Tally, int | None]:
        """All clients of all lanes at once."""
        clients = self.numbers.astype(np.int32)
        states, tally = init_lanes(algorithm, roots, clients, self.data)
        if self.shards is not None:
            states, tally = self.shards.lay(states, axis=1), self.shards.cut(tally, axis=1)
        return states, tally, unprepared(algorithm, self.numbers, states)

    def gather(self, states: Tree, members: np.ndarray | None) -> Gathered:
        """All of it: a member's place is its number."""
        return Gathered(states, self.data, members)

    def scatter(self, gathered: Gathered, states: Tree, reached: int) -> Tree:
        """They are all clients' already."""
        return states

    def parts(self, states: Tree, only: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, Tree, ClientData]]:
        """One part."""
        states = states if self.shards is None else self.shards.lay(states, axis=1)
        if only is None:
            yield self.numbers, states, self.data
            return
        numbers = only if self.shards is None else only[self.shards.some(len(only)).numbers]
        if self._some is None:  # a run always asks for the same: their rows are gathered once
            self._some = self._pick(self.data, numbers, 0)
        yield numbers, self._pick(states, numbers, 1), self._some

    def _pick(self, rows: Tree, numbers: np.ndarray, axis: int) -> Tree:
        return pick(rows, numbers, axis=axis) if self.shards is None else self.shards.pick(rows, numbers, axis)


class OnDisk(Population):
    """Rows memory-mapped and states in a record file; a block sees only its distinct clients. One lane only."""

    part = 512  # clients per part: bounds memory in start and evaluation

    def __init__(self, rows: Rows, dtype: DTypeLike, folder: Path):
        self.rows, self._dtype, self._folder = rows, dtype, folder
        self.capacity = max(int(rows.counts.max(initial=1)), 1)
        self.file: RecordFile | None = None
        self._structure = jax.tree.structure(())
        self._reached = -1  # the round after which the file stands; -1: it is being written

    def start(self, algorithm: Algorithm, roots: Key) -> tuple[None, Tally, int | None]:
        """Write every client's initial state, part by part."""
        own, root = tree.take((algorithm, roots), 0)
        costs, lost = [], None
        for members in self._split():
            states, tally = init_clients(own, root, jnp.asarray(members, jnp.int32), self._data(members))
            lost = unprepared(own, members, states) if lost is None else lost
            leaves, self._structure = jax.tree.flatten(states)
            if leaves and self.file is None:
                shapes = [(leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves]
                self._folder.mkdir(parents=True, exist_ok=True)
                self.file = RecordFile(self._folder / "client_states.bin", shapes, self.rows.clients)
            if self.file is not None:
                self.file.write(members, leaves)
            costs.append(jax.tree.map(np.asarray, tally))
        self._reached = 0
        return None, jax.tree.map(lambda *counts: np.concatenate(counts)[None], *costs), lost

    def gather(self, states: None, members: np.ndarray | None) -> Gathered:
        """The distinct members' rows and states, padded to a fixed number so that no block compiles again."""
        if members is None:
            members = np.arange(self.rows.clients)[None, None]
        distinct, places = np.unique(members, return_inverse=True)
        # `resize` repeats clients to fill up; the copies are never written back, so that no client has two states
        padded = np.resize(distinct, min(members.size, self.rows.clients))
        places = places.reshape(members.shape).astype(np.int32)
        return Gathered(self._states(padded), self._data(padded), places, distinct)

    def scatter(self, gathered: Gathered, states: Tree, reached: int) -> None:
        """Write the distinct members back."""
        self._reached = -1
        # marked as broken while it is written: a run that is killed here must not go on from half a block
        if self.file is not None and gathered.members is not None:
            kept = [np.asarray(leaf[0, : len(gathered.members)]) for leaf in jax.tree.leaves(states)]
            self.file.write(gathered.members, kept)
        self.mark(reached)

    def parts(self, states: None, only: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, Tree, ClientData]]:
        """Clients in order, `part` at a time."""
        for members in self._split(only):
            yield members, self._states(members), self._data(members)

    def stands_at(self, reached: int) -> bool:
        """Between a block and the record that follows it, the file is ahead of the state."""
        return self._reached == reached

    def mark(self, reached: int) -> None:
        """The file stands there now."""
        self._reached = reached

    def _split(self, only: np.ndarray | None = None) -> list[np.ndarray]:
        everyone = np.arange(self.rows.clients) if only is None else only
        return np.split(everyone, range(self.part, len(everyone), self.part))

    def _states(self, members: np.ndarray) -> Tree:
        leaves = [] if self.file is None else [jnp.asarray(leaf[None]) for leaf in self.file.read(members)]
        return jax.tree.unflatten(self._structure, leaves)

    def _data(self, members: np.ndarray) -> ClientData:
        return load(self.rows, members, self.capacity, self._dtype)
