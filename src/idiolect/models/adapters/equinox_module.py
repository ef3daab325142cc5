# SPDX-License-Identifier: Apache-2.0
"""Equinox modules: pytrees already; their floating arrays are the parameters, by the names of their fields."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import equinox
import jax
from jax import Array

from idiolect.core.checks import RequestError
from idiolect.models.adapters.adapted import Adapted, Path, joined, look_up, nest
from idiolect.models.model import Params


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class EquinoxModel(Adapted):
    """An Equinox module, called row by row unless it takes batches."""

    make: Callable[[Array], Any]  # a module from a key
    fixed: Any  # everything but the parameters
    form: jax.tree_util.PyTreeDef  # tree structure of the parameters
    paths: tuple[Path, ...]
    per_row: bool
    takes_key: bool

    def init(self, key: Array) -> Params:
        """The module's own start."""
        arrays = equinox.filter(self.make(key), equinox.is_inexact_array)
        return nest(dict(zip(self.paths, jax.tree.leaves(arrays))))

    def apply(self, params: Params, inputs: Array) -> Array:
        """Outputs in inference mode."""
        module = equinox.nn.inference_mode(self._module(params))
        rows = self.shaped(inputs)
        return jax.vmap(module)(rows) if self.per_row else module(rows)

    def train(self, key: Array, params: Params, inputs: Array) -> Array:
        """Outputs as the module trains; every row has a key of its own."""
        module, rows = self._module(params), self.shaped(inputs)
        # without a key nothing may be random, as in prediction
        if key is None:
            return self.apply(params, inputs)
        if not self.takes_key:
            return jax.vmap(module)(rows) if self.per_row else module(rows)
        if not self.per_row:
            return module(rows, key=key)
        places = jax.numpy.arange(rows.shape[0], dtype=jax.numpy.int32)  # not split: no draw depends on the padding
        return jax.vmap(lambda row, place: module(row, key=jax.random.fold_in(key, place)))(rows, places)

    def _module(self, params: Params) -> Any:
        arrays = jax.tree.unflatten(self.form, [look_up(params, path) for path in self.paths])
        return equinox.combine(arrays, self.fixed)


def equinox_model(module: Any, input_shape: tuple[int, ...], vocabulary: int, per_row: bool) -> EquinoxModel:
    """`from_equinox`."""

    def make(key: Array) -> Any:
        return module if isinstance(module, equinox.Module) else module(key)

    first = make(jax.random.key(0)) if callable(module) else module
    if not isinstance(first, equinox.Module) or not callable(first):
        raise RequestError(f"from_equinox needs a module that can be called, or a function of a key, got {module!r}.")
    states = jax.tree.leaves(first, is_leaf=lambda leaf: isinstance(leaf, equinox.nn.StateIndex))
    if any(isinstance(leaf, equinox.nn.StateIndex) for leaf in states):
        raise RequestError(
            f"{type(first).__name__} keeps a state (BatchNorm), which counts padded rows; use GroupNorm or LayerNorm, "
            "or a network of idiolect with normalize = 'batch'."
        )
    # what training moves, and everything else: activations, sizes, whole numbers
    arrays, fixed = equinox.partition(first, equinox.is_inexact_array)
    leaves = jax.tree_util.tree_leaves_with_path(arrays)
    if not leaves:
        raise RequestError(f"{type(first).__name__} has no parameters; give a module with floating arrays.")
    paths = tuple(joined(path) for path, _ in leaves)
    takes_key = "key" in inspect.signature(type(first).__call__).parameters
    return EquinoxModel(
        tuple(input_shape), vocabulary, make, fixed, jax.tree.structure(arrays), paths, per_row, takes_key
    )
