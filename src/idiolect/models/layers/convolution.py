# SPDX-License-Identifier: Apache-2.0
"""Two-dimensional convolution as patches and one matrix product.

A library convolution inside a compiled loop is two orders of magnitude slower on a CPU, and with weights of its own per
client it is a grouped convolution, slow on a GPU too. One product is a batched product under `vmap`, fast on both.

On a GPU the patches' way through memory is what takes the time. There one patch serves a block of 2 x 2 outputs: with a
3 x 3 kernel it sees 4 x 4 pixels, 16 numbers per channel for four outputs instead of 36, against zeros in the weights.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.models.layers.precision import lowered, product
from idiolect.models.model import Params

PADDING = ("valid", "same")
BLOCK = 2  # outputs of a block, down and across
WIDEST = 128  # output channels up to which a block's saving of memory traffic outweighs its products with zeros


def patches(images: Any, kernel: int, stride: int = 1) -> Any:
    """(rows, height', width', kernel * kernel * channels): what every output position sees, row of the kernel first."""
    height, width = ((length - kernel) // stride + 1 for length in images.shape[1:3])
    # Slices side by side. One step of the 32-64 CNN, 20 images, two CPU cores: 811 images/s, and 625 inside a loop over
    # 10 clients under vmap; with lax.conv_general_dilated_patches 172 and 351, as sum of shifted products 221 and 232.
    slices = [
        images[:, i : i + stride * height : stride, j : j + stride * width : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return slices[0] if kernel == 1 else jnp.concatenate(slices, axis=-1)


def convolve_blocks(images: Any, weights: Any) -> Any:
    """Images and weights (kernel, kernel, inside, outside), kernel odd, stride 1, no padding -> convolved images."""
    rows, inside, (kernel, outside) = images.shape[0], images.shape[-1], (weights.shape[0], weights.shape[-1])
    height, width = (length - kernel + 1 for length in images.shape[1:3])
    down, across = (-(-length // BLOCK) for length in (height, width))
    cells = (kernel + 1) // BLOCK  # blocks of pixels, down and across, that a block of outputs sees
    short = (BLOCK * (blocks + cells - 1) - length for blocks, length in zip((down, across), images.shape[1:3]))
    images = jnp.pad(images, ((0, 0), *((0, missing) for missing in short), (0, 0)))
    # pixels of a block side by side on the channels' axis
    blocks = images.reshape(rows, down + cells - 1, BLOCK, across + cells - 1, BLOCK, inside)
    blocks = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(rows, down + cells - 1, across + cells - 1, -1)
    seen = patches(blocks, cells)
    outputs = seen.reshape(-1, seen.shape[-1]) @ _block_weights(weights, cells)
    outputs = outputs.reshape(rows, down, across, BLOCK, BLOCK, outside).transpose(0, 1, 3, 2, 4, 5)
    return outputs.reshape(rows, BLOCK * down, BLOCK * across, outside)[:, :height, :width]


def _block_weights(weights: Any, cells: int) -> Any:
    """The weights from all pixels that a block of outputs sees to all its outputs, zero where an output sees none."""
    places = [(i, j) for i in range(BLOCK) for j in range(BLOCK)]
    shifted = [jnp.pad(weights, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i, j in places]
    inside, outside = weights.shape[2:]
    stacked = jnp.stack(shifted, axis=3).reshape(cells, BLOCK, cells, BLOCK, inside, len(places) * outside)
    return stacked.transpose(0, 2, 1, 3, 4, 5).reshape(-1, len(places) * outside)


@dataclasses.dataclass(frozen=True)
class Convolution:
    """images (rows, height, width, inside) -> (rows, height', width', outside).

    "valid" keeps to positions where the whole kernel lies in the image, "same" surrounds it with (kernel - 1) / 2 zeros
    (kernels are odd then); `stride` is the distance of two positions.
    """

    inside: int
    outside: int
    kernel: int = 3
    stride: int = 1
    padding: str = "valid"
    bias: bool = True
    compute: str = "float32"

    def init(self, key: Any) -> Params:
        """He's normal initialisation; zero bias."""
        seen = self.kernel * self.kernel * self.inside
        params = {"weights": jax.random.normal(key, (seen, self.outside)) * (2 / seen) ** 0.5}
        return params | {"bias": jnp.zeros(self.outside)} if self.bias else params

    def apply(self, params: Params, images: Any) -> Any:
        """The convolved images."""
        if self.padding == "same":
            edge = (self.kernel - 1) // 2
            images = jnp.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        if self._in_blocks:
            weights = lowered(params["weights"], self.compute)
            weights = weights.reshape(self.kernel, self.kernel, self.inside, self.outside)
            outputs = convolve_blocks(lowered(images, self.compute), weights).astype(params["weights"].dtype)
        else:
            seen = patches(lowered(images, self.compute), self.kernel, self.stride)
            outputs = product(seen.reshape(-1, seen.shape[-1]), params["weights"], self.compute)
            outputs = outputs.reshape(*seen.shape[:3], self.outside)
        return outputs + params["bias"] if self.bias else outputs

    @property
    def _in_blocks(self) -> bool:
        suits = self.stride == 1 and self.kernel > 1 and self.kernel % 2 == 1 and self.outside <= WIDEST
        return suits and jax.default_backend() == "gpu"
