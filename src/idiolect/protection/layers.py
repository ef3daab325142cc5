# SPDX-License-Identifier: Apache-2.0
"""Uploads of some layers: which arrays of a change are sent at all."""

from __future__ import annotations

import fnmatch

import jax
import jax.numpy as jnp

from idiolect.core.checks import RequestError, nearest
from idiolect.core.statistics import Path, name_of
from idiolect.core.tree import Tree
from idiolect.protection.choices import Compression


def keep_sent(codec: Compression | None, moves: Tree) -> Tree:
    """The changes with zeros for arrays of which nothing is sent; RequestError where a name means none of them."""
    if codec is None or not codec.only:
        return moves
    names = [_layer(path) for path, _ in jax.tree_util.tree_leaves_with_path(moves)]
    for wanted in codec.only:
        if not any(_means(wanted, name) for name in names):
            known = {".".join(name[:depth]) for name in names for depth in range(1, len(name) + 1)}
            raise RequestError(
                f"compression.only has {wanted!r}, which is no layer and no pattern of one.{nearest(wanted, known)}"
            )
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf if is_sent(codec, path) else jnp.zeros_like(leaf), moves
    )


def is_sent(codec: Compression, path: Path) -> bool:
    """Whether anything is sent of the array at a path that begins with the field of the Upload."""
    return not codec.only or any(_means(wanted, _layer(path)) for wanted in codec.only)


def _layer(path: Path) -> list[str]:
    """The parts of a parameter's name, without that field."""
    return name_of(path[1:]).split(".")


def _means(wanted: str, name: list[str]) -> bool:
    """Whether a name or a pattern means a parameter, or a layer that it is in."""
    return any(fnmatch.fnmatchcase(".".join(name[:depth]), wanted) for depth in range(1, len(name) + 1))
