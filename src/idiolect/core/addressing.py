# SPDX-License-Identifier: Apache-2.0
"""`PerClient`: a value with one row per client, of which client i only ever sees row i."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
from jax.typing import ArrayLike

from idiolect.core.tree import Tree


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PerClient:
    """Row i belongs to client i: an addressed leaf of a Broadcast, or a setting such as alpha_i."""

    values: Tree  # a pytree whose leaves all have a leading axis of length M


def is_per_client(node: object) -> bool:
    """Whether `node` is an addressed value (for use as `is_leaf`)."""
    return isinstance(node, PerClient)


def _map_addressed(addressed: Callable[[Tree], Tree], common: Callable[[Tree], Tree], tree: Tree) -> Tree:
    def one(node: Tree) -> Tree:
        return jax.tree.map(addressed, node.values) if is_per_client(node) else common(node)

    return jax.tree.map(one, tree, is_leaf=is_per_client)


def address(tree: Tree, clients: ArrayLike) -> Tree:
    """`tree` as the named client (or each of the named clients) sees it: addressed values become their rows."""
    return _map_addressed(lambda values: values[clients], lambda leaf: leaf, tree)


def axes(tree: Tree) -> Tree:
    """`in_axes` for a `vmap` over `address(tree, clients)`: rows are mapped, everything else stays unbatched."""
    return _map_addressed(lambda values: 0, lambda leaf: None, tree)
