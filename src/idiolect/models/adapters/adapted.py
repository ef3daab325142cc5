# SPDX-License-Identifier: Apache-2.0
"""What modules of other libraries have in common as models: one nested dictionary of named arrays, and its names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from idiolect.core.checks import RequestError
from idiolect.core.statistics import PREFIX, name_of
from idiolect.models.model import Model, Params

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Adapted(Model):
    """A module with the shape of its inputs; still abstract. Equal only to itself: modules need not be comparable."""

    input_shape: tuple[int, ...]
    vocabulary: int

    @property
    def input_width(self) -> int:
        """Numbers in an input, or tokens."""
        return self.vocabulary or math.prod(self.input_shape)

    @property
    def reads_tokens(self) -> bool:
        """Where there is a vocabulary."""
        return self.vocabulary > 0

    def __repr__(self) -> str:
        """What a resumed run is compared by, so no address may be in it: the kind, and every array's name and shape."""
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        arrays = [f"{name_of(path)}{leaf.shape}" for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)]
        return f"{type(self).__name__}({self.input_shape}, {self.vocabulary}, {', '.join(arrays)})"

    def train(self, key: Array, params: Params, inputs: Array) -> Array:
        """Outputs as the module trains, with dropout."""
        return self.observe(key, params, inputs)[0]

    def shaped(self, inputs: Array) -> Array:
        """(rows, *input_shape), also from flat rows."""
        return inputs.reshape(inputs.shape[0], *self.input_shape)

    def example(self) -> Array:
        """One row to look at shapes with."""
        return jnp.zeros((1, *self.input_shape), jnp.int32 if self.vocabulary else jnp.result_type(float))


def refuse_unmasked(module: object) -> None:
    """RequestError for a module whose batch statistics would count padded rows."""
    raise RequestError(
        f"{type(module).__name__} has batch statistics, which must not count padded rows: give its __call__ an "
        "argument mask, (rows,) or None, and pass it on to BatchNorm."
    )


def joined(keys: Iterable[object]) -> Path:
    """A path of names: a place in a list belongs to the list's name, `layers_0`, so that each entry is a layer."""
    path: list[str] = []
    for key in keys:
        name = next((getattr(key, kind) for kind in ("name", "idx", "key") if hasattr(key, kind)), key)
        if isinstance(name, int) and path:
            path[-1] = f"{path[-1]}_{name}"
        else:
            path.append(str(name))
    return tuple(path)


def running(path: Path) -> Path:
    """Where a statistic stands among the parameters: beside those of its layer, under the name of one that runs."""
    return (*path[:-1], f"{PREFIX}{path[-1]}")


def nest(named: Mapping[Path, ArrayLike]) -> Params:
    """{path: array} as nested dictionaries, floats in the run's precision."""
    params: dict[str, Any] = {}
    for path, leaf in named.items():
        node = params
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = jnp.asarray(leaf, jnp.result_type(float))
    return params


def look_up(params: Params, path: Path) -> Array:
    """The array at `path`."""
    for name in path:
        params = params[name]
    return params
