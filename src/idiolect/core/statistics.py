# SPDX-License-Identifier: Apache-2.0
"""Running statistics: parameters that no gradient moves, such as the running moments of batch normalisation.

They are known by name: the last part of their path starts with `running_`. A pass in training says what they become,
by dotted path. That change takes the place of their gradient, old minus new; `tree.descend` takes it whole, whatever
the step size. So every method that walks by `descend` keeps them right; messages, checkpoints and exports hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.core.checks import RequestError

PREFIX = "running_"

Params = Any
Path = tuple[object, ...]


def name_of(path: Path) -> str:
    """A leaf's dotted path."""
    return ".".join(str(getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", "")))) for entry in path)


def is_running(path: Path) -> bool:
    """Whether the leaf at `path` is a running statistic; keys that are dotted paths count by their last part."""
    key = getattr(path[-1], "key", None) if path else None
    return isinstance(key, str) and key.rpartition(".")[2].startswith(PREFIX)


def has_running(params: Params) -> bool:
    """Whether any leaf is a running statistic."""
    return any(is_running(path) for path, _ in jax.tree_util.tree_leaves_with_path(params))


def trained(params: Params) -> Params:
    """`params` with zeros for running statistics: what a norm, an inner product or an optimizer may see."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if is_running(path) else leaf, params
    )


def replace_running(params: Params, source: Params) -> Params:
    """`params` with the running statistics of `source`."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf, other: other if is_running(path) else leaf, params, source
    )


def moving(gradient: Params, block: Params, seen: Mapping[str, jax.Array]) -> Params:
    """`gradient` of a block with the change of its running statistics, old minus new; `seen` is what a pass said."""

    def one(path: Path, leaf: jax.Array, old: jax.Array) -> jax.Array:
        if not is_running(path):
            return leaf
        name = name_of(path)
        if name not in seen or jnp.shape(seen[name]) != jnp.shape(old):
            raise RequestError(
                f"A parameter named {PREFIX}... is a running statistic, which training sets, but no pass says what "
                f"{name!r} becomes; give it another name, or let it stay whole where it is sliced."
            )
        # as if it were a gradient of step 1: one `descend` then moves parameters and statistics, in every algorithm
        # that walks by it
        return old - seen[name].astype(old.dtype)

    return jax.tree_util.tree_map_with_path(one, gradient, block)
