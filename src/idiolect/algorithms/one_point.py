# SPDX-License-Identifier: Apache-2.0
"""The client's half of methods whose gradients of a round are all taken at one point, the one that was sent.

g_m = mean_{k < K} grad f_m(v; batch k), K `local_steps`, or `epochs` passes: batches weigh by their rows.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.core import NOTHING, Batched, Changes, settings, step_key, tree
from idiolect.core.algorithm import Client, Sent, Server
from idiolect.core.types import Array, Batch, ClientData, Key, Params, Tally


class Working(NamedTuple):
    """The mean over rows of the gradients so far, and the rows it covers."""

    gradient: Params
    rows: Array
    drawn: Array


class Upload(NamedTuple):
    """The mean gradient goes up."""

    gradient: Params
    weight: Array


@settings
class OnePoint(Batched[Server, Client, Sent, Working, Upload]):
    """Gradients at the point that was sent; still abstract."""

    changes = Changes({"gradient": None})

    @abc.abstractmethod
    def gradient(self, key: Key, sent: Any, batch: Batch) -> tuple[Params, Tally]:
        """The gradient of a batch at the point that was sent."""

    def weight(self, sent: Any, data: ClientData) -> Array:
        """The client's weight in the reduction."""
        return jnp.ones(())

    def receive(self, key: Key, sent: Any, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """No gradient yet."""
        point = sent[0]  # the first field of every such Broadcast
        return Working(tree.zeros(point), jnp.zeros(()), self.draw_batches(key, data)), NOTHING

    def step(self, key: Key, t: Array, sent: Any, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One more gradient at the same point."""
        batch = self.batch(t, working.drawn, data)
        gradient, tally = self.gradient(step_key(key, t), sent, batch)
        rows = jnp.asarray(batch.rows(), working.rows.dtype)
        seen = working.rows + rows
        part = rows / jnp.maximum(seen, 1)  # by rows: the last batch of an epoch may be short
        return Working(tree.toward(working.gradient, gradient, part), seen, working.drawn), tally

    def send(self, key: Key, sent: Any, working: Working, client: Any, data: ClientData) -> tuple[Upload, Any, Tally]:
        """The mean gradient."""
        return Upload(working.gradient, self.weight(sent, data)), client, NOTHING
