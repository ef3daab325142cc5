# SPDX-License-Identifier: Apache-2.0
"""A model is an init/apply pair: hashable settings outside, parameters in a dictionary of named arrays."""

from __future__ import annotations

import abc
from typing import Any

Params = Any


class Model(abc.ABC):
    """A family of functions from inputs to outputs; concrete models are frozen, hashable dataclasses."""

    @abc.abstractmethod
    def init(self, key: Any) -> Params:
        """Start parameters."""

    @abc.abstractmethod
    def apply(self, params: Params, inputs: Any) -> Any:
        """Outputs for a batch of inputs: one row each."""
