# SPDX-License-Identifier: Apache-2.0
"""When to communicate, drawn by the server in advance: clients learn how many local iterations come first.

An iteration has one message or more with probability `chance`, independently, so the number of iterations before the
next message is geometric: P(t) = (1 - chance)^t chance. No message is needed while the coins say "stay at home".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.algorithms.tuples import ServerState
from idiolect.core import Algorithm, batches, settings, step_key
from idiolect.core.algorithm import Client, Working
from idiolect.core.algorithm import Upload as Uploaded
from idiolect.core.control import cond
from idiolect.core.types import Array, Batch, ClientData, Key, Params

LONGEST = 2**24  # local iterations in one round; float32 counts that far exactly
AHEAD = 32  # iterations whose rows are drawn together: a draw per iteration costs more than a small gradient


def iterations_before_message(key: Key, chance: ArrayLike) -> Array:
    """A geometric number of local iterations; 0 when `chance` is 1."""
    # by inversion: one draw, and never log 0, which would be an infinite round
    uniform = jax.random.uniform(key, (), jnp.float32, minval=jnp.finfo(jnp.float32).tiny)
    drawn = jnp.log(uniform) / jnp.log1p(-jnp.asarray(chance, jnp.float32))
    return jnp.minimum(drawn, LONGEST).astype(jnp.int32)


class Broadcast(NamedTuple):
    """The shared block, and how many iterations come before the next message."""

    shared: Params
    iterations: Any


class Upload(NamedTuple):
    """A gradient of the shared block goes up."""

    gradient: Params
    weight: Array


@settings
class Scheduled(Algorithm[ServerState, Client, Broadcast, Working, Uploaded]):
    """A shared block that stands still while clients make the iterations that the server drew; still abstract."""

    def init_server(self, key: Key) -> ServerState:
        """The objective's start."""
        return ServerState(self.objective.init_shared(key))

    def steps(self, sent: Broadcast, rows: Array) -> Array:
        """The drawn iterations."""
        return sent.iterations

    def shared_model(self, server: ServerState) -> Params | None:
        """What the shared block alone stands for, where that is a whole model."""
        return self.objective.shared_model(server.shared)

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """The shared block alone."""
        return Broadcast(server.shared, ())


def no_rows(batch_size: int) -> Any:
    """What a Working state holds before its first local iteration."""
    return jnp.zeros((AHEAD, batch_size), jnp.int32) if batch_size else ()


def rows_ahead(key: Key, t: Array, drawn: Any, batch_size: int, data: ClientData) -> tuple[Any, Batch]:
    """The rows of iteration `t` and those that follow, drawn afresh every AHEAD iterations, and `t`'s own batch."""
    if batch_size == 0:
        return (), data.batch()

    def fresh() -> Array:
        return batches.draw_with_replacement(step_key(key, t), AHEAD, batch_size, data)

    # `t` is unbatched, so that this is a real branch: AHEAD - 1 of AHEAD iterations draw nothing
    rows = cond(t % AHEAD == 0, fresh, lambda: drawn)
    return rows, batches.take_rows(data, rows[t % AHEAD])


def one_batch(key: Key, batch_size: int, data: ClientData) -> Batch:
    """The components of the one iteration that ends in a message."""
    if batch_size == 0:
        return data.batch()
    return batches.take_rows(data, batches.draw_with_replacement(key, 1, batch_size, data)[0])
