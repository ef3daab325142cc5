# SPDX-License-Identifier: Apache-2.0
"""The two-convolution network for small images (Scafflix and Flow, 2023: handwriting, 28 x 28)."""

from __future__ import annotations

import dataclasses

import jax
from jax import Array

from idiolect.core.checks import setting
from idiolect.models.layered import Call, Layer, OfImages
from idiolect.models.layers import COMPUTE, Convolution, Dense, dropout, max_pool, normalization


@dataclasses.dataclass(frozen=True)
class CNN(OfImages):
    """Two 3 x 3 convolutions, the larger half of 2 x 2 windows, two dense layers; rectifiers between them.

    Layers `conv_0`, `conv_1`, `dense_0`, `dense_1`. 28 x 28 x 1 and 62 classes: 1,206,590 parameters. `dropout` is the
    rate before and after `dense_0`, in training only (0.25 and 0.5 in Flow 2023). With `normalize = "batch"`, batch
    normalisation follows each convolution: `norm_0`, `norm_1`.
    """

    filters: tuple[int, int] = setting(default=(32, 64), at_least=1, doc="channels of the two convolutions")
    hidden: int = setting(default=128, at_least=1, doc="width of the dense layer")
    dropout: tuple[float, float] = setting(
        default=(0.0, 0.0), at_least=0, below=1, doc="rates before and after the dense layer, in training"
    )
    normalize: str = setting(
        default="none", choices=("none", "batch"), doc="batch: normalise what convolutions give, over the batch's rows"
    )
    compute: str = setting(default="float32", choices=COMPUTE, doc="precision of products; parameters keep theirs")

    @property
    def named_layers(self) -> dict[str, Layer]:
        """The layers by name."""
        first, second = self.filters
        # two 3 x 3 convolutions without padding take 4 off each side's length, the pooling halves what is left
        flat = ((self.height - 4) // 2) * ((self.width - 4) // 2) * second
        named: dict[str, Layer] = {
            "conv_0": Convolution(self.channels, first, compute=self.compute),
            "conv_1": Convolution(first, second, compute=self.compute),
        }
        if self.normalize != "none":
            named |= {f"norm_{place}": normalization(self.normalize, self.filters[place]) for place in range(2)}
        return named | {
            "dense_0": Dense(flat, self.hidden, compute=self.compute),
            "dense_1": Dense(self.hidden, self.outputs or 1, gain=1.0, compute=self.compute),
        }

    def forward(self, call: Call, inputs: Array, key: Array | None = None) -> Array:
        """(rows, outputs), or (rows,) where `outputs` is 0; dropout where there is a key."""
        keys = (None, None) if key is None else tuple(jax.random.fold_in(key, place) for place in range(2))
        flow = self.images(inputs)
        flow = jax.nn.relu(self._normal(call, 0, call("conv_0", flow)))
        # the rectifier commutes with the maximum, and after it has a quarter of the work
        flow = jax.nn.relu(max_pool(self._normal(call, 1, call("conv_1", flow)), 2))
        flow = dropout(keys[0], self.dropout[0], flow.reshape(flow.shape[0], -1))
        flow = jax.nn.relu(call("dense_0", flow))
        flow = call("dense_1", dropout(keys[1], self.dropout[1], flow))
        return flow if self.outputs else flow[:, 0]

    def _normal(self, call: Call, place: int, flow: Array) -> Array:
        return call(f"norm_{place}", flow) if self.normalize != "none" else flow
