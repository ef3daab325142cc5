# SPDX-License-Identifier: Apache-2.0
"""A model is an init/apply pair: hashable settings outside, parameters in a dictionary of named arrays."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping
from typing import Any

import jax
from jax import Array

from idiolect.core.checks import RequestError
from idiolect.core.statistics import has_running

Params = Any


class Model(abc.ABC):
    """A family of functions from inputs to outputs; concrete models are frozen, hashable dataclasses."""

    @abc.abstractmethod
    def init(self, key: Array) -> Params:
        """Start parameters."""

    @abc.abstractmethod
    def apply(self, params: Params, inputs: Array) -> Array:
        """Outputs for a batch of inputs: one row each."""

    def train(self, key: Array, params: Params, inputs: Array) -> Array:
        """Outputs as training sees them: `apply`, but for what is random then (dropout)."""
        return self.apply(params, inputs)

    def observe(
        self, key: Array, params: Params, inputs: Array, mask: Array | None = None
    ) -> tuple[Array, Mapping[str, Array]]:
        """`train`, and what running statistics become, by dotted path; rows whose mask is 0 count for nothing."""
        return self.train(key, params, inputs), {}

    @functools.cached_property
    def keeps_statistics(self) -> bool:
        """Whether it has running statistics: parameters that training sets and no gradient moves."""
        # the names of the parameters say it, for which no parameter need be made
        return has_running(jax.eval_shape(lambda: self.init(jax.random.key(0))))

    @property
    def normalizations(self) -> tuple[str, ...]:
        """What its setting `normalize` may be besides "batch"; empty where it has no such setting."""
        field = getattr(type(self), "__dataclass_fields__", {}).get("normalize")  # a user's own need be no dataclass
        choices = field.metadata["range"].choices if field is not None and "range" in field.metadata else ()
        return tuple(choice for choice in choices if choice != "batch")

    @property
    def represents(self) -> bool:
        """Whether it says what its last layer sees."""
        return type(self).represent is not Model.represent

    def represent(self, params: Params, inputs: Array) -> Array:
        """What the last layer sees of a batch of inputs: (rows, width)."""
        raise RequestError(
            f"{type(self).__name__} does not say what its last layer sees, which nearest neighbours are found by; "
            "give it a method represent(params, inputs)."
        )

    @property
    def input_width(self) -> int:
        """Numbers in one input, flattened; for tokens, how many there are to tell apart."""
        raise RequestError(
            f"{type(self).__name__} does not say how many numbers an input has, which a net beside it must know; "
            "give it a property input_width."
        )

    @property
    def reads_tokens(self) -> bool:
        """Whether inputs are whole numbers that name tokens."""
        return False
