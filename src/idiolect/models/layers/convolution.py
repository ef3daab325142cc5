# SPDX-License-Identifier: Apache-2.0
"""Two-dimensional convolution as patches and one matrix product.

A library convolution inside a compiled loop is two orders of magnitude slower on a CPU, and with weights of its own per
client it is a grouped convolution, slow on a GPU too. One product is a batched product under `vmap`, fast on both.

On a GPU the patches' way through memory is what takes the time. There one patch serves two outputs side by side: with a
3 x 3 kernel it sees 3 x 4 pixels, 12 numbers per channel for two outputs instead of 18, against zeros in the weights.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.models.layers.precision import lowered, product
from idiolect.models.model import Params

WIDEST = 128  # output channels up to which a pair's saving of memory traffic outweighs its products with zeros


def patches(images: Array, kernel: int, stride: int = 1) -> Array:
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


def convolve_pairs(images: Array, weights: Array) -> Array:
    """Images and weights (kernel, kernel, inside, outside), kernel odd, stride 1, no padding -> convolved images."""
    rows, inside, (kernel, outside) = images.shape[0], images.shape[-1], (weights.shape[0], weights.shape[-1])
    height, width = (length - kernel + 1 for length in images.shape[1:3])
    pairs, cells = -(-width // 2), (kernel + 1) // 2  # of outputs in a line; pairs of pixels that one of them sees
    # an odd width gets one more output, of zeros, which is cut off at the end
    images = jnp.pad(images, ((0, 0), (0, 0), (0, 2 * (pairs + cells - 1) - images.shape[2]), (0, 0)))
    paired = images.reshape(rows, images.shape[1], pairs + cells - 1, 2 * inside)
    slices = [paired[:, i : i + height, j : j + pairs] for i in range(kernel) for j in range(cells)]
    seen = jnp.concatenate(slices, axis=-1).reshape(rows * height * pairs, -1)
    outputs = (seen @ _pair_weights(weights)).reshape(rows, height, 2 * pairs, outside)
    return outputs[:, :, :width]


def _pair_weights(weights: Array) -> Array:
    """The weights from all pixels that a pair of outputs sees to both of them, zero where one sees none."""
    shifted = [jnp.pad(weights, ((0, 0), (place, 1 - place), (0, 0), (0, 0))) for place in range(2)]
    return jnp.stack(shifted, axis=3).reshape(-1, 2 * weights.shape[-1])


@jax.custom_vjp
def add_bias(images: Array, bias: Array) -> Array:
    """images + bias. Its gradient is summed as a product with ones, of gradients in bfloat16, into float32.

    The compiler's own sum over all positions under vmap is slow on a GPU: a round of the CNN in bfloat16 takes 0.0250 s
    with it, 0.0239 s so (H200, 2026-11-15, benchmarks/results/networks-gpu.txt).
    """
    return images + bias


def _bias_forward(images: Array, bias: Array) -> tuple[Array, Array]:
    return images + bias, bias


def _bias_backward(bias: Array, gradients: Array) -> tuple[Array, Array]:
    flat = gradients.reshape(-1, gradients.shape[-1]).astype(jnp.bfloat16)
    ones = jnp.ones((8, flat.shape[0]), flat.dtype)  # eight rows alike: matrix units take no fewer
    return gradients, jnp.matmul(ones, flat, preferred_element_type=jnp.float32)[0].astype(bias.dtype)


add_bias.defvjp(_bias_forward, _bias_backward)


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

    def init(self, key: Array) -> Params:
        """He's normal initialisation; zero bias."""
        seen = self.kernel * self.kernel * self.inside
        params = {"weights": jax.random.normal(key, (seen, self.outside)) * (2 / seen) ** 0.5}
        return params | {"bias": jnp.zeros(self.outside)} if self.bias else params

    def apply(self, params: Params, images: Array) -> Array:
        """The convolved images."""
        if self.padding == "same":
            edge = (self.kernel - 1) // 2
            images = jnp.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        if self._in_pairs:
            weights = lowered(params["weights"], self.compute)
            weights = weights.reshape(self.kernel, self.kernel, self.inside, self.outside)
            outputs = convolve_pairs(lowered(images, self.compute), weights).astype(params["weights"].dtype)
            if self.bias and self.compute == "bfloat16":
                return add_bias(outputs, params["bias"])
            # else XLA writes the bias out in the size of the outputs, so that the product can begin with it
            outputs = jax.lax.optimization_barrier(outputs)
        else:
            seen = patches(lowered(images, self.compute), self.kernel, self.stride)
            outputs = product(seen.reshape(-1, seen.shape[-1]), params["weights"], self.compute)
            outputs = outputs.reshape(*seen.shape[:3], self.outside)
        return outputs + params["bias"] if self.bias else outputs

    @property
    def _in_pairs(self) -> bool:
        suits = self.stride == 1 and self.kernel > 1 and self.kernel % 2 == 1 and self.outside <= WIDEST
        return suits and jax.default_backend() == "gpu"
