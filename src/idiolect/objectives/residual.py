# SPDX-License-Identifier: Apache-2.0
"""Federated residual learning (Unified 2023, eq. 18): a shared and a personal model whose outputs add up."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import jax

from idiolect.core import RequestError, setting, settings, tree
from idiolect.core.types import Array, Batch, Key, Params
from idiolect.models import Location, Model
from idiolect.objectives.rescaled import RescaledObjective

_RANGE = re.compile(r"(\d*):(\d*)")


@settings
class Residual(RescaledObjective):
    """f_m(w, beta_m) = mean of l(A^w(u, x^w) + A^b(beta_m, x^b), y) + (l2/2) (|u|^2 + |beta_m|^2).

    A^w and A^b are models of the client loss's kind, x^w and x^b ranges of its input columns, which may overlap. A
    deployed model is {"shared": u, "personal": beta_m}. One backward pass yields both gradients.
    """

    shared_inputs: str = setting(default="", doc="input columns of the shared model, such as 0:10; empty: all")
    personal_inputs: str = setting(default="", doc="input columns of the personal model, such as 10:; empty: all")

    def columns(self, block: str) -> slice:
        """The input columns of the "shared" or the "personal" model."""
        text = getattr(self, f"{block}_inputs").strip() or ":"
        form, features = _RANGE.fullmatch(text), _features(self.client_loss.model)
        start, stop = (int(form[1] or 0), int(form[2] or features)) if form else (0, 0)
        if not start < stop <= features:
            raise RequestError(
                f"Residual.{block}_inputs must be a range of the {features} input columns, such as '0:{features}', "
                f"got {text!r}. Leave it empty for all of them."
            )
        return slice(start, stop)

    def side(self, block: str) -> Model:
        """The "shared" or the "personal" model, as wide as its columns."""
        model, columns = self.client_loss.model, self.columns(block)
        width = columns.stop - columns.start
        if width == _features(model):
            return model
        if isinstance(model, Location):  # it answers with one number per column: a part of them has no target
            raise RequestError(
                f"Residual.{block}_inputs must be empty for the location model, got {columns.start}:{columns.stop}. "
                "Use the linear model for a range of columns."
            )
        return dataclasses.replace(model, features=width)  # type: ignore[type-var]

    def check_parts(self) -> None:
        """RequestError for columns that the model does not have."""
        for block in ("shared", "personal"):
            self.side(block)

    def init_shared(self, key: Key) -> Params:
        """The w at which u is the shared model's start."""
        return self.from_model(self.side("shared").init(key))

    def init_personal(self, key: Key) -> Params:
        """The personal model's start."""
        return self.side("personal").init(key)

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Array, Any]:
        """The loss of the summed outputs."""
        model = self.deployed(shared, personal)
        return self.client_loss.value_of(self._outputs(model, batch.inputs), model, batch), ()

    def deployed(self, shared: Params, personal: Params) -> Params:
        """Both models, side by side."""
        return {"shared": self.to_model(shared), "personal": personal}

    def shared_model(self, shared: Params) -> Params:
        """u beside a personal model of zeros, which answers 0."""
        return {"shared": self.to_model(shared), "personal": tree.zeros(self.init_personal(jax.random.key(0)))}

    def predict(self, model: Params, inputs: Array) -> Array:
        """The summed outputs."""
        return self.client_loss.answer(self._outputs(model, inputs))

    def _outputs(self, model: Params, inputs: Array) -> Array:
        # ranges are of columns: inputs of any shape are taken row by row
        flat = inputs.reshape(inputs.shape[0], math.prod(inputs.shape[1:]))
        shared, personal = (
            self.side(block).apply(model[block], flat[:, self.columns(block)]) for block in ("shared", "personal")
        )
        return shared + personal


def _features(model: Model) -> int:
    features = getattr(model, "features", None)
    if features is None:
        raise RequestError(
            f"Residual needs a model with a number of features that can be changed, got {type(model).__name__}. "
            "Use linear or mlp."
        )
    return int(features)
