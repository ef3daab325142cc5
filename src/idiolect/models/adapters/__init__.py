# SPDX-License-Identifier: Apache-2.0
"""Modules of other libraries as models: Flax (linen and nnx) and Equinox. Neither is needed until it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from idiolect.core.checks import RequestError
from idiolect.models.model import Model

__all__ = ["from_equinox", "from_flax"]


def from_flax(module: Any, input_shape: tuple[int, ...], *, vocabulary: int = 0) -> Model:
    """A Flax module as a model: a linen module, an nnx module, or a function that makes one from `nnx.Rngs`.

    It takes a batch of inputs of `input_shape`; `vocabulary` is the number of tokens where inputs name tokens. A
    linen `__call__` is told whether it trains by `train`, `training` or `deterministic`, if it takes one of them. A
    module with batch normalisation must also take `mask`, (rows,), which holds where a row is real. An nnx module as
    it stands starts every run at its own parameters; from a function each seed has a start of its own.
    """
    _need("flax")
    from flax import linen, nnx

    if isinstance(module, linen.Module):
        from idiolect.models.adapters.flax_linen import linen_model

        return linen_model(module, input_shape, vocabulary)
    if (isinstance(module, type) and issubclass(module, linen.Module)) or not callable(module):
        raise RequestError(
            f"from_flax needs a linen module, an nnx module or a function of nnx.Rngs that makes one, got {module!r}."
        )
    from idiolect.models.adapters.flax_nnx import nnx_model

    return nnx_model(module, isinstance(module, nnx.Module), input_shape, vocabulary)


def from_equinox(module: Any, input_shape: tuple[int, ...], *, vocabulary: int = 0, per_row: bool = True) -> Model:
    """An Equinox module as a model, or a function that makes one from a key.

    It takes one input of `input_shape`, without a batch axis, unless `per_row` is false. `key` is given in training
    where `__call__` takes it; predictions are made in inference mode. A module as it stands starts every run at its
    own parameters; from a function each seed has a start of its own.
    """
    _need("equinox")
    from idiolect.models.adapters.equinox_module import equinox_model

    return equinox_model(module, input_shape, vocabulary, per_row)


def _need(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise RequestError(f"from_{package} needs the package {package}; pip install {package}.") from None
