# SPDX-License-Identifier: Apache-2.0
"""Where the cells of `answers` lie: one JSON file per side, table and split, named by the code that made it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.answers_judge import Splits

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src" / "idiolect"
MADE_BY = {
    "classical": ("answers_tables.py", "answers_rows.py", "answers_classical.py", "answers_mixed.py"),
    "ours": ("answers_tables.py", "answers_ours.py"),
}


def cell_path(folder: Path, side: str, table: str, seed: int) -> Path:
    """Code that changes makes new cells, and an interrupted run goes on with those of the same code."""
    return folder / f"{side}-{_digest(side)}" / f"{table}-{seed}.json"


@functools.cache
def _digest(side: str) -> str:
    files: Iterable[Path] = [HERE / name for name in MADE_BY[side]]
    if side == "ours":
        files = [*files, *sorted(SOURCES.rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def read_cells(folder: Path, table: str, splits: int) -> Splits:
    """The splits that both sides have."""
    pairs = []
    for seed in range(splits):
        paths = [cell_path(folder, side, table, seed) for side in ("classical", "ours")]
        if all(path.is_file() for path in paths):
            pairs.append(tuple(json.loads(path.read_text(encoding="utf-8")) for path in paths))
    return Splits(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
