# SPDX-License-Identifier: Apache-2.0
"""What each client chose among settings, as it lies on disk: in a dial's folder, or in part of a sweep's."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from idiolect.record.choices import Choice, ChoiceRow, Choices, Value
from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record, read_rows
from idiolect.report.wording import ScoreWords, plural, score_words

_HOLDS, _LETS_GO = 10.0, 0.01  # penalties that hold personal models at the shared one, and that let them go


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
    def file(self) -> str:
        """Where all rows are."""
        return "dial.parquet" if self.warm else "choices.parquet"

    def named(self, value: Value) -> str:
        """A value with what it means where it is an end of the path: '0 (alone)'."""
        setting, end = self.found.setting, ""
        if setting == "personalization" and isinstance(value, int | float):
            end = {0.0: " (alone)", 1.0: " (one model)"}.get(float(value), "")
        if setting == "penalty" and isinstance(value, int | float) and not _LETS_GO < value < _HOLDS:
            end = " (nearly alone)" if value <= _LETS_GO else " (nearly one model)"
        return shown(value) + end

    def of_clients(self) -> dict[str, list[ChoiceRow]]:
        """The rows of every client, by value in that order; clients in the natural order of their names."""
        names = self.found.clients
        rows: dict[str, list[ChoiceRow]] = {names[place]: [] for place in self.found.order or range(len(names))}
        for row in self.rows:
            rows[row.client].append(row)
        return rows

    def training_rows(self, row: ChoiceRow) -> int:
        """Of a client: rows that the tested models were trained on, validation rows among them after a refit."""
        return int(row.train_rows) + (int(row.validation_rows) if self.found.refit else 0)

    def seeds_about(self) -> str:
        """', mean over 3 seeds', or nothing."""
        seeds = len(self.found.seeds)
        return f", mean over {plural(seeds, 'seed')}" if seeds > 1 else ""


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
