# SPDX-License-Identifier: Apache-2.0
"""Options that say how a table is read, and the [data] table of a spec that they make."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from idiolect.experiments.contest import option
from idiolect.record.errors import RequestError

_LISTS = ("features", "drop", "categorical")
_COLUMNS = {"group": "group_column", "time": "time_column", "weight": "weight_column"}  # named otherwise in a spec
FACTS = "pack.json"  # the file that a pack is known by; `data.packs`, which is not imported before a command runs
_NEEDED = {"client": "names the client", "target": "is to be predicted"}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where the rows are, and what is in their columns."""

    client: str | None = option("Column that names the client.")
    target: str | None = option("Column to predict.")
    data: str | None = option("A known data set instead (`idiolect list data`).")
    features: str | None = option("Columns to predict from, comma-separated. Default: all others.")
    drop: str | None = option("Columns to leave out, comma-separated.")
    categorical: str | None = option("Columns that are names though they look like numbers.")
    split_column: str | None = option("Column that says train, validation or test.")
    group: str | None = option("Column whose equal values stay on one side of the split.")
    time: str | None = option("Column of numbers or dates: oldest rows train, newest rows test.")
    weight: str | None = option("Column of numbers: how much each row counts in losses and scores.")
    task: str | None = option("classification, regression or counts. Default: by the target's values.")

    def given(self) -> dict[str, str]:
        """What was given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def data_table(self, command: str, table: Path | None) -> dict[str, object]:
        """[data] of a spec."""
        if table is not None and self.data is not None:
            raise RequestError(f"Both TABLE {table} and --data {self.data} are given; leave one of them out.")
        if table is None and self.data is None:
            raise RequestError(f"{command} needs either a TABLE or --data NAME; `idiolect {command} --help` shows how.")
        if table is None:
            self._refuse_others(f"--data {self.data} has columns of its own")
            return {"source": self.data}
        if (table / FACTS).is_file():
            self._refuse_others(f"the rows in {table} are packed")
            return {"source": "pack", "path": str(table)}
        if table.is_dir():  # before its name becomes that of a run
            raise RequestError(f"{table} is a folder, but a file is needed; name the file inside it.")
        given = self.given()
        for name, meaning in _NEEDED.items():
            if name not in given:
                raise RequestError(f"{command} TABLE needs --{name} COLUMN, the column that {meaning}.")
        columns = {_COLUMNS.get(name, name): text for name, text in given.items() if name not in _LISTS}
        lists = {name: _names(f"--{name}", given[name]) for name in _LISTS if name in given}
        return {"source": "table", "path": str(table), **columns, **lists}

    def _refuse_others(self, reason: str) -> None:
        other = next((name for name in self.given() if name != "data"), None)
        if other is not None:
            raise RequestError(f"{flag(other)} is for a TABLE, and {reason}; leave it out.")


@dataclasses.dataclass(frozen=True)
class EqualRows(Columns):
    """The same for commands that count every row once: they refuse weights, with a reason, and do not offer them."""

    weight: Annotated[str | None, typer.Option(hidden=True)] = None


def flag(name: str) -> str:
    """An option as it is typed."""
    return f"--{name.replace('_', '-')}"


def _names(flag: str, text: str) -> list[str]:
    """Comma-separated column names; one with a comma in it stands in double quotes."""
    # as CSV, so that a column whose name has a comma can be named
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise RequestError(f"{flag} needs column names such as age,weight, got {text!r}.")
    return names
