# SPDX-License-Identifier: Apache-2.0
"""Multi-layer perceptron."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax

from idiolect.models.layered import Call, Layered
from idiolect.models.layers import Dense


@dataclasses.dataclass(frozen=True)
class MLP(Layered):
    """Dense layers, a rectifier between them, named `dense_0`, `dense_1`, ...; 0 `outputs` give one plain number."""

    features: int
    outputs: int
    hidden: tuple[int, ...] = (64,)

    @property
    def input_width(self) -> int:
        """As many as features."""
        return self.features

    @property
    def named_layers(self) -> dict[str, Dense]:
        """One layer for each hidden width and one for the outputs."""
        widths = itertools.pairwise((self.features, *self.hidden, self.outputs or 1))
        return {f"dense_{place}": Dense(*pair) for place, pair in enumerate(widths)}

    def forward(self, call: Call, inputs: Any, key: Any = None) -> Any:
        """(rows,) or (rows, outputs); inputs of any shape are flattened."""
        flow = inputs.reshape(inputs.shape[0], self.features)
        for layer in range(len(self.hidden)):
            flow = jax.nn.relu(call(f"dense_{layer}", flow))
        flow = call(f"dense_{len(self.hidden)}", flow)
        return flow if self.outputs else flow[:, 0]
