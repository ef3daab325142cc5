# SPDX-License-Identifier: Apache-2.0
"""What each client chose among settings: dial.json, an entry of choices.json, and the rows of their tables."""

from __future__ import annotations

import dataclasses

from idiolect.record.divergence import Divergence
from idiolect.record.schema import SCHEMA, Costs, Numbers

Value = float | str  # a number, or "0.5, 0.1" where two settings were swept


@dataclasses.dataclass(frozen=True)
class ChoiceScores:
    """A score on one split of the rows: means over clients and seeds, the interval of the mean, each client's mean."""

    mean: float | None
    worst_decile: float | None
    seed_means: Numbers
    interval: Numbers  # two ends, or none
    clients: Numbers


@dataclasses.dataclass(frozen=True)
class Spent(Costs):
    """A ledger with its sums."""

    total_bytes: int
    gradients: int


@dataclasses.dataclass(frozen=True)
class ValueTried:
    """One value to choose from."""

    value: Value
    rounds: int
    validation: ChoiceScores
    test: ChoiceScores
    chosen_by: int
    spent: Spent
    spent_so_far: Spent  # with all values before
    client_bytes: Numbers | None  # None where the method alone knows
    diverged: Divergence | None = None


@dataclasses.dataclass(frozen=True)
class OwnChoice:
    """One entry per client: its value, the value's place, whether its own rows chose; and what that gives."""

    values: tuple[Value, ...]
    places: tuple[int, ...]
    own: tuple[bool, ...]
    validation: ChoiceScores
    test: ChoiceScores


@dataclasses.dataclass(frozen=True)
class Choice:
    """Values of a setting side by side, and every client's choice on its validation rows."""

    kind: str  # "dial": every value went on from where the one before ended; "sweep": each from a cold start
    name: str
    method: str
    algorithm: str
    objective: str | None
    setting: str
    seeds: tuple[int, ...]
    score: str
    higher_is_better: bool
    clients: tuple[str, ...]
    values: tuple[ValueTried, ...]
    best_fixed: Value  # the best mean on validation rows
    chosen: OwnChoice
    score_reason: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    refit: bool = False  # whether tested models were trained on validation rows too
    order: tuple[int, ...] | None = None  # of the clients by their names
    schema: int = SCHEMA

    @property
    def best(self) -> ValueTried:
        """The best fixed value."""
        return next(entry for entry in self.values if entry.value == self.best_fixed)

    @property
    def total(self) -> Spent:
        """What all values cost together."""
        return self.values[-1].spent_so_far


@dataclasses.dataclass(frozen=True)
class Choices:
    """choices.json of a sweep."""

    choices: tuple[Choice, ...]
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True)
class ChoiceRow:
    """A row of dial.parquet or choices.parquet: one value for one client, means over seeds."""

    method: str
    client: str
    value: Value
    chosen: bool
    own_choice: bool
    validation: float | None
    test: float | None
    traffic_bytes: float | None
    train_rows: int
    validation_rows: int
    test_rows: int
