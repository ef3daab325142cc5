# SPDX-License-Identifier: Apache-2.0
"""Rows and states of more clients than memory holds, on disk; reading and writing hidden behind computing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import Key
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree
from idiolect.data.store import RecordFile
from idiolect.engines.population import Gathered, load, unprepared
from idiolect.engines.start import init_clients

T = TypeVar("T")


class _Kept(NamedTuple):
    """What the newest block left, in memory as well: the next one may need it before it is on disk."""

    clients: np.ndarray  # ascending
    leaves: list[np.ndarray]  # their states


class _Found(NamedTuple):
    """A block's clients as the disk has them, but for the states of those that were being computed."""

    members: np.ndarray  # of the block: (lanes, rounds, cohort)
    before: np.ndarray  # the clients of the block before, which was being computed
    clients: np.ndarray  # the distinct ones, ascending
    leaves: list[np.ndarray]  # their states; of the others not yet
    others: np.ndarray  # who of them is in the block before
    data: ClientData  # with some clients again, up to the block's fixed number


class OnDisk:
    """Rows memory-mapped and states in a record file; a block sees only its distinct clients. One lane only.

    One thread does all reading and writing, in the order it is asked for, so that what is read is what was written. It
    works while a block computes: on what the block before it left, and on what the one after it needs.
    """

    part = 512  # clients per part: bounds memory in start and evaluation
    ahead = True  # whether the next block is read while one computes; the same bits either way

    def __init__(self, rows: Rows, dtype: DTypeLike, folder: Path):
        self.rows, self._dtype, self._folder = rows, dtype, folder
        self.capacity = int(rows.counts.max(initial=1))
        self._file: RecordFile | None = None
        self._structure = jax.tree.structure(())
        self._reached = -1  # the round after which the file stands; -1: it is being written
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="client-states")
        self._failed: OSError | None = None  # why the file is no longer whole
        self._kept: _Kept | None = None
        self._ahead: Future[_Found] | None = None  # of the block that comes next, while the one before it computes

    @property
    def file(self) -> RecordFile | None:
        """The clients' states, all written; None where clients keep nothing."""
        self._settle()
        return self._file

    def start(self, algorithm: Algorithm, roots: Key) -> tuple[None, Tally, int | None]:
        """Write every client's initial state, part by part; their cost is that of parts."""
        own, root = tree.take((algorithm, roots), 0)
        costs, lost = [], None
        for members, data in self._each_part(self._data):
            states, tally = init_clients(own, root, jnp.asarray(members, jnp.int32), data)
            lost = unprepared(own, members, states) if lost is None else lost
            leaves, self._structure = jax.tree.flatten(states)
            if leaves and self._file is None:
                shapes = [(leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves]
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = RecordFile(self._folder / "client_states.bin", shapes, self.rows.clients)
            self._write(members, [np.asarray(leaf) for leaf in leaves])
            costs.append(jax.tree.map(lambda count: np.sum(np.asarray(count, np.int64), keepdims=True), tally))
        self.mark(0)
        return None, jax.tree.map(lambda *counts: np.concatenate(counts)[None], *costs), lost

    def gather(self, states: None, members: np.ndarray | None) -> Gathered:
        """The distinct members' rows and states, padded to a fixed number so that no block compiles again."""
        if members is None:
            members = np.arange(self.rows.clients)[None, None]
        ahead, kept, self._ahead = self._ahead, self._kept, None
        if ahead is not None and kept is not None:
            found = ahead.result()
            # only what was read behind the block that was kept last: a block may be computed and not be kept
            if found.before is kept.clients and np.array_equal(found.members, members):
                return self._hand_out(found, kept)
        return self._hand_out(self._later(self._find, members, np.zeros(0, np.int64)).result(), None)

    def look_ahead(self, gathered: Gathered, members: np.ndarray) -> None:
        """Read what the next block, of these members, needs, while the block of `gathered` computes."""
        if self.ahead and gathered.members is not None:
            self._ahead = self._later(self._find, members, gathered.members)

    def scatter(self, gathered: Gathered, states: Tree, reached: int) -> None:
        """Keep the distinct members' states, and have them written."""
        assert gathered.members is not None
        # cut on the host: on the device each number of distinct members would be a program of its own
        kept = [np.asarray(leaf)[0, : len(gathered.members)] for leaf in jax.tree.leaves(states)]
        self._reached = -1  # an interrupt right here would leave it open which round the file stands at
        self._write(gathered.members, kept)
        self._kept, self._reached = _Kept(gathered.members, kept), reached

    def parts(self, states: None, only: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, Tree, ClientData]]:
        """Clients in order, `part` at a time."""
        for members, (leaves, data) in self._each_part(lambda some: (self._read(some), self._data(some)), only):
            yield members, self._on_device(leaves), data

    def stands_at(self, reached: int) -> bool:
        """Between a block and the record that follows it, the file is ahead of the state."""
        self._settle()
        return self._reached == reached

    def mark(self, reached: int) -> None:
        """The file stands there now, whatever it was before."""
        self._settle()
        self._kept = self._ahead = None
        self._reached = reached

    def _later(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """`work`, done by the thread after all that it was given before."""
        wide = np.dtype(self._dtype) == np.float64

        def run() -> T:
            with jax.enable_x64(wide):  # each thread has its own: the run's is not seen here
                return work(*arguments)

        return self._thread.submit(run)

    def _write(self, clients: np.ndarray, leaves: list[np.ndarray]) -> None:
        file = self._file
        if file is None:
            return

        def write() -> None:
            try:
                file.write(clients, leaves)
            except OSError as error:
                self._failed = error

        self._later(write)

    def _settle(self) -> None:
        """Wait until all is written, or raise why it could not be."""
        self._later(self._check).result()

    def _check(self) -> None:
        # nobody waits for a write: whatever is done with the file after one that failed says so
        if self._failed is not None:
            raise self._failed

    def _find(self, members: np.ndarray, before: np.ndarray) -> _Found:
        clients = np.unique(members)
        others = np.isin(clients, before, assume_unique=True)
        leaves = self._read(clients[~others])
        if others.any():
            whole = [np.empty((len(clients), *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
            for place, leaf in zip(whole, leaves):
                place[~others] = leaf
            leaves = whole
        return _Found(members, before, clients, leaves, others, self._data(np.resize(clients, self._width(members))))

    def _hand_out(self, found: _Found, kept: _Kept | None) -> Gathered:
        clients, members = found.clients, found.members
        if kept is not None and found.others.any():
            # whoever is in both blocks goes on from where the first one left them
            rows = np.searchsorted(kept.clients, clients[found.others])
            for place, leaf in zip(found.leaves, kept.leaves):
                place[found.others] = leaf[rows]
        # `resize` repeats clients to fill up; the copies are never written back, so that no client has two states
        again = np.resize(np.arange(len(clients)), self._width(members))
        states = self._on_device([leaf[again] if len(again) > len(clients) else leaf for leaf in found.leaves])
        return Gathered(states, found.data, np.searchsorted(clients, members).astype(np.int32), clients)

    def _width(self, members: np.ndarray) -> int:
        """Clients that any block of this shape can have."""
        return min(members.size, self.rows.clients)

    def _each_part(
        self, read: Callable[[np.ndarray], T], only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, T]]:
        """Clients in order, `part` at a time, with what is read of them; the next part is read while one is used."""
        everyone = np.arange(self.rows.clients) if only is None else only
        split = np.split(everyone, range(self.part, len(everyone), self.part))
        coming = self._later(read, split[0])
        for members, following in zip(split, [*split[1:], None]):
            found = coming.result()
            if following is not None:
                coming = self._later(read, following)
            yield members, found

    def _read(self, clients: np.ndarray) -> list[np.ndarray]:
        self._check()
        return [] if self._file is None else self._file.read(clients)

    def _on_device(self, leaves: list[np.ndarray]) -> Tree:
        return jax.tree.unflatten(self._structure, [jnp.asarray(leaf[None]) for leaf in leaves])

    def _data(self, clients: np.ndarray) -> ClientData:
        return load(self.rows, clients, self.capacity, self._dtype)
