# SPDX-License-Identifier: Apache-2.0
"""Who takes part: seeded uniform cohorts and dropouts, drawn on the host for a whole block of rounds."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.core.keys import Purpose, host_generator

PADDING = 2**31 - 1  # fills a cohort up; never present, so that nothing is done for it


@dataclasses.dataclass(frozen=True)
class Participation:
    """`cohort` clients per round out of `clients`, each dropping out of the round with probability `dropout`.

    `able` are the numbers of those that ever take part, ascending; None: all clients. `cohort` is at most that many.
    """

    clients: int
    cohort: int
    dropout: float = 0.0
    able: np.ndarray | None = None

    @property
    def candidates(self) -> int:
        """Clients that ever take part."""
        return self.clients if self.able is None else len(self.able)

    @property
    def full(self) -> bool:
        """The same clients in every round, all that ever take part."""
        return self.cohort == self.candidates and self.dropout == 0.0

    @property
    def whole(self) -> bool:
        """All clients, every round: no draw is needed."""
        return self.full and self.able is None

    @property
    def chance(self) -> float:
        """The probability that a client that ever takes part is in a round."""
        return self.cohort / self.candidates * (1 - self.dropout) if self.candidates else 1.0

    def draw(self, seed: int, rounds: range, width: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Client numbers (rounds, width), ascending, and who of them is present; a wider one ends in nobodies.

        NumPy's sampling without replacement is Floyd's here: its cost grows with the cohort, not with the population.
        """
        size = self.cohort
        members = np.full((len(rounds), size if width is None else width), PADDING, np.int32)
        present = members != PADDING
        present[:, :size] = True
        for row, round_number in enumerate(rounds if size else ()):
            # a generator per round, not one that goes on: a resumed run, and one of other blocks, draws the same
            # clients
            draw = host_generator(seed, Purpose.COHORT, round_number)
            chosen = np.sort(draw.choice(self.candidates, size, replace=False, shuffle=False))
            members[row, :size] = chosen if self.able is None else self.able[chosen]
            # coins of their own: the same cohort is drawn whatever the dropout
            if self.dropout:
                coins = host_generator(seed, Purpose.DROPOUT, round_number).random(size)
                present[row, :size] = coins >= self.dropout
        return members, present
