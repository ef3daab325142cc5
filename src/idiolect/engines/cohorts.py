# SPDX-License-Identifier: Apache-2.0
"""Who takes part: seeded uniform cohorts and dropouts, drawn on the host for a whole block of rounds."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect.core.keys import Purpose, host_generator


@dataclasses.dataclass(frozen=True)
class Participation:
    """`cohort` clients per round out of `clients`, each dropping out of the round with probability `dropout`."""

    clients: int
    cohort: int
    dropout: float = 0.0

    @property
    def full(self) -> bool:
        """Everybody, every round: no draw is needed."""
        return self.cohort == self.clients and self.dropout == 0.0

    @property
    def chance(self) -> float:
        """The probability that a client takes part in a round."""
        return self.cohort / self.clients * (1 - self.dropout)

    def draw(self, seed: int, rounds: range) -> tuple[np.ndarray, np.ndarray]:
        """Client numbers (rounds, cohort), ascending, and who of them is present.

        NumPy's sampling without replacement is Floyd's here: its cost grows with the cohort, not with the population.
        """
        members = np.empty((len(rounds), self.cohort), np.int32)
        present = np.ones((len(rounds), self.cohort), bool)
        for row, round_number in enumerate(rounds):
            draw = host_generator(seed, Purpose.COHORT, round_number)
            members[row] = np.sort(draw.choice(self.clients, self.cohort, replace=False, shuffle=False))
            if self.dropout:
                coins = host_generator(seed, Purpose.DROPOUT, round_number).random(self.cohort)
                present[row] = coins >= self.dropout
        return members, present
