# SPDX-License-Identifier: Apache-2.0
"""Numbers as whole multiples of 2^-fraction_bits modulo 2^64: sums of them are exact, whatever their order.

On the host they are NumPy's uint64. Compiled programs may have no 64-bit numbers, and hold four digits of 16 bits in
32, which 65,535 clients' digits can be added up in before anything is carried.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from idiolect.core import RequestError

NUMBER_BYTES = 8
DIGIT = 16


def range_bits(clients: int) -> int:
    """b: sums over so many clients, of whole numbers below 2^b in size, stay below 2^63."""
    return 63 - (clients - 1).bit_length()


def to_fixed(values: np.ndarray, fraction_bits: int, clients: int) -> np.ndarray:
    """uint64, two's complement; RequestError for a value that the sum of `clients` has no room for."""
    scaled = np.rint(np.asarray(values, np.float64) * 2.0**fraction_bits)
    fits = np.abs(scaled) < 2.0 ** range_bits(clients)
    if not fits.all():
        raise RequestError(
            f"A number under secure aggregation must be below {2.0 ** (range_bits(clients) - fraction_bits):g} in "
            f"size for {clients} clients and fraction_bits = {fraction_bits}, got {np.asarray(values)[~fits][0]:g}; "
            "use fewer fraction_bits, or a smaller step size."
        )
    return scaled.astype(np.int64).view(np.uint64)


def from_fixed(total: np.ndarray, fraction_bits: int) -> np.ndarray:
    """The float64 numbers."""
    return total.view(np.int64) / 2.0**fraction_bits


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Digits:
    """(4, ...) uint32: a number modulo 2^64 by its digits, lowest first, not carried; and the type to return to."""

    digits: jax.Array
    dtype: DTypeLike = dataclasses.field(metadata={"static": True})


def to_digits(leaf: jax.Array, fraction_bits: int) -> jax.Array:
    """(4, ...) uint32 of an array; right where `fits` is true."""
    rounded = _rounded(leaf, fraction_bits)
    rest, found = jnp.abs(rounded), []
    for place in (3, 2, 1, 0):
        # every difference is exact: it only drops leading bits of a float
        digit = jnp.floor(rest * 2.0 ** (-DIGIT * place))
        rest = rest - digit * 2.0 ** (DIGIT * place)
        found.append(jnp.clip(digit, 0, 2**DIGIT - 1).astype(jnp.int32).astype(jnp.uint32))
    digits = jnp.stack(found[::-1])
    return jnp.where(rounded < 0, _negated(digits), digits)


def _negated(digits: jax.Array) -> jax.Array:
    """Two's complement, not carried."""
    one = jnp.zeros((4,) + (1,) * (digits.ndim - 1), jnp.uint32).at[0].set(1)
    return (2**DIGIT - 1 - digits) + one


def fits(leaf: jax.Array, fraction_bits: int, clients: int) -> jax.Array:
    """Whether every number of an array has room; not where one is not finite."""
    return jnp.all(jnp.abs(_rounded(leaf, fraction_bits)) < 2.0 ** range_bits(clients))


def _rounded(leaf: jax.Array, fraction_bits: int) -> jax.Array:
    real = leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.astype(jnp.result_type(float))
    return jnp.round(real * 2.0**fraction_bits)


def from_digits(total: Digits, fraction_bits: int) -> jax.Array:
    """The numbers of a sum, in the type that they had."""
    digits = _carried(total.digits)
    negative = digits[3] >= 2 ** (DIGIT - 1)
    # by size and sign: the digits of a small negative number are all large, and a float would lose the small one
    size = jnp.where(negative, _carried(_negated(digits)), digits)
    real = jnp.issubdtype(total.dtype, jnp.floating)
    kind = total.dtype if real else jnp.result_type(float)
    value = sum(size[place].astype(kind) * 2.0 ** (DIGIT * place - fraction_bits) for place in range(4))
    value = jnp.where(negative, -value, value)
    return value.astype(total.dtype) if real else jnp.round(value).astype(total.dtype)


def _carried(digits: jax.Array) -> jax.Array:
    """Every digit below 2^16; what the highest would carry is beyond 2^64."""
    carry, found = jnp.zeros(digits.shape[1:], jnp.uint32), []
    for place in range(4):
        held = digits[place] + carry
        found.append(held & (2**DIGIT - 1))
        carry = held >> DIGIT
    return jnp.stack(found)


def digits_to_host(digits: np.ndarray) -> np.ndarray:
    """uint64 of digits, as `to_fixed` has them."""
    shifts = np.arange(4, dtype=np.uint64).reshape(4, *(1,) * (np.ndim(digits) - 1)) * np.uint64(DIGIT)
    summed: np.ndarray = (np.asarray(digits, np.uint64) << shifts).sum(axis=0, dtype=np.uint64)
    return summed


def digits_of_host(total: np.ndarray) -> np.ndarray:
    """(4, ...) uint32 digits of uint64 numbers."""
    shifts = np.arange(4, dtype=np.uint64).reshape(4, *(1,) * total.ndim) * np.uint64(DIGIT)
    return ((total >> shifts) & np.uint64(2**DIGIT - 1)).astype(np.uint32)
