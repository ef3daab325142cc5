# SPDX-License-Identifier: Apache-2.0
"""What each client chose among settings, as it lies on disk: in a dial's folder, or in part of a sweep's."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from idiolect.record.manifest import check_report_files
from idiolect.report.folder import FolderError
from idiolect.report.wording import ScoreWords, plural, score_words


@dataclasses.dataclass(frozen=True)
class Choice:
    """One method's settings to choose from, and every client's choice."""

    path: Path  # of the folder
    found: dict[str, Any]  # dial.json, or an entry of choices.json
    rows: list[dict[str, Any]]  # its rows of dial.parquet or choices.parquet

    @property
    def words(self) -> ScoreWords:
        """How the score is written."""
        return score_words(self.found["score"])

    @property
    def warm(self) -> bool:
        """Whether every value went on from where the one before ended."""
        return self.found["kind"] == "dial"

    @property
    def values(self) -> list[str]:
        """The values, in the order they were given."""
        return [shown(entry["value"]) for entry in self.found["values"]]

    def named(self, value: Any) -> str:
        """A value with what it means where it is an end of the path: '0 (alone)'."""
        return shown(value) + _end(self.found["setting"], value)

    def of_clients(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of every client, by value in that order; clients in the natural order of their names."""
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in self._ordered()}
        for row in self.rows:
            rows[row["client"]].append(row)
        return rows

    def training_rows(self, row: dict[str, Any]) -> int:
        """Of a client: rows that the tested models were trained on, validation rows among them after a refit."""
        return int(row["train_rows"]) + (int(row["validation_rows"]) if self.found.get("refit") else 0)

    def _ordered(self) -> list[str]:
        names = self.found["clients"]
        return [names[place] for place in self.found.get("order", range(len(names)))]

    def seeds_about(self) -> str:
        """', mean over 3 seeds', or nothing."""
        seeds = len(self.found["seeds"])
        return f", mean over {plural(seeds, 'seed')}" if seeds > 1 else ""


def _end(setting: str, value: Any) -> str:
    """What the ends of a path are in words; nothing for what lies between."""
    if not isinstance(value, int | float):
        return ""
    if setting == "personalization":
        return {0.0: " (alone)", 1.0: " (one model)"}.get(float(value), "")
    if setting == "penalty" and value >= _HOLDS:
        return " (nearly one model)"
    return " (nearly alone)" if setting == "penalty" and value <= _LETS_GO else ""


_HOLDS, _LETS_GO = 10.0, 0.01  # penalties that hold personal models at the shared one, and that let them go


def shown(value: Any) -> str:
    """A value in a few characters."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def chosen_of(rows: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """(place, row) of what a client chose."""
    return next((place, row) for place, row in enumerate(rows) if row["chosen"])


def is_dial(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a finished dial."""
    return (Path(folder) / "dial.json").is_file()


def read_dial(folder: str | os.PathLike[str]) -> Choice:
    """Read a dial's folder; FolderError says in one sentence why it cannot be."""
    found, rows = _read(Path(folder), "dial")
    return Choice(Path(folder), found, rows)


def read_choices(folder: str | os.PathLike[str]) -> list[Choice]:
    """What the clients of a sweep would choose, one entry per method; none for any other run."""
    path = Path(folder)
    if not (path / "choices.json").is_file():
        return []
    found, rows = _read(path, "choices")
    return [Choice(path, one, [row for row in rows if row["method"] == one["method"]]) for one in found["choices"]]


def _read(path: Path, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    check_report_files(path)
    try:
        found = json.loads((path / f"{name}.json").read_text(encoding="utf-8"))
        return found, pq.read_table(path / f"{name}.parquet").to_pylist()
    except (OSError, ValueError) as error:
        raise FolderError(
            f"{str(path)!r} needs a {name}.json and a {name}.parquet that can be read ({error}); run it again."
        ) from None
