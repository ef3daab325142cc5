# SPDX-License-Identifier: Apache-2.0
"""What `idiolect compare` answers on one split of one table: its folder, read into plain numbers."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.answers_tables import CLIENT, GROUP, PART, REGRESSION, TARGET, Table, write_rows

PROPER = {"regression": "squared_error", "classification": "log_loss"}
KEPT = ("client", "train_rows", "test_rows", "plain_gain", "gain_low", "gain_high", "verdict")
Cell = dict[str, Any]


def run_ours(table: Table, seed: int, folder: Path, options: tuple[str, ...] = ()) -> Cell:
    """`idiolect compare` in this process, as a user calls it; further `options` follow the table's own."""
    from typer.testing import CliRunner

    from idiolect.cli import app

    rows, path = write_rows(table, seed, folder)
    out = folder / f"{table.name}-{seed}"
    shutil.rmtree(out, ignore_errors=True)
    chosen = {"data.task": table.kind, "data.split_column": PART, "data.seed": seed}
    if GROUP in rows:
        chosen["data.group_column"] = GROUP
    sets = [part for name, value in chosen.items() for part in ("--set", f"{name} = {json.dumps(value)}")]
    command = ["compare", str(path), "--client", CLIENT, "--target", TARGET, "--out", str(out), "--quiet", *sets]
    began = time.perf_counter()
    done = CliRunner().invoke(app, [*command, *options])
    seconds = time.perf_counter() - began
    if not (out / "summary.json").is_file():
        raise RuntimeError(f"idiolect compare left no answer on {table.name}, split {seed}: {done.exception!r}")
    cell = read_answer(out, PROPER[table.kind]) | {"seconds": seconds}
    shutil.rmtree(out)
    path.unlink()
    return cell


def read_answer(folder: Path, proper: str) -> Cell:
    """What a run folder says: the announced method, and each method's errors, gains and verdicts per client."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    frame = pd.read_parquet(folder / "clients.parquet")
    frame = frame[(frame["seed"] == frame["seed"].min()) & ~frame["held_out"]].copy()
    sign = 1 if summary["higher_is_better"][summary["scores"][0]] else -1
    frame["plain_gain"] = sign * (frame["score"] - frame["local_score"])  # as measured, whatever `gain` does with it
    methods = {str(label): _method(part, proper) for label, part in frame.groupby("method", sort=False)}
    for entry in summary["methods"]:
        if entry["diverged"]:
            methods.pop(entry["method"], None)
    for label, method in methods.items():  # what the announcement was made from
        choice = folder / "tuning" / f"{label}.json"
        method["folds"] = json.loads(choice.read_text(encoding="utf-8"))["folds"] if choice.is_file() else None
    announced, tied = announcement(summary, set(methods))
    return {"announced": announced, "tied": tied, "score": summary["scores"][0], "methods": methods}


def announcement(summary: Cell, known: set[str]) -> tuple[str, list[str]]:
    """The announced method and those tied with it; the best on validation rows where a run does not announce one."""
    if summary.get("announced"):
        return summary["announced"]["method"], list(summary["announced"]["tied"])
    higher = summary["higher_is_better"][summary["scores"][0]]
    scored = {
        entry["method"]: entry["validation_mean"]
        for entry in summary["methods"]
        if entry["method"] in known and entry["validation_mean"] is not None
    }
    return (max if higher else min)(scored, key=lambda label: scored[label]), []


def _method(part: pd.DataFrame, proper: str) -> Cell:
    """One method's clients: `errors` by the proper score, `accuracy` where there are classes, and the verdicts."""
    found = {"errors": _column(part, f"test_personal_{proper}_selected")}
    if proper != PROPER[REGRESSION]:
        found["accuracy"] = _column(part, "test_personal_accuracy_selected")
    return found | {name: _column(part, name) for name in KEPT}


def _column(part: pd.DataFrame, name: str) -> list[Any]:
    """Not-a-number, which JSON does not have, becomes None."""
    if name not in part:
        return [None] * len(part)
    return [None if pd.isna(value) else value for value in part[name].tolist()]
