# SPDX-License-Identifier: Apache-2.0
"""Records read from the JSON files of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq

from idiolect.record.codec import from_json
from idiolect.record.errors import DamagedError, RequestError
from idiolect.record.privacy import STATEMENT, Statement
from idiolect.record.schema import SCHEMA, RunSummary
from idiolect.record.words import first_line

Record = TypeVar("Record")


def read_json(path: Path) -> dict[str, object]:
    """The object that a folder's JSON file holds; DamagedError where it is no such file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedError(
            f"{str(path)!r} is not valid JSON ({first_line(error)}); it was cut short or edited: copy the folder again "
            "or rerun."
        ) from None
    if not isinstance(found, dict):
        raise DamagedError(f"{str(path)!r} must hold a JSON object, got {type(found).__name__}; rerun to rewrite it.")
    return found


def read_record(kind: type[Record], path: Path) -> Record:
    """What a folder's JSON file holds; DamagedError, or RequestError where another version wrote it."""
    found = read_json(path)
    schema = found.get("schema")
    if schema != SCHEMA:
        raise RequestError(
            f"This idiolect reads folders of schema {SCHEMA}, and {str(path)!r} says schema {schema!r}; use the "
            "version that wrote it, or run again."
        )
    return from_json(kind, found, repr(str(path)))


def read_rows(kind: type[Record], path: Path) -> list[Record]:
    """The rows of a folder's Parquet file as records; DamagedError where it is no such file."""
    try:
        rows = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise DamagedError(
            f"{str(path)!r} is not valid Parquet ({first_line(error)}); copy the folder again or rerun."
        ) from None
    for row in rows[:1]:  # a column has one type and is there for all rows or for none
        from_json(kind, row, repr(str(path)))
    return [kind(**row) for row in rows]


def read_statement(folder: Path) -> Statement | None:
    """privacy.json of a folder; None in folders from before there was one."""
    return read_record(Statement, folder / STATEMENT) if (folder / STATEMENT).is_file() else None


def read_summary(folder: Path) -> RunSummary:
    """summary.json of a run folder."""
    return read_record(RunSummary, folder / "summary.json")
