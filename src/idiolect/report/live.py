# SPDX-License-Identifier: Apache-2.0
"""A run that is still training: what its folder holds so far, as the page that is served meanwhile."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from idiolect.record.schema import MethodSummary, RunSummary
from idiolect.report.figure_data import method_figures, shown_methods
from idiolect.report.folder import Run, read_spec
from idiolect.report.html import Frame, fill
from idiolect.report.page import write_page

STATES = {
    "running": "Training goes on; this page follows it without being reloaded.",
    "stopped": "The run was stopped before its end: what it had reached is shown.",
}
_MEAN = re.compile(r"validation_(?:personal|shared)_(.+)_mean")
Row = dict[str, Any]


def live_page(folder: Path, standing: Mapping[str, object], state: str = "running") -> str:
    """The page as text; `standing` is what `live_data` returns."""
    heads = [f"Run {folder.name}", "still training" if state == "running" else "stopped"]
    frame = Frame(f"{folder.name}: idiolect, live", heads, STATES[state], folder.name)
    data = dict(standing) | {"live": state == "running"}
    return fill("live.html", frame, page_data=data, live=state == "running", state=state, standing=standing)


def write_stopped(folder: Path, standing: Mapping[str, object]) -> None:
    """Leave what was shown last in the folder of a run that ended early; a report that is there already stays."""
    # no spec: it stopped before it began; a summary: the report of an earlier, longer run stands
    if (folder / "spec.toml").is_file() and not (folder / "summary.json").is_file():
        write_page(folder, live_page(folder, standing, "stopped"), [])


def live_data(folder: Path, progress: Mapping[str, tuple[int, int]]) -> dict[str, object]:
    """Rounds done of rounds in all by method, and the curves so far."""
    run = run_so_far(folder)
    done = [{"name": name, "done": now, "of": of} for name, (now, of) in progress.items()]
    return {"progress": done, "figures": method_figures(shown_methods(run), run.words) if run else {}}


def run_so_far(folder: Path) -> Run | None:
    """The recorded rounds of every method that has begun, from the checkpoints' histories; None before the first."""
    seeds = 1
    with contextlib.suppress(OSError, tomllib.TOMLDecodeError):
        seeds = max(1, len(tomllib.loads(read_spec(folder)).get("seeds", [0])))
    rows = [row for file in sorted(folder.glob("checkpoint/*/history.jsonl")) for row in _rows(file, seeds)]
    columns = dict.fromkeys(key for row in rows for key in row)
    score = next((found[1] for found in map(_MEAN.fullmatch, columns) if found), None)
    if score is None:
        return None
    # every row with every column: Arrow takes the columns of the first row alone
    table = pa.Table.from_pylist([{key: row.get(key) for key in columns} for row in rows])
    methods = tuple(MethodSummary(method=name, algorithm=name) for name in dict.fromkeys(row["method"] for row in rows))
    summary = RunSummary(folder.name, (score,), {score: True}, methods)
    nobody = pa.table({key: pa.array([], pa.string()) for key in ("method", "seed", "client")})
    return Run(folder, {}, "", table, nobody, summary, {}, False, ())


def _rows(file: Path, seeds: int) -> list[Row]:
    """Rows with their method and seed. A line is a recorded round: one row per lane, or that of the only one."""
    name, found = file.parent.name, list[Row]()
    with contextlib.suppress(OSError, ValueError):  # the last line may be on its way
        for text in file.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            lanes: Sequence[Row] = line if isinstance(line, list) else [line]
            for lane, row in enumerate(lanes):
                group, seed = divmod(lane, seeds)
                method = name if len(lanes) <= seeds else f"{name} ({group + 1})"
                found.append(row | {"method": method, "seed": seed})
    return found
