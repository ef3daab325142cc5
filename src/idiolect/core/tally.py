# SPDX-License-Identifier: Apache-2.0
"""The two-sided ledger's unit: what one piece of work cost, in per-example counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Tally(NamedTuple):
    """Per-example counts. One backward pass that yields both blocks is counted once, under `both`."""

    shared: Any = 0  # gradients with respect to the shared block alone
    personal: Any = 0  # gradients with respect to the personal block alone
    both: Any = 0  # gradients with respect to both blocks in one pass
    forward: Any = 0  # forward passes without a gradient
    samples: Any = 0  # rows drawn

    def plus(self, other: Tally) -> Tally:
        """Both costs together."""
        return Tally(*(mine + theirs for mine, theirs in zip(self, other)))

    def times(self, factor: Any) -> Tally:
        """This cost `factor` times."""
        return Tally(*(count * factor for count in self))

    def counters(self) -> Tally:
        """The same counts as 32-bit counters: what a compiled loop can carry."""
        return Tally(*(jnp.asarray(count, jnp.int32) for count in self))

    def total(self) -> Tally:
        """The sum over a leading client axis."""
        return jax.tree.map(lambda count: jnp.sum(count, axis=0, dtype=jnp.int32), self)


NOTHING = Tally()
