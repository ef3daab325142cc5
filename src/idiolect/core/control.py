# SPDX-License-Identifier: Apache-2.0
"""Branches and loops that are compiled where their conditions are traced, and plain Python where they are known.

The debug engine runs eagerly: there a compiled branch would hide its errors and be compiled again at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

Found = TypeVar("Found")


def cond(condition: ArrayLike, yes: Callable[[], Found], no: Callable[[], Found]) -> Found:
    """`yes()` or `no()`."""
    if isinstance(condition, jax.core.Tracer):
        return jax.lax.cond(condition, yes, no)
    return yes() if condition else no()


def switch(index: int | jax.Array, branches: Sequence[Callable[[], Found]]) -> Found:
    """`branches[index]()`."""
    return jax.lax.switch(index, branches) if isinstance(index, jax.core.Tracer) else branches[int(index)]()


def repeat(times: int | jax.Array, body: Callable[[ArrayLike, Found], Found], start: Found) -> Found:
    """`body(t, carried)` for t = 0 .. times - 1."""
    # a known number of turns is compiled as a loop as well, where what it carries is traced: written out, programs
    # would grow with it
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((times, start))):
        return jax.lax.fori_loop(0, times, body, start)
    for t in range(int(times)):
        start = body(t, start)
    return start


def first_turn(bound: ArrayLike) -> int | jax.ShapeDtypeStruct:
    """The number that the body of `fori_loop(0, bound, body, ...)` gets, for `jax.eval_shape`.

    A plain 0 stays one unless the bound has another type. Of exactly this type, the body is traced once for both.
    """
    dtype = jnp.result_type(bound)
    return 0 if dtype == jnp.result_type(0) else jax.ShapeDtypeStruct((), dtype)
