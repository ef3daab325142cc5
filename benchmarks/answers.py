# SPDX-License-Identifier: Apache-2.0
"""Is the answer of `idiolect compare` right? Ten tables, ten splits, beside scikit-learn and statsmodels."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answers_cells import read_cells
from benchmarks.answers_judge import judge_table, run_numbers
from benchmarks.answers_show import text_of
from benchmarks.answers_tables import TABLES
from benchmarks.measure import Result, Target

ROOT = Path(__file__).parents[1]
CELLS = ROOT / "runs" / "answers"  # kept: an interrupted run goes on
PROCESSES = 2
# the longest first, so that the last one does not run alone
ORDER = ("uci_har_summary", "school", "landmine", "vehicle", "random_slopes", "fertility")
QUICK_TABLES, QUICK_SPLITS = ("grunfeld", "diabetes_shuffled"), 2
QUICK_OPTIONS = ("--rounds", "4", "--methods", "local,fedavg", "--step-sizes", "0.1")
RATIO, RIGHT, COVERED, HURT = 1.02, 90.0, (93.0, 97.0), 5.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def parts(quick: bool) -> Iterator[Result]:
    """After each table, what is known by then; the last one judges them all."""
    if quick:
        with tempfile.TemporaryDirectory() as cells:
            yield from _run(QUICK_TABLES, QUICK_SPLITS, Path(cells), QUICK_OPTIONS)
        return
    asked = os.environ.get("ANSWERS_TABLES", "")  # names with commas between them, to measure some tables alone
    wanted = [table.name for table in TABLES if not asked or table.name in asked.split(",")]
    yield from _run(tuple(sorted(wanted, key=lambda name: (name not in ORDER, _place(name)))), 10, CELLS, ())


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _run(names: tuple[str, ...], splits: int, cells: Path, options: tuple[str, ...]) -> Iterator[Result]:
    judged: dict[str, dict[str, Any]] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    with ThreadPoolExecutor(PROCESSES) as pool:
        waiting = {pool.submit(_make_cells, name, splits, cells, options): name for name in names}
        for done in as_completed(waiting):
            name, found = waiting[done], read_cells(cells, waiting[done], splits)
            done.result()
            if found.ours:
                judged[name], runs[name] = judge_table(found), run_numbers(found)
            yield _result(judged, runs, names, splits)


def _make_cells(name: str, splits: int, cells: Path, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks.answers_child", name, str(splits), str(cells), *options]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | ONE_THREAD)


def _result(
    judged: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, list[dict[str, Any]]],
    names: tuple[str, ...],
    splits: int,
) -> Result:
    ordered = [table.name for table in TABLES if table.name in judged]
    targets = _targets(judged, names, splits)
    numbers = {"tables": {name: judged[name] for name in ordered}, "runs": {name: runs[name] for name in ordered}}
    return Result(numbers, targets, text=text_of(numbers["tables"]))


def _targets(judged: Mapping[str, Mapping[str, Any]], names: tuple[str, ...], splits: int) -> tuple[Target, ...]:
    """A table that lacks a split is not measured, and neither is what is said over all of them."""
    whole = {name: judged[name] for name in names if name in judged and judged[name]["splits"] == splits}
    ratios = [Target(f"{name}: announced / best classical", _of(whole, name, "ratio"), RATIO) for name in names]
    complete = whole if len(whole) == len(names) else {}
    dealt = {table.name for table in TABLES if table.shuffled}
    alarms = _mean({name: found for name, found in complete.items() if name in dealt}, "hurt")
    covered = _mean(complete, "coverage")
    return (
        *ratios,
        Target("announced winner is the true one, or tied with it", _mean(complete, "right"), RIGHT, "%", True),
        Target("client intervals that hold the mean gain on other splits", covered, COVERED[0], "%", True),
        Target("client intervals that hold the mean gain on other splits", covered, COVERED[1], "%"),
        Target('"hurt" verdicts on tables with shuffled clients', alarms, HURT, "%"),
    )


def _of(judged: Mapping[str, Mapping[str, Any]], name: str, what: str) -> float | None:
    return judged[name][what] if name in judged else None


def _mean(judged: Mapping[str, Mapping[str, Any]], what: str) -> float | None:
    """Over tables, each with the same weight, in per cent."""
    values = [found[what] for found in judged.values() if found[what] is not None]
    return 100 * float(np.mean(values)) if values else None
