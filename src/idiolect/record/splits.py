# SPDX-License-Identifier: Apache-2.0
"""What repeated splits say together: splits.json, and the rows of splits.parquet."""

from __future__ import annotations

import dataclasses

from idiolect.record.schema import ALONE, SCHEMA, Estimate


@dataclasses.dataclass(frozen=True)
class SplitsMean(Estimate):
    """A mean over the splits that have the number."""

    splits: int


@dataclasses.dataclass(frozen=True)
class SplitsMethod:
    """One method: helped to compared count clients, announced to unconverged count splits; costs are means."""

    method: str
    algorithm: str
    choosing_mean: float | None
    score: SplitsMean | None
    worst_decile: SplitsMean | None
    gain: SplitsMean | None
    gain_over_one: SplitsMean | None
    helped: int | None
    hurt: int | None
    same: int | None
    unclear: int | None
    compared: int | None
    announced: int
    best: int
    diverged: int
    unconverged: int
    rounds: float | None
    traffic_bytes: float | None

    @property
    def alone(self) -> bool:
        """Whether this is training alone."""
        return self.algorithm == ALONE

    @property
    def name(self) -> str:
        """In a sentence."""
        return "training alone" if self.alone else self.method


@dataclasses.dataclass(frozen=True)
class EachSplit:
    """One split: the announced method, the best on test rows, whether these are one within noise, and all means."""

    folder: str
    seed: int
    announced: str | None
    best: tuple[str, ...]
    best_or_tied: bool | None
    means: dict[str, float | None]


@dataclasses.dataclass(frozen=True)
class SplitsAnnounced:
    """The method announced most often, and what following every split's announcement gives."""

    most: str
    splits: int
    score: SplitsMean | None
    gain: SplitsMean | None
    gain_over_one: SplitsMean | None
    best: int
    best_or_tied: int


@dataclasses.dataclass(frozen=True)
class SplitsSummary:
    """splits.json."""

    name: str
    splits: int
    seeds: tuple[int, ...]
    score: str
    higher_is_better: bool
    score_reason: str | None
    choose_by: str | None
    refit: bool
    test_over_train: float
    all_clients: int
    announced: SplitsAnnounced | None  # None where no split announced a method
    personalized: str | None  # the method whose clients are shown
    methods: tuple[SplitsMethod, ...]
    each: tuple[EachSplit, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True)
class SplitsRow:
    """One client with one method: means over splits, with their intervals."""

    method: str
    client: str
    splits: int  # with a score
    train_rows: float | None
    test_rows: float | None
    score: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    gain_over_one: float | None
    gain_over_one_low: float | None
    gain_over_one_high: float | None
    gain_expected: float | None
    gain_expected_low: float | None
    gain_expected_high: float | None
    verdict: str | None
