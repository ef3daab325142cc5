# SPDX-License-Identifier: Apache-2.0
"""Flax linen modules: pure init and apply already; batch statistics stand among the parameters as running ones."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, cast

import jax
from flax import linen
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from idiolect.core.checks import RequestError
from idiolect.models.adapters.adapted import Adapted, Path, look_up, nest, refuse_unmasked, running
from idiolect.models.model import Params

STATISTICS = "batch_stats"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LinenModel(Adapted):
    """A linen module; parameters are its own collection `params`."""

    module: linen.Module
    arguments: tuple[str, ...]  # that `__call__` takes
    places: tuple[tuple[str, Path], ...]  # collection and path of every variable

    def init(self, key: Array) -> Params:
        """The module's own start."""
        variables = self.start(key)
        named = flatten_dict(variables["params"])
        return nest(named | {running(path): leaf for path, leaf in flatten_dict(variables.get(STATISTICS, {})).items()})

    def apply(self, params: Params, inputs: Array) -> Array:
        """Outputs as the module predicts."""
        return cast(Array, self.module.apply(self._variables(params), self.shaped(inputs), **self._mode(False)))

    def observe(self, key: Array, params: Params, inputs: Array, mask: Array | None = None) -> tuple[Array, Params]:
        """`train`, and the batch statistics that the module says."""
        options = self._mode(True) | ({"mask": mask} if "mask" in self.arguments else {})
        rngs = {} if key is None else {"dropout": key}
        variables = self._variables(params)
        outputs, changed = self.module.apply(
            variables,
            self.shaped(inputs),
            **options,
            rngs=rngs,
            mutable=[STATISTICS] if STATISTICS in variables else [],
        )
        moved = flatten_dict(changed.get(STATISTICS, {}))
        return outputs, {".".join(running(path)): jax.lax.stop_gradient(leaf) for path, leaf in moved.items()}

    def start(self, key: Array) -> dict[str, Any]:
        """The module's own variables, by collection."""
        # a key of its own for dropout: some modules ask for one even to start
        rngs = {"params": key, "dropout": jax.random.fold_in(key, 1)}
        return dict(self.module.init(rngs, self.example(), **self._mode(False)))

    def _mode(self, training: bool) -> dict[str, Any]:
        meaning = {"train": training, "training": training, "deterministic": not training}
        return {name: value for name, value in meaning.items() if name in self.arguments}

    def _variables(self, params: Params) -> dict[str, Any]:
        named = {
            (collection, *path): look_up(params, running(path) if collection == STATISTICS else path)
            for collection, path in self.places
        }
        return unflatten_dict(named)


def linen_model(module: linen.Module, input_shape: tuple[int, ...], vocabulary: int) -> LinenModel:
    """`from_flax` of a linen module; RequestError for variables that training would lose."""
    arguments = tuple(inspect.signature(type(module).__call__).parameters)
    model = LinenModel(tuple(input_shape), vocabulary, module, arguments, ())
    # shapes say which variables there are; nothing is computed
    variables = jax.eval_shape(model.start, jax.random.key(0))
    if "params" not in variables or set(variables) - {"params", STATISTICS}:
        raise RequestError(
            f"from_flax carries the collections params and {STATISTICS}, got {', '.join(sorted(variables)) or 'none'}; "
            "make a module without the others."
        )
    if STATISTICS in variables and "mask" not in arguments:
        refuse_unmasked(module)
    places = tuple((collection, path) for collection in variables for path in flatten_dict(variables[collection]))
    return dataclasses.replace(model, places=places)
