# SPDX-License-Identifier: Apache-2.0
"""Bytes on the wire, read off the shapes and dtypes of what crosses it; nothing is computed.

Works on arrays, on tracers and on what `jax.eval_shape` returns. A `PerClient` value counts one row: each
client is sent its own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core.addressing import PerClient, is_per_client
from idiolect.core.checks import RequestError
from idiolect.core.statistics import Path
from idiolect.core.tree import Tree


class Leaf(NamedTuple):
    """One array that one client sends or is sent."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    addressed: bool = False  # a row of a PerClient value: this client's own


class Wire(NamedTuple):
    """What one client is sent and sends in one round, leaf by leaf."""

    down: tuple[Leaf, ...]
    up: tuple[Leaf, ...]
    warnings: tuple[str, ...]

    @property
    def download_bytes(self) -> int:
        """Bytes one client is sent."""
        return sum(leaf.bytes for leaf in self.down)

    @property
    def upload_bytes(self) -> int:
        """Bytes one client sends."""
        return sum(leaf.bytes for leaf in self.up)

    def to_dict(self) -> dict[str, object]:
        """The table as plain values, for JSON."""
        down, up = ([leaf._asdict() | {"shape": list(leaf.shape)} for leaf in way] for way in (self.down, self.up))
        sums = {"download_bytes": self.download_bytes, "upload_bytes": self.upload_bytes}
        return {"down": down, "up": up, **sums, "warnings": list(self.warnings)}


def leaves_of(tree: Tree) -> tuple[Leaf, ...]:
    """Every array of `tree` as one client sees it: path, shape, dtype, bytes."""
    found = []
    for path, node in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_per_client):
        addressed = isinstance(node, PerClient)
        inside = jax.tree_util.tree_leaves_with_path(node.values if addressed else node)
        found += [_leaf(path + below, values, addressed) for below, values in inside]
    return tuple(found)


def bytes_of(tree: Tree) -> int:
    """Bytes of `tree` as one client sends or is sent it."""
    return sum(leaf.bytes for leaf in leaves_of(tree))


def model_units(tree: Tree, model: Tree) -> float:
    """Bytes of `tree` over bytes of one full `model` (1 u); scalars are ignored in both."""
    unit, own = (sum(leaf.bytes for leaf in leaves_of(one) if leaf.shape) for one in (model, tree))
    if unit == 0:
        raise RequestError(
            "model_units needs a model with at least one array that is not a scalar, got none. "
            "Count bytes with bytes_of instead."
        )
    return own / unit


def wire(broadcast: Tree, upload: Tree) -> Wire:
    """The table of both directions for one client, with a warning for personal parameters that leave it."""
    up = leaves_of(upload)
    # by the name of the field: a type cannot say what is private
    leaving = [leaf for leaf in up if "personal" in leaf.path.split(".")]
    warnings: tuple[str, ...] = ()
    if leaving:
        names = ", ".join(leaf.path for leaf in leaving)
        leaving_bytes = sum(leaf.bytes for leaf in leaving)
        warnings = (f"Warning: personal parameters leave the client: {names} ({leaving_bytes} bytes per upload).",)
    return Wire(leaves_of(broadcast), up, warnings)


def _leaf(path: Path, value: Tree, addressed: bool) -> Leaf:
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape, dtype = tuple(value.shape), value.dtype
    elif isinstance(value, bool | int | float | complex):
        shape, dtype = (), jnp.result_type(value)  # a Python number is sent as the array it becomes
    else:
        raise RequestError(f"Only arrays and numbers can be sent, got {type(value).__name__} at {name or 'the top'}.")
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise RequestError(
            f"Random keys are never sent, got one at {name or 'the top'}. "
            "Leave it out: both sides derive the same key from seed, round and client."
        )
    if addressed:
        if not shape:
            raise RequestError(f"PerClient.values needs a leading client axis, got a scalar at {name or 'the top'}.")
        shape = shape[1:]
    return Leaf(name, shape, str(dtype), math.prod(shape) * dtype.itemsize, addressed)
