# SPDX-License-Identifier: Apache-2.0
"""What a client trains on: rows on the host, padded rows on the device, and one batch of them."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Array = Any  # a NumPy or JAX array, or a tracer of one
WEIGHTING = ("equal", "samples")  # FedAvg and Flow weigh clients by rows, the other papers equally


class Batch(NamedTuple):
    """Some rows of one client. Rows whose mask is 0 are padding and count for nothing; no mask: all rows are real."""

    inputs: Array  # (rows, ...)
    targets: Array  # (rows, ...)
    mask: Array | None = None  # (rows,)
    weights: Array | None = None  # (rows,) what a row's loss is multiplied with; none: every row counts 1

    def rows(self) -> Array:
        """Number of real rows: a plain integer where no mask is needed, so that costs stay out of compiled loops."""
        return self.targets.shape[0] if self.mask is None else jnp.sum(self.mask, dtype=jnp.int32)

    @property
    def passes(self) -> int:
        """Whole passes over the client's rows that this batch is."""
        return 0


class WholeBatch(Batch):
    """Every row of one client: a gradient on it is a full gradient, not that of some components."""

    __slots__ = ()

    @property
    def passes(self) -> int:
        """One pass over the client's rows."""
        return 1


class ClientData(NamedTuple):
    """All rows of one client, padded to a common capacity; the first `count` are real. Device form."""

    inputs: Array  # (capacity, ...)
    targets: Array  # (capacity, ...)
    count: Array  # ()
    weights: Array | None = None  # (capacity,) of mean 1 over the real rows; none: every row counts 1

    @property
    def parts(self) -> tuple[Array, Array, Array | None]:
        """What has an entry per row."""
        return self.inputs, self.targets, self.weights

    @property
    def capacity(self) -> int:
        """Rows including the padding."""
        return int(self.targets.shape[0])

    def batch(self) -> WholeBatch:
        """Every row, with the padding masked."""
        real = jnp.arange(self.capacity, dtype=jnp.int32) < self.count
        return WholeBatch(self.inputs, self.targets, real, self.weights)


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known of rows on disk without reading them."""

    checksums: dict[str, int]  # of the arrays, by field of `Rows`
    extent: tuple[float, ...]  # the lowest and the highest number of the inputs; () without rows


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of all clients, one after another; client m owns `offsets[m]:offsets[m + 1]`. Host form.

    The arrays may be memory-mapped: only the rows that are asked for are read.
    """

    inputs: np.ndarray  # (rows, ...)
    targets: np.ndarray  # (rows, ...)
    offsets: np.ndarray  # (clients + 1,), int64
    weights: np.ndarray | None = None  # (rows,), at least 0, as they were given; none: every row counts 1
    known: Known | None = None  # of these very arrays

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    @property
    def counts(self) -> np.ndarray:
        """Rows per client."""
        return np.diff(self.offsets)

    @property
    def extent(self) -> tuple[float, ...]:
        """The lowest and the highest number of the inputs; () without rows."""
        if self.known is not None:
            return self.known.extent
        return (float(self.inputs.min()), float(self.inputs.max())) if self.inputs.size else ()

    def digest(self, part: str) -> tuple[tuple[int, ...], int]:
        """Shape and checksum of the array of that name."""
        values: np.ndarray = getattr(self, part)
        if self.known is not None:
            return values.shape, self.known.checksums[part]
        return values.shape, zlib.crc32(np.ascontiguousarray(values).data)

    def to_known(self) -> Known:
        """What a look at these rows brings."""
        arrays = ("inputs", "targets", "offsets") + (() if self.weights is None else ("weights",))
        return Known({name: self.digest(name)[1] for name in arrays}, self.extent)

    def of(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """One client's inputs and targets, without padding."""
        start, stop = self.offsets[client], self.offsets[client + 1]
        return self.inputs[start:stop], self.targets[start:stop]

    def weights_of(self, client: int) -> np.ndarray | None:
        """One client's weights in float64, scaled to mean 1 over its rows; zeros where they sum to 0."""
        if self.weights is None:
            return None
        given = np.asarray(self.weights[self.offsets[client] : self.offsets[client + 1]], np.float64)
        given = given / (given.max(initial=0.0) or 1)  # a sum of huge weights would overflow
        total = given.sum()
        return given * (len(given) / total) if total else given

    def pad(self, clients: np.ndarray, capacity: int | None = None) -> ClientData:
        """The named clients' rows, stacked and padded with zeros to `capacity` (default: their largest count)."""
        # not `counts`: of a million clients it takes longer than reading the rows of some
        counts = (self.offsets[clients + 1] - self.offsets[clients]).astype(np.int32)
        if capacity is None:
            capacity = int(counts.max(initial=0))
        shapes = [(part, (len(clients), capacity, *part.shape[1:])) for part in (self.inputs, self.targets)]
        if len(clients) and (counts == capacity).all() and (np.diff(clients) == 1).all():
            # one after another and nothing to pad: copied at once
            whole = slice(self.offsets[clients[0]], self.offsets[clients[-1] + 1])
            inputs, targets = (np.array(part[whole]).reshape(shape) for part, shape in shapes)
        else:
            inputs, targets = (np.zeros(shape, part.dtype) for part, shape in shapes)
            for row, client in enumerate(clients):
                inputs[row, : counts[row]], targets[row, : counts[row]] = self.of(int(client))
        weights = None if self.weights is None else self._pad_weights(clients, counts, capacity)
        return ClientData(inputs, targets, counts, weights)

    def _pad_weights(self, clients: np.ndarray, counts: np.ndarray, capacity: int) -> np.ndarray:
        padded = np.zeros((len(clients), capacity))
        for row, client in enumerate(clients):
            padded[row, : counts[row]] = self.weights_of(int(client))
        return padded

    def select(self, clients: np.ndarray) -> Rows:
        """Only the named clients, in the order given."""
        take = [np.arange(self.offsets[c], self.offsets[c + 1]) for c in clients]
        index = np.concatenate(take) if take else np.zeros(0, np.int64)
        offsets = np.concatenate([[0], np.cumsum(self.counts[clients])]).astype(np.int64)
        return Rows(self.inputs[index], self.targets[index], offsets, take_weights(self.weights, index))


def take_weights(weights: np.ndarray | None, index: np.ndarray) -> np.ndarray | None:
    """The weights of some rows; none of rows that have none."""
    return None if weights is None else weights[index]


def join_rows(first: Rows, second: Rows) -> tuple[Rows, np.ndarray]:
    """Every client's rows of both, the first ones first, and where each row stood in the two laid end to end."""
    owner = np.concatenate([np.repeat(np.arange(rows.clients), rows.counts) for rows in (first, second)])
    order = np.argsort(owner, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(first.counts + second.counts)]).astype(np.int64)

    def both(part: str) -> np.ndarray:
        return np.concatenate([getattr(rows, part) for rows in (first, second)])[order]

    weights = None if first.weights is None or second.weights is None else both("weights")
    return Rows(both("inputs"), both("targets"), offsets, weights), order


def client_weight(weighting: str, data: ClientData) -> Array:
    """How much a client counts in the mean of uploads: 1, or its number of training rows; one of `WEIGHTING`."""
    return jnp.ones(()) if weighting == "equal" else jnp.asarray(data.count).astype(jnp.result_type(float))


def masked_mean(values: Array, mask: Array | None, weights: Array | None = None) -> Array:
    """Mean over the rows whose mask is set of `values`, times their weights if there are some; 0 when none is.

    It is divided by the number of rows, not by the sum of weights: so drawn batches are unbiased.
    """
    if weights is not None:
        values = values * weights.astype(values.dtype)
    if mask is None:
        return jnp.mean(values)
    real = mask.astype(values.dtype)
    return jnp.sum(values * real) / jnp.maximum(jnp.sum(real), 1)
