# SPDX-License-Identifier: Apache-2.0
"""`PerClient`: a value with one row per client, of which client i only ever sees row i."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PerClient:
    """Row i belongs to client i: an addressed leaf of a Broadcast, or a setting such as alpha_i."""

    values: Any  # a pytree whose leaves all have a leading axis of length M


def is_per_client(node: Any) -> bool:
    """Whether `node` is an addressed value (for use as `is_leaf`)."""
    return isinstance(node, PerClient)


def _map_addressed(addressed: Callable[[Any], Any], common: Callable[[Any], Any], tree: Any) -> Any:
    def one(node: Any) -> Any:
        return jax.tree.map(addressed, node.values) if is_per_client(node) else common(node)

    return jax.tree.map(one, tree, is_leaf=is_per_client)


def address(tree: Any, clients: Any) -> Any:
    """`tree` as the named client (or each of the named clients) sees it: addressed values become their rows."""
    return _map_addressed(lambda values: values[clients], lambda leaf: leaf, tree)


def axes(tree: Any) -> Any:
    """`in_axes` for a `vmap` over `address(tree, clients)`: rows are mapped, everything else stays unbatched."""
    return _map_addressed(lambda values: 0, lambda leaf: None, tree)
