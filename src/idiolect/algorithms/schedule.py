# SPDX-License-Identifier: Apache-2.0
"""When to communicate, drawn by the server in advance: clients learn how many local iterations come first.

An iteration has one exchange or more with probability `chance`, independently, so the number of iterations before the
next exchange is geometric: P(t) = (1 - chance)^t chance. No message is needed while the coins say "stay at home".
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from idiolect.core import batches
from idiolect.core.control import cond
from idiolect.core.data import Batch, ClientData
from idiolect.core.keys import Key, step_key

LONGEST = 2**24  # local iterations in one round; float32 counts that far exactly
AHEAD = 32  # iterations whose rows are drawn together: a draw per iteration costs more than a small gradient


def iterations_before_exchange(key: Key, chance: Any) -> Any:
    """A geometric number of local iterations; 0 when `chance` is 1."""
    uniform = jax.random.uniform(key, (), jnp.float32, minval=jnp.finfo(jnp.float32).tiny)
    drawn = jnp.log(uniform) / jnp.log1p(-jnp.asarray(chance, jnp.float32))
    return jnp.minimum(drawn, LONGEST).astype(jnp.int32)


def no_rows(batch_size: int) -> Any:
    """What a Working state holds before its first local iteration."""
    return jnp.zeros((AHEAD, batch_size), jnp.int32) if batch_size else ()


def rows_ahead(key: Key, t: Any, drawn: Any, batch_size: int, data: ClientData) -> Any:
    """The rows of iteration `t` and those that follow: drawn afresh every AHEAD iterations, kept in between."""
    if batch_size == 0:
        return ()

    def fresh() -> Any:
        return batches.draw_with_replacement(step_key(key, t), AHEAD, batch_size, data)

    return cond(t % AHEAD == 0, fresh, lambda: drawn)


def batch_ahead(t: Any, drawn: Any, batch_size: int, data: ClientData) -> Batch:
    """The components of iteration `t`; all rows when `batch_size` is 0."""
    return batches.take_rows(data, drawn[t % AHEAD]) if batch_size else data.batch()


def one_batch(key: Key, batch_size: int, data: ClientData) -> Batch:
    """The components of the one iteration that ends in an exchange."""
    if batch_size == 0:
        return data.batch()
    return batches.take_rows(data, batches.draw_with_replacement(key, 1, batch_size, data)[0])
