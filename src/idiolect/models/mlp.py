# SPDX-License-Identifier: Apache-2.0
"""Multi-layer perceptron."""

from __future__ import annotations

import dataclasses
import itertools

import jax
from jax import Array

from idiolect.core.checks import setting
from idiolect.models.layered import Call, Layer, Layered
from idiolect.models.layers import Dense, normalization


@dataclasses.dataclass(frozen=True)
class MLP(Layered):
    """Dense layers, a rectifier between them, named `dense_0`, `dense_1`, ...; 0 `outputs` give one plain number.

    With `normalize`, hidden units are brought to mean 0 and variance 1, then scaled and shifted (`norm_0`, ...), before
    the rectifier: every row's by itself ("layer"), or every unit over the rows of a batch ("batch").
    """

    features: int
    outputs: int
    hidden: tuple[int, ...] = (64,)
    normalize: str = setting(
        default="none", choices=("none", "layer", "batch"), doc="of hidden units: within a row, or over a batch"
    )

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
            if self.normalize != "none" and place < len(self.hidden):
                named[f"norm_{place}"] = normalization(self.normalize, outside)
        return named

    def forward(self, call: Call, inputs: Array, key: Array | None = None) -> Array:
        """(rows,) or (rows, outputs); inputs of any shape are flattened."""
        flow = inputs.reshape(inputs.shape[0], self.features)
        for layer in range(len(self.hidden)):
            flow = call(f"dense_{layer}", flow)
            flow = jax.nn.relu(call(f"norm_{layer}", flow) if self.normalize != "none" else flow)
        flow = call(f"dense_{len(self.hidden)}", flow)
        return flow if self.outputs else flow[:, 0]
