# SPDX-License-Identifier: Apache-2.0
"""The two-sided ledger's unit: what one piece of work cost, exactly."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.data import Batch

Count = int | jax.Array | np.ndarray  # known while tracing, or not


class Tally(NamedTuple):
    """Per-example counts, then counts of whole operations.

    The gradient of a batch of b rows counts b component gradients; when the batch is every row of the client it also
    counts one full gradient. One backward pass that yields both blocks is counted once, under `both`.
    """

    shared: Count = 0  # gradients with respect to the shared block alone
    personal: Count = 0  # gradients with respect to the personal block alone
    both: Count = 0  # gradients with respect to both blocks in one pass
    forward: Count = 0  # forward passes without a gradient
    samples: Count = 0  # rows read
    full_shared: Count = 0  # full gradients with respect to the shared block, one per pass over all rows
    full_personal: Count = 0  # full gradients with respect to the personal block
    proximal: Count = 0  # proximal problems solved, exactly or not

    def plus(self, other: Tally) -> Tally:
        """Both costs together."""
        return Tally(*(mine + theirs for mine, theirs in zip(self, other)))

    def times(self, factor: Count) -> Tally:
        """This cost `factor` times."""
        return Tally(*(count * factor for count in self))

    def as_personal(self) -> Tally:
        """The same cost, of a model that is the client's own: what was counted as shared is personal."""
        personal, full = self.personal + self.shared, self.full_personal + self.full_shared
        return self._replace(shared=0, personal=personal, full_shared=0, full_personal=full)

    def counters(self) -> Tally:
        """The same counts as 32-bit counters: what a compiled loop can carry."""
        return Tally(*(jnp.asarray(count, jnp.int32) for count in self))

    def total(self) -> Tally:
        """The sum over a leading client axis."""
        return jax.tree.map(lambda count: jnp.sum(count, axis=0, dtype=jnp.int32), self)


NOTHING = Tally()


def gradient_tally(batch: Batch, block: str, reads: int = 1) -> Tally:
    """The cost of a gradient by one block, "shared" or "personal", or by "both", which reads each row `reads` times."""
    rows, passes = batch.rows(), batch.passes
    full = {f"full_{own}": passes for own in ("shared", "personal") if block in (own, "both")}
    return Tally(samples=reads * rows, **{block: rows}, **full)
