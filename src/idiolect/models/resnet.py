# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 with group or batch normalisation, for images of about 32 x 32 (Flow 2023: CIFAR)."""

from __future__ import annotations

import dataclasses

import jax
from jax import Array

from idiolect.core.checks import setting
from idiolect.models.layered import Call, Layer, OfImages
from idiolect.models.layers import COMPUTE, Convolution, Dense, normalization

BLOCKS = 2  # per stage
STRIDES = (1, 2, 2, 2)  # of the stages


@dataclasses.dataclass(frozen=True)
class ResNet18(OfImages):
    """A 3 x 3 stem, four stages of two residual blocks with `filters` 2^stage channels, mean over positions, dense.

    Layers `stem`, `stage_0_block_0_conv_0`, ..., each convolution with its `..._norm`, and `dense`. Stride 1 in the
    stem and no pooling there suit small images. 3 channels, 10 classes, 64 filters: 11,173,962 parameters.
    """

    filters: int = setting(
        default=64, at_least=1, doc="channels of the first stage; stages have 1, 2, 4, 8 times as many"
    )
    groups: int = setting(default=2, at_least=1, doc="groups of a group normalisation; divides filters")
    normalize: str = setting(default="group", choices=("group", "batch"), doc="over a row's groups, or over the batch")
    compute: str = setting(default="float32", choices=COMPUTE, doc="precision of products; parameters keep theirs")

    @property
    def named_layers(self) -> dict[str, Layer]:
        """The layers by name."""
        named: dict[str, Layer] = {}

        def add(name: str, inside: int, outside: int, kernel: int, stride: int) -> None:
            named[name] = Convolution(inside, outside, kernel, stride, "same", bias=False, compute=self.compute)
            named[f"{name}_norm"] = normalization(self.normalize, outside, self.groups)

        add("stem", self.channels, self.filters, 3, 1)
        inside = self.filters
        for stage, stride in enumerate(STRIDES):
            outside = self.filters * 2**stage
            for block in range(BLOCKS):
                name, step = f"stage_{stage}_block_{block}", stride if block == 0 else 1
                add(f"{name}_conv_0", inside, outside, 3, step)
                add(f"{name}_conv_1", outside, outside, 3, 1)
                # where channels change, the input is brought to the new number before it is added
                if inside != outside:
                    add(f"{name}_skip", inside, outside, 1, step)
                inside = outside
        return named | {"dense": Dense(inside, self.outputs or 1, gain=1.0, compute=self.compute)}

    def forward(self, call: Call, inputs: Array, key: Array | None = None) -> Array:
        """(rows, outputs); or (rows,) where `outputs` is 0."""
        skips = {name for name in self.named_layers if name.endswith("_skip")}

        def normal(name: str, flow: Array) -> Array:
            return call(f"{name}_norm", call(name, flow))

        flow = self.images(inputs)
        flow = jax.nn.relu(normal("stem", flow))
        for stage in range(len(STRIDES)):
            for block in range(BLOCKS):
                name = f"stage_{stage}_block_{block}"
                own = normal(f"{name}_conv_1", jax.nn.relu(normal(f"{name}_conv_0", flow)))
                skipped = normal(f"{name}_skip", flow) if f"{name}_skip" in skips else flow
                flow = jax.nn.relu(own + skipped)
        flow = call("dense", flow.mean(axis=(1, 2)))
        return flow if self.outputs else flow[:, 0]
