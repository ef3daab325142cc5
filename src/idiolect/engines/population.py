# SPDX-License-Identifier: Apache-2.0
"""Where client rows and client states are kept: on the device, or on disk with only a block's clients on the device."""

from __future__ import annotations

import abc
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key
from idiolect.core.objective import Prepares
from idiolect.core.tally import Tally
from idiolect.data.store import RecordFile
from idiolect.engines.start import carry, init_clients

# Mapped pages count as this process's memory, and reading one maps its neighbours too: a few hundred kB per client.
_GIVE_BACK = getattr(mmap, "MADV_DONTNEED", None)  # Windows has no such advice
_PIECE = 64  # clients read before their pages are given back


def to_device(data: ClientData, dtype: Any) -> ClientData:
    """Padded rows as device arrays, floating ones in the run's precision."""

    def cast(leaf: np.ndarray) -> Any:
        return jnp.asarray(leaf, dtype if np.issubdtype(leaf.dtype, np.floating) else None)

    weights = None if data.weights is None else cast(data.weights)
    return ClientData(cast(data.inputs), cast(data.targets), jnp.asarray(data.count), weights)


def load(rows: Rows, clients: np.ndarray, capacity: int, dtype: Any) -> ClientData:
    """The named clients' padded rows on the device. Pages of mapped files that were read for them are given back."""
    maps: list[Any] = [
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
            base.madvise(_GIVE_BACK)
    return to_device(jax.tree.map(lambda *pieces: np.concatenate(pieces), *padded), dtype)


def sum_counts(tally: Tally) -> Tally:
    """Per-client counters (lanes in front, if any) added up on the host, where they cannot overflow."""
    return Tally(*(np.sum(np.asarray(count, np.int64), axis=-1) for count in tally))


class Population(abc.ABC):
    """Rows and states of all clients. `states` is what a block starts from and returns, for the clients it needs."""

    rows: Rows
    capacity: int
    unprepared: int | None = None  # the first client whose preparation failed

    def look_at_start(self, algorithm: Algorithm, clients: np.ndarray, states: Any) -> None:
        """Note a client whose preparation failed; with lanes, `states` carry a leading lane axis."""
        objective = algorithm.objective
        if isinstance(objective, Prepares) and self.unprepared is None:
            failed = np.asarray(objective.unprepared(states.prepared))
            numbers = clients[failed.reshape(-1, len(clients)).any(axis=0)]
            self.unprepared = int(numbers[0]) if numbers.size else None

    @abc.abstractmethod
    def gather(self, members: np.ndarray | None) -> tuple[Any, ClientData, np.ndarray | None]:
        """(states, rows, places of the members in them) for a block's clients; None: everybody."""

    @abc.abstractmethod
    def scatter(self, states: Any) -> None:
        """Keep what a block returned."""

    @abc.abstractmethod
    def parts(self) -> Iterator[tuple[np.ndarray, Any, ClientData]]:
        """(client numbers, states, rows) of all clients, in parts that fit in memory."""

    @abc.abstractmethod
    def leaves(self) -> list[Any]:
        """The states' leaves for a checkpoint (none where they are on disk)."""

    @abc.abstractmethod
    def restore(self, leaves: list[Any]) -> None:
        """Take the leaves of a checkpoint back."""


class InMemory(Population):
    """Everything on the device; with lanes, states carry a leading lane axis."""

    def __init__(self, rows: Rows, dtype: Any):
        self.rows = rows
        self.capacity = max(int(rows.counts.max(initial=1)), 1)
        self.data = to_device(rows.pad(np.arange(rows.clients), self.capacity), dtype)
        self.states: Any = ()

    def start(self, algorithm: Algorithm, roots: Key, lanes: bool) -> Tally:
        """Initial states of every client (and lane); returns their cost, per lane."""
        clients = jnp.arange(self.rows.clients, dtype=jnp.int32)
        start = jax.vmap(init_clients, in_axes=(0, 0, None, None)) if lanes else init_clients
        self.states, tally = start(algorithm, roots, clients, self.data)
        self.look_at_start(algorithm, np.arange(self.rows.clients), self.states)
        return sum_counts(tally)

    def go_on(
        self, algorithm: Algorithm, earlier: Algorithm, roots: Key, server: Any, states: Any, lanes: bool
    ) -> tuple[Any, Tally]:
        """Take over the states of a run of `earlier`; returns the server to go on with and the cost, per lane."""
        clients = jnp.arange(self.rows.clients, dtype=jnp.int32)
        ready = jax.vmap(carry, in_axes=(0, 0, 0, None, 0, None)) if lanes else carry
        server, self.states, tally = ready((algorithm, earlier), roots, server, clients, states, self.data)
        self.look_at_start(algorithm, np.arange(self.rows.clients), self.states)
        return server, sum_counts(tally)

    def gather(self, members: np.ndarray | None) -> tuple[Any, ClientData, np.ndarray | None]:
        """All of it: a member's place is its number."""
        return self.states, self.data, members

    def scatter(self, states: Any) -> None:
        """Replace the table."""
        self.states = states

    def parts(self) -> Iterator[tuple[np.ndarray, Any, ClientData]]:
        """One part."""
        yield np.arange(self.rows.clients), self.states, self.data

    def leaves(self) -> list[Any]:
        """All states."""
        return jax.tree.leaves(self.states)

    def restore(self, leaves: list[Any]) -> None:
        """All states."""
        self.states = jax.tree.unflatten(jax.tree.structure(self.states), [jnp.asarray(leaf) for leaf in leaves])


class OnDisk(Population):
    """Rows memory-mapped and states in a record file; a block sees only its distinct clients. One lane only."""

    part = 512  # clients per part: bounds memory in start and evaluation

    def __init__(self, rows: Rows, dtype: Any, folder: Path):
        self.rows, self._dtype, self._folder = rows, dtype, folder
        self.capacity = max(int(rows.counts.max(initial=1)), 1)
        self.file: RecordFile | None = None
        self._structure: Any = jax.tree.structure(())
        self._members = np.zeros(0, np.int64)

    def start(self, algorithm: Algorithm, root: Key) -> Tally:
        """Write every client's initial state, part by part; returns the cost."""
        total = Tally()
        for members in self._split():
            data = self._data(members)
            states, tally = init_clients(algorithm, root, jnp.asarray(members, jnp.int32), data)
            self.look_at_start(algorithm, members, states)
            leaves, self._structure = jax.tree.flatten(states)
            if leaves and self.file is None:
                shapes = [(leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves]
                self._folder.mkdir(parents=True, exist_ok=True)
                self.file = RecordFile(self._folder / "client_states.bin", shapes, self.rows.clients)
            if self.file is not None:
                self.file.write(members, leaves)
            total = total.plus(jax.tree.map(lambda count: int(np.sum(count)), tally))
        return total

    def gather(self, members: np.ndarray | None) -> tuple[Any, ClientData, np.ndarray | None]:
        """The distinct members' rows and states, padded to a fixed number so that no block compiles again."""
        if members is None:
            members = np.arange(self.rows.clients)[None]
        self._members, places = np.unique(members, return_inverse=True)
        padded = np.resize(self._members, min(members.size, self.rows.clients))
        return self._states(padded), self._data(padded), places.reshape(members.shape).astype(np.int32)

    def scatter(self, states: Any) -> None:
        """Write the distinct members back."""
        if self.file is not None:
            kept = len(self._members)
            self.file.write(self._members, [np.asarray(leaf[:kept]) for leaf in jax.tree.leaves(states)])

    def parts(self) -> Iterator[tuple[np.ndarray, Any, ClientData]]:
        """Clients in order, `part` at a time."""
        for members in self._split():
            yield members, self._states(members), self._data(members)

    def leaves(self) -> list[Any]:
        """None: the record file is copied beside the checkpoint."""
        return []

    def restore(self, leaves: list[Any]) -> None:
        """Nothing: the record file is copied back."""

    def _split(self) -> list[np.ndarray]:
        everyone = np.arange(self.rows.clients)
        return np.split(everyone, range(self.part, len(everyone), self.part))

    def _states(self, members: np.ndarray) -> Any:
        leaves = [] if self.file is None else [jnp.asarray(leaf) for leaf in self.file.read(members)]
        return jax.tree.unflatten(self._structure, leaves)

    def _data(self, members: np.ndarray) -> ClientData:
        return load(self.rows, members, self.capacity, self._dtype)
