# SPDX-License-Identifier: Apache-2.0
"""A client's rows in two random parts, disjoint or both of them whole, by their numbers: no row is copied."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.core import batches, tree
from idiolect.core.types import Batch, ClientData, Key


class Half(NamedTuple):
    """Row numbers of one part; the first `count` are real."""

    rows: Any  # (capacity,)
    count: Any  # ()

    def as_data(self) -> ClientData:
        """The part as data whose rows are their own numbers, for drawing batches."""
        return ClientData(self.rows, self.rows, self.count)

    def take(self, numbers: Batch, data: ClientData) -> Batch:
        """The rows of `data` that a batch of numbers names; never a whole pass over the client's rows."""
        inputs, targets, weights = tree.take(data.parts, numbers.inputs)
        return Batch(inputs, targets, numbers.mask, weights)


def first_part(rows: Any, percent: int) -> Any:
    """Rows of the first part: `percent` of them, rounded down. A client with one row has none."""
    return rows * percent // 100


def halves(key: Key, data: ClientData, percent: int) -> tuple[Half, Half]:
    """Two disjoint parts of the client's rows, in random order, the first with `percent` of them."""
    order = batches.draw_orders(key, 1, data)[0]
    count = first_part(data.count, percent)
    capacity = first_part(data.capacity, percent)  # neither part of a smaller client is larger
    rest = count + jnp.arange(data.capacity - capacity, dtype=jnp.int32)
    others = order[jnp.minimum(rest, data.capacity - 1)]
    # a part without room for a row would be an empty array, which cannot be indexed
    return Half(order[: max(capacity, 1)], count), Half(others, data.count - count)


def whole(data: ClientData) -> Half:
    """All rows of the client as one part."""
    return Half(jnp.arange(data.capacity, dtype=jnp.int32), data.count)
