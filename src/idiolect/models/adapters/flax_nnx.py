# SPDX-License-Identifier: Apache-2.0
"""Flax nnx modules: split into parameters and the rest, put together again for every pass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax import Array

from idiolect.core.checks import RequestError
from idiolect.models.adapters.adapted import Adapted, joined, look_up, nest, refuse_unmasked, running
from idiolect.models.model import Params


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NnxModel(Adapted):
    """An nnx module: its `Param`s, and `BatchStat`s as running statistics."""

    make: Callable[[Array], Any]  # a module from a key
    graph: Any
    states: tuple[Any, Any, Any]  # Param, BatchStat and random streams of some start
    order: tuple[str, ...]  # of the module's attributes, as they were set
    masked: bool  # whether `__call__` takes a mask

    def init(self, key: Array) -> Params:
        """The module's own start."""
        _, params, statistics, _ = _split(self.make(key))
        # as they were set, which is the order of layers: nnx sorts them by name, and `head` is the last one
        places = {name: place for place, name in enumerate(self.order)}
        first = sorted(nnx.to_flat_state(params), key=lambda entry: places.get(str(entry[0][0]), 0))
        named = {joined(path): leaf.get_value() for path, leaf in first}
        named |= {running(joined(path)): leaf.get_value() for path, leaf in nnx.to_flat_state(statistics)}
        return nest(named)

    def apply(self, params: Params, inputs: Array) -> Array:
        """Outputs as the module predicts."""
        module = self._module(params, None)
        module.eval()
        return module(self.shaped(inputs))

    def observe(self, key: Array, params: Params, inputs: Array, mask: Array | None = None) -> tuple[Array, Params]:
        """`train`, and the batch statistics that the module says."""
        module = self._module(params, key)
        module.train()
        outputs = module(self.shaped(inputs), **({"mask": mask} if self.masked else {}))
        moved = nnx.to_flat_state(nnx.state(module, nnx.BatchStat))
        return outputs, {
            ".".join(running(joined(path))): jax.lax.stop_gradient(leaf.get_value()) for path, leaf in moved
        }

    def _module(self, params: Params, key: Array | None) -> Any:
        """The module with these parameters; its random streams start anew from the key."""

        def stream(place: int, leaf: Any) -> Any:
            if key is None or not isinstance(leaf, nnx.RngKey):
                return leaf
            return leaf.replace(jax.random.fold_in(key, place))

        own, statistics, streams = (nnx.to_flat_state(state) for state in self.states)
        parts = (
            [(path, leaf.replace(look_up(params, joined(path)))) for path, leaf in own],
            [(path, leaf.replace(look_up(params, running(joined(path))))) for path, leaf in statistics],
            [(path, stream(place, leaf)) for place, (path, leaf) in enumerate(streams)],
        )
        return nnx.merge(self.graph, *map(nnx.from_flat_state, parts), copy=True)


def nnx_model(module: Any, made: bool, input_shape: tuple[int, ...], vocabulary: int) -> NnxModel:
    """`from_flax` of an nnx module (`made`), or of a function that makes one from `nnx.Rngs`."""

    def make(key: Array) -> Any:
        return module if made else module(nnx.Rngs(key))

    first = make(jax.random.key(0))
    if not isinstance(first, nnx.Module):
        raise RequestError(
            f"from_flax needs a function of nnx.Rngs that makes an nnx module, got one that makes {first!r}."
        )
    graph, *states = _split(first)
    # whatever is neither a parameter nor a statistic must be a random stream: training would lose all else
    others = [path for path, leaf in nnx.to_flat_state(states[2]) if not isinstance(leaf, nnx.RngState)]
    if others:
        raise RequestError(
            f"from_flax carries Param and BatchStat, but {'.'.join(map(str, others[0]))} of {type(first).__name__} is "
            "another kind of variable; make it one of these, or a plain constant."
        )
    masked = "mask" in inspect.signature(type(first).__call__).parameters
    if nnx.to_flat_state(states[1]) and not masked:
        refuse_unmasked(first)
    order = tuple(vars(first))
    return NnxModel(tuple(input_shape), vocabulary, make, graph, (states[0], states[1], states[2]), order, masked)


def _split(module: Any) -> Any:
    return nnx.split(module, nnx.Param, nnx.BatchStat, ...)
