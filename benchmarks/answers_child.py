# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.answers_child TABLE SPLITS FOLDER`: both sides of one table, split after split, into cells.

One process per table: `compare` compiles its programs once for all splits.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.answers_cells import cell_path
from benchmarks.answers_tables import TABLES, Table


def main(name: str, splits: int, folder: Path, options: list[str]) -> None:
    """Make the cells that are missing; one that fails is said on standard error and stays missing."""
    table = next(table for table in TABLES if table.name == name)
    for seed in range(splits):
        _make(cell_path(folder, "classical", name, seed), lambda seed=seed: _classical(table, seed))
        _make(cell_path(folder, "ours", name, seed), lambda seed=seed: _ours(table, seed, options))


def _classical(table: Table, seed: int) -> dict[str, Any]:
    from benchmarks.answers_classical import run_classical

    return run_classical(table, seed)


def _ours(table: Table, seed: int, options: list[str]) -> dict[str, Any]:
    from benchmarks.answers_ours import run_ours

    with tempfile.TemporaryDirectory() as work:
        return run_ours(table, seed, Path(work), tuple(options))


def _make(path: Path, work: Callable[[], dict[str, Any]]) -> None:
    """Written under another name first: a cell is whole or not there."""
    if path.is_file():
        return
    try:
        cell = work()
    except Exception as error:
        print(f"answers: {path.parent.name}/{path.stem} failed: {error}", file=sys.stderr)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(cell), encoding="utf-8")
    partial.rename(path)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
