# SPDX-License-Identifier: Apache-2.0
"""What a compiled program found, as one array: one transfer brings it to the host, where a dozen would wait in turn."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.data import Array
from idiolect.core.tree import Tree
from idiolect.engines.shard import to_host


@functools.partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["structure", "kinds"])
@dataclasses.dataclass(frozen=True, eq=False)
class Packed:
    """The leaves of a tree, one after another."""

    values: Array
    structure: Any
    kinds: tuple[tuple[tuple[int, ...], np.dtype], ...]  # shape and type of each leaf

    def begin_transfer(self) -> None:
        """Have the values copied to the host once they are there; nobody waits."""
        self.values.copy_to_host_async()

    def open(self) -> Tree:
        """The tree, on the host."""
        ends = np.cumsum([math.prod(shape) for shape, _ in self.kinds])
        parts = zip(np.split(to_host(self.values), ends[:-1]), self.kinds)
        return jax.tree.unflatten(self.structure, [part.reshape(shape).astype(kind) for part, (shape, kind) in parts])


def pack(found: Tree) -> Packed:
    """A tree of whole numbers and flags, or of floating numbers, as one array of the widest type; inside a program."""
    leaves, structure = jax.tree.flatten(found)
    widest = max((leaf.dtype for leaf in leaves), key=lambda kind: kind.itemsize)
    values = jnp.concatenate([leaf.astype(widest).ravel() for leaf in leaves])
    return Packed(values, structure, tuple((leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves))
