# SPDX-License-Identifier: Apache-2.0
"""Local work in batches: how many steps a client takes in a round, and which rows each of them sees."""

from __future__ import annotations

from idiolect.core import batches
from idiolect.core.algorithm import Algorithm, Client, Sent, Server, Upload, Working
from idiolect.core.checks import setting
from idiolect.core.data import Array, Batch, ClientData
from idiolect.core.keys import Key
from idiolect.core.settings import settings


@settings
class Batched(Algorithm[Server, Client, Sent, Working, Upload]):
    """An algorithm whose clients take a fixed number of steps, or pass over their rows, batch by batch; abstract."""

    local_steps: int = setting(default=1, at_least=1, doc="local steps per round (K) when epochs is 0")
    epochs: int = setting(default=0, at_least=0, doc="passes over the client's rows per round; 0: use local_steps")
    batch_size: int = setting(default=0, at_least=0, doc="rows per local step; 0: all rows, exact gradients")

    def steps(self, sent: Sent, rows: Array) -> Array:
        """The batches of all epochs, or `local_steps`."""
        return self.epochs * batches.batches_per_epoch(rows, self.batch_size) if self.epochs else self.local_steps

    def draw_batches(self, key: Key, data: ClientData) -> Array:
        """The rows of a whole round, for a Working state; empty when every step uses all rows."""
        # drawn at once for all steps: in programs of small clients, a draw per step took most of the time
        if self.batch_size == 0:
            return ()
        if self.epochs:
            return batches.draw_orders(key, self.epochs, data)
        return batches.draw_with_replacement(key, self.local_steps, self.batch_size, data)

    def batch(self, t: Array, drawn: Array, data: ClientData) -> Batch:
        """The rows of step `t`, from what `draw_batches` drew."""
        if self.batch_size == 0:
            return data.batch()
        if self.epochs:
            return batches.take_from_order(data, drawn, t, self.batch_size)
        return batches.take_drawn(data, drawn, t)
