# SPDX-License-Identifier: Apache-2.0
"""What each client chose among settings, as it lies on disk: in a dial's folder, or in part of a sweep's."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from idiolect.record.choices import Choice, ChoiceRow, Choices, ChoiceScores, Value
from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record, read_rows
from idiolect.report.wording import ScoreWords, plural, score_words


@dataclasses.dataclass(frozen=True)
class ChoiceFound:
    """One method's settings to choose from, and every client's choice."""

    path: Path  # of the folder
    found: Choice  # dial.json, or an entry of choices.json
    rows: list[ChoiceRow]  # its rows of dial.parquet or choices.parquet

    @property
    def words(self) -> ScoreWords:
        """How the score is written."""
        return score_words(self.found.score)

    @property
    def warm(self) -> bool:
        """Whether every value went on from where the one before ended."""
        return self.found.kind == "dial"

    @property
    def values(self) -> list[str]:
        """The values, in the order they were given."""
        return [shown(entry.value) for entry in self.found.values]

    def named(self, value: Value) -> str:
        """A value with what it means where it is an end of the path: '0 (alone)'."""
        return shown(value) + _end(self.found.setting, value)

    def of_clients(self) -> dict[str, list[ChoiceRow]]:
        """The rows of every client, by value in that order; clients in the natural order of their names."""
        rows: dict[str, list[ChoiceRow]] = {name: [] for name in self._ordered()}
        for row in self.rows:
            rows[row.client].append(row)
        return rows

    def training_rows(self, row: ChoiceRow) -> int:
        """Of a client: rows that the tested models were trained on, validation rows among them after a refit."""
        return int(row.train_rows) + (int(row.validation_rows) if self.found.refit else 0)

    def _ordered(self) -> list[str]:
        names = self.found.clients
        return [names[place] for place in self.found.order or range(len(names))]

    @property
    def file(self) -> str:
        """Where all rows are."""
        return "dial.parquet" if self.warm else "choices.parquet"

    def interval(self, scores: ChoiceScores) -> str:
        """' [low, high]' of a mean, or nothing where it is unknown."""
        return f" {self.words.around(*scores.interval)}".rstrip() if scores.interval else ""

    def seeds_about(self) -> str:
        """', mean over 3 seeds', or nothing."""
        seeds = len(self.found.seeds)
        return f", mean over {plural(seeds, 'seed')}" if seeds > 1 else ""


def _end(setting: str, value: Value) -> str:
    """What the ends of a path are in words; nothing for what lies between."""
    if not isinstance(value, int | float):
        return ""
    if setting == "personalization":
        return {0.0: " (alone)", 1.0: " (one model)"}.get(float(value), "")
    if setting == "penalty" and value >= _HOLDS:
        return " (nearly one model)"
    return " (nearly alone)" if setting == "penalty" and value <= _LETS_GO else ""


_HOLDS, _LETS_GO = 10.0, 0.01  # penalties that hold personal models at the shared one, and that let them go


def shown(value: Value) -> str:
    """A value in a few characters."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def chosen_of(rows: list[ChoiceRow]) -> tuple[int, ChoiceRow]:
    """(place, row) of what a client chose."""
    return next((place, row) for place, row in enumerate(rows) if row.chosen)


def read_dial(folder: str | os.PathLike[str]) -> ChoiceFound:
    """Read a dial's folder; RequestError says in one sentence why it cannot be."""
    path = Path(folder)
    check_report_files(path)
    found = read_record(Choice, path / "dial.json")
    return ChoiceFound(path, found, read_rows(ChoiceRow, path / "dial.parquet"))


def read_choices(folder: str | os.PathLike[str]) -> list[ChoiceFound]:
    """What the clients of a sweep would choose, one entry per method; none for any other run."""
    path = Path(folder)
    if not (path / "choices.json").is_file():
        return []
    check_report_files(path)
    found, rows = read_record(Choices, path / "choices.json"), read_rows(ChoiceRow, path / "choices.parquet")
    return [ChoiceFound(path, one, [row for row in rows if row.method == one.method]) for one in found.choices]
