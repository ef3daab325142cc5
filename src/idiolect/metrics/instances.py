# SPDX-License-Identifier: Apache-2.0
"""Row by row: which rows the shared and the personal model get right."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from idiolect.core.data import Array


class Breakdown(NamedTuple):
    """Numbers of rows by who is right, adding up to the client's rows. NumPy or JAX, inside `vmap` or not."""

    both: Array
    shared_only: Array
    personal_only: Array
    neither: Array

    @property
    def rows(self) -> Array:
        """Rows counted."""
        return self.both + self.shared_only + self.personal_only + self.neither

    def fractions(self) -> dict[str, Any]:
        """Each count as a fraction of its client's rows; not-a-number for a client without rows."""
        rows = np.asarray(self.rows, float)
        safe = np.where(rows > 0, rows, np.nan)
        return {name: np.asarray(count) / safe for name, count in self._asdict().items()}


KINDS = Breakdown._fields  # of rows, by which of the two models is right


def kinds_of(shared: Array, personal: Array, real: Array) -> Breakdown:
    """Booleans in the place of counts: which of the real rows are right with which models."""
    only = real & shared & ~personal, real & ~shared & personal
    return Breakdown(real & shared & personal, *only, real & ~shared & ~personal)


def breakdown(shared_correct: Array, personal_correct: Array, mask: Array) -> Breakdown:
    """Count rows over the last axis: both right, shared only, personal only, neither; padding is in none."""
    flags = (flag.astype(bool) for flag in (shared_correct, personal_correct, mask))
    return Breakdown(*(kind.sum(-1) for kind in kinds_of(*flags)))
