# SPDX-License-Identifier: Apache-2.0
"""How everything here is measured: in turns, by medians, with the machine's load beside it."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

TURNS = 7  # alternations per comparison: a median of fewer follows the neighbours' load


@dataclasses.dataclass(frozen=True)
class Target:
    """One promise: `measured` must be at most (or at least) `limit`. None: not measured, so open."""

    what: str
    measured: float | None
    limit: float
    unit: str = "x"
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether it holds in this run."""
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


@dataclasses.dataclass(frozen=True)
class Result:
    """What a benchmark found. `skipped` says why nothing was measured, `text` is shown instead of the numbers."""

    numbers: Mapping[str, Any]
    targets: tuple[Target, ...] = ()
    skipped: str | None = None
    text: str | None = None

    def verdict(self, quick: bool) -> str:
        """ "met", "open" where a target is missed, "skipped", "measured" without a target, "not judged" when quick."""
        if self.skipped is not None:
            return "skipped"
        if quick:
            return "not judged"
        if not self.targets:
            return "measured"
        return "met" if all(target.met for target in self.targets) else "open"


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call, to the end of its work on the device."""
    began = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - began


def in_turns(clocks: Mapping[str, Callable[[], float]], turns: int = TURNS) -> dict[str, list[float]]:
    """Seconds of each contestant, A, B, A, B, ...; each `clock` runs once and returns its own seconds.

    The first turn, which compiles, is thrown away.
    """
    seconds: dict[str, list[float]] = {name: [] for name in clocks}
    for turn in range(turns + 1):
        for name, clock in clocks.items():
            spent = clock()
            if turn:
                seconds[name].append(spent)
    return seconds


def ratio(seconds: Mapping[str, list[float]], over: str, under: str) -> float:
    """Median over turns of `over` / `under`: neighbours in time share the load of their moment."""
    return statistics.median(a / b for a, b in zip(seconds[over], seconds[under]))


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Median seconds of each contestant."""
    return {name: statistics.median(spent) for name, spent in seconds.items()}


def machine(load_before: float) -> dict[str, Any]:
    """Where this was measured: processors, versions, load before and after. No path and no host name."""
    versions = {}
    for package in ("jax", "jaxlib", "numpy", "torch"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu_count": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
        "platform": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        **versions,
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }


def show(name: str, result: Result, facts: Mapping[str, Any], quick: bool) -> None:
    """Print what was found, one line each."""
    print("\n".join(_lines(name, result, facts, quick)))


def _lines(name: str, result: Result, facts: Mapping[str, Any], quick: bool) -> list[str]:
    load = f"load {facts['load_before']} -> {facts['load_after']} on {facts['cpu_count']} CPUs"
    lines = [f"{name}: {result.verdict(quick)}    {load}"]
    if result.skipped is not None:
        lines.append(f"  {result.skipped}")
    if result.text is not None:
        lines += [f"  {line}".rstrip() for line in result.text.splitlines()]
    else:
        for key, value in _flat(result.numbers):
            lines.append(f"  {key:58} {value:.4g}" if isinstance(value, float) else f"  {key:58} {value}")
    for target in () if quick else result.targets:
        bound = f"{'at least' if target.at_least else 'at most'} {target.limit:g} {target.unit}"
        found = "not measured" if target.measured is None else f"{target.measured:.4g} {target.unit}"
        lines.append(f"  {'met ' if target.met else 'OPEN'} {target.what}: {found} ({bound})")
    return lines


def write(folder: Path, name: str, command: str, result: Result, facts: Mapping[str, Any], quick: bool) -> Path:
    """Leave `<folder>/<name>.json`, and `<name>.txt` where the result has a text."""
    content = {
        "benchmark": name,
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": facts,
        "numbers": result.numbers,
        "targets": [dataclasses.asdict(target) | {"met": target.met} for target in (() if quick else result.targets)],
        "verdict": result.verdict(quick),
        "skipped": result.skipped,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(_rounded(content), indent=1) + "\n", encoding="utf-8")
    if result.text is not None:
        where = f"{facts['platform']} {facts['processor']}, Python {facts['python']}, jax {facts['jax']}"
        lines = [f"{command}    {content['date']}    {where}", *_lines(name, result, facts, quick)]
        path.with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _flat(numbers: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in numbers.items():
        rows += _flat(value, f"{prefix}{key} / ") if isinstance(value, Mapping) else [(prefix + key, value)]
    return rows


def _rounded(content: Any) -> Any:
    """Four digits: more than any of these repeats to."""
    if isinstance(content, Mapping):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(value) for value in content]
    return float(f"{content:.4g}") if isinstance(content, float) else content
