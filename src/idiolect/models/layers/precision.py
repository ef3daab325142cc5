# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: products in bfloat16 if asked for; parameters, states and gradients keep their own precision."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

COMPUTE = ("float32", "bfloat16")  # of products: "float32" is the parameters' own precision, which may be float64


def lowered(values: Array, compute: str) -> Array:
    """`values` as a product takes them."""
    return values.astype(jnp.bfloat16) if compute == "bfloat16" else values


def product(left: Array, right: Array, compute: str = "float32") -> Array:
    """left @ right in the asked precision, given back in the precision of `right`, the weights."""
    return (lowered(left, compute) @ lowered(right, compute)).astype(right.dtype)
