# SPDX-License-Identifier: Apache-2.0
"""Multi-layer perceptron."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax

from idiolect.models.layered import Call, Layer, Layered
from idiolect.models.layers import Dense, GroupNorm


@dataclasses.dataclass(frozen=True)
class MLP(Layered):
    """Dense layers, a rectifier between them, named `dense_0`, `dense_1`, ...; 0 `outputs` give one plain number.

    With `normalize`, every row's hidden units are brought to mean 0 and variance 1, then scaled and shifted (layer
    normalisation, `norm_0`, ...), before the rectifier.
    """

    features: int
    outputs: int
    hidden: tuple[int, ...] = (64,)
    normalize: bool = False

    @property
    def input_width(self) -> int:
        """As many as features."""
        return self.features

    @property
    def named_layers(self) -> dict[str, Layer]:
        """One layer for each hidden width, with its normalisation, and one for the outputs."""
        named: dict[str, Layer] = {}
        for place, (inside, outside) in enumerate(itertools.pairwise((self.features, *self.hidden, self.outputs or 1))):
            named[f"dense_{place}"] = Dense(inside, outside)
            if self.normalize and place < len(self.hidden):
                named[f"norm_{place}"] = GroupNorm(outside, 1)
        return named

    def forward(self, call: Call, inputs: Any, key: Any = None) -> Any:
        """(rows,) or (rows, outputs); inputs of any shape are flattened."""
        flow = inputs.reshape(inputs.shape[0], self.features)
        for layer in range(len(self.hidden)):
            flow = call(f"dense_{layer}", flow)
            flow = jax.nn.relu(call(f"norm_{layer}", flow) if self.normalize else flow)
        flow = call(f"dense_{len(self.hidden)}", flow)
        return flow if self.outputs else flow[:, 0]
