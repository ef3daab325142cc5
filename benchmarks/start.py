# SPDX-License-Identifier: Apache-2.0
"""How soon the command line works: its help, the first trained block of a run, and the whole demo.

Each with an empty compilation cache and again with the cache that the first run left.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import TURNS, Result, Target, in_turns, medians, ratio

ROOT = Path(__file__).parents[1]
NEEDED = ("safetensors", "tomli_w", "matplotlib")  # what a run folder and its report need beyond the engine
SPEC = """
name = "start"
[data]
source = "digits"
[training]
rounds = 20
record_every = 10
[methods.fedavg]
batch_size = 10
epochs = 1
step_size = 0.1
"""


def run(quick: bool) -> Result:
    """Seconds from process start to the help text, to the first progress, and to the end of the demo."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return Result({}, skipped=f"the command line needs {', '.join(missing)}")
    turns = 1 if quick else TURNS
    commands = {"idiolect --help": _idiolect("--help"), "python -c pass": [sys.executable, "-c", "pass"]}
    clocks = {name: lambda command=command: _seconds(command) for name, command in commands.items()}
    seconds = in_turns(clocks, turns)
    with tempfile.TemporaryDirectory() as folder:
        first = [_first_progress(Path(folder) / str(turn), 2) for turn in range(1 if quick else 3)]
        numbers = {
            "median seconds": medians(seconds),
            "help / bare interpreter": ratio(seconds, "idiolect --help", "python -c pass"),
            "first block, cold cache": _middle([times[0] for times in first]),
            "first block, warm cache": _middle([times[1] for times in first]),
        }
        targets = [
            Target("idiolect --help", statistics.median(seconds["idiolect --help"]), 0.3, "s"),
            Target("first block of a repeated run", numbers["first block, warm cache"], 3.0, "s"),
        ]
        if not quick:
            demo = [_demo(Path(folder), place) for place in ("cold", "warm")]
            numbers |= {"demo, cold cache": demo[0], "demo, warm cache": demo[1]}
            targets += [
                Target("demo, cold cache", demo[0], 60.0, "s"),
                Target("demo, warm cache", demo[1], 60.0, "s"),
            ]
    return Result(numbers, tuple(targets))


def _idiolect(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from idiolect.cli import main; main()", *arguments]


def _seconds(command: list[str], cache: Path | None = None) -> float:
    environment = os.environ | ({} if cache is None else {"IDIOLECT_CACHE": str(cache)})
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment)
    return time.perf_counter() - began


def _first_progress(folder: Path, times: int) -> list[float]:
    """Seconds from process start to the first finished block, for runs that share one cache, empty at first."""
    folder.mkdir(parents=True)
    spec = folder / "start.toml"
    spec.write_text(SPEC, encoding="utf-8")
    environment = os.environ | {"IDIOLECT_CACHE": str(folder / "cache")}
    spent = []
    for turn in range(times):
        command = [sys.executable, "-m", "benchmarks.start_child", str(spec), str(folder / f"run{turn}")]
        began = time.monotonic()  # one clock for all processes of the machine
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment)
        spent.append(json.loads(done.stdout.splitlines()[0])["first_progress"] - began)
    return spent


def _demo(folder: Path, place: str) -> float:
    out = folder / f"demo-{place}"
    return _seconds(_idiolect("run", str(ROOT / "examples" / "demo.toml"), "--out", str(out)), folder / "demo-cache")


def _middle(values: list[float]) -> float:
    return statistics.median(values)
