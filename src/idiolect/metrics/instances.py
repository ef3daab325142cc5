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


def breakdown(shared_correct: Array, personal_correct: Array, mask: Array) -> Breakdown:
    """Count rows over the last axis: both right, shared only, personal only, neither; padding is in none."""
    shared, personal, real = (flags.astype(bool) for flags in (shared_correct, personal_correct, mask))
    return Breakdown(
        both=(real & shared & personal).sum(-1),
        shared_only=(real & shared & ~personal).sum(-1),
        personal_only=(real & ~shared & personal).sum(-1),
        neither=(real & ~shared & ~personal).sum(-1),
    )
