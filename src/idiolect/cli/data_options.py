# SPDX-License-Identifier: Apache-2.0
"""Options that say how a table is read, and the [data] table of a spec that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Features = Annotated[
    str | None, typer.Option("--features", help="Columns to predict from, comma-separated. Default: all others.")
]
Drop = Annotated[str | None, typer.Option("--drop", help="Columns to leave out, comma-separated.")]
Categorical = Annotated[
    str | None, typer.Option("--categorical", help="Columns that are names though they look like numbers.")
]
SplitColumn = Annotated[str | None, typer.Option("--split-column", help="Column that says train, validation or test.")]
Group = Annotated[str | None, typer.Option("--group", help="Column whose equal values stay on one side of the split.")]
Time = Annotated[
    str | None, typer.Option("--time", help="Column of numbers or dates: oldest rows train, newest rows test.")
]
Weight = Annotated[
    str | None, typer.Option("--weight", help="Column of numbers: how much each row counts in losses and scores.")
]
RefusedWeight = Annotated[str | None, typer.Option("--weight", hidden=True)]  # refused with a reason
Task = Annotated[
    str | None, typer.Option("--task", help="classification, regression or counts. Default: by the target's values.")
]

_COLUMNS = {"--client": "client", "--target": "target"}
_LISTS = {"--features": "features", "--drop": "drop", "--categorical": "categorical"}
_TEXTS = {
    "--split-column": "split_column",
    "--group": "group_column",
    "--time": "time_column",
    "--weight": "weight_column",
    "--task": "task",
}


def data_table(
    command: str,
    table: Path | None,
    client: str | None,
    target: str | None,
    data: str | None,
    **options: str | None,
) -> dict[str, Any]:
    """[data] of a spec from what a command was given.

    `options` by the names of the annotations above: features, drop, categorical, split_column, group, time, weight,
    task.
    """
    from idiolect.core.checks import RequestError

    given = {flag: value for flag, value in _flags(client, target, options).items() if value is not None}
    if (table is None) == (data is None):
        raise RequestError(f"{command} needs either a TABLE or --data NAME; `idiolect {command} --help` shows how.")
    if data is not None:
        flag = next(iter(given), None)
        if flag is not None:
            raise RequestError(f"{flag} is for a TABLE, and --data {data} has columns of its own; leave it out.")
        return {"source": data}
    if table is not None and table.is_dir():  # before its name becomes that of a run
        raise RequestError(f"{table} is a folder, but a file is needed; name the file inside it.")
    for flag, meaning in (("--client", "names the client"), ("--target", "is to be predicted")):
        if flag not in given:
            raise RequestError(f"{command} TABLE needs {flag} COLUMN, the column that {meaning}.")
    found: dict[str, Any] = {"source": "table", "path": str(table)}
    found |= {key: given[flag] for flag, key in (_COLUMNS | _TEXTS).items() if flag in given}
    return found | {key: _names(flag, given[flag]) for flag, key in _LISTS.items() if flag in given}


def given_flags(client: str | None, target: str | None, data: str | None, **options: str | None) -> dict[str, str]:
    """The data options that were given, by flag, for commands that cannot use them."""
    flags = _flags(client, target, options) | {"--data": data}
    return {flag: value for flag, value in flags.items() if value is not None}


def _flags(client: str | None, target: str | None, options: dict[str, str | None]) -> dict[str, str | None]:
    named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    return {"--client": client, "--target": target} | named


def _names(flag: str, text: str) -> list[str]:
    """Comma-separated column names; one with a comma in it stands in double quotes."""
    import csv

    from idiolect.core.checks import RequestError

    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise RequestError(f"{flag} needs column names such as age,weight, got {text!r}.")
    return names
