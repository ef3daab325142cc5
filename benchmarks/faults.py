# SPDX-License-Identifier: Apache-2.0
"""Faults: kills, damaged files, signals, mutated specs, full disks and races, and what each of them ends in."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults_damage import damage
from benchmarks.faults_disk import refuse_disk
from benchmarks.faults_frame import Counts
from benchmarks.faults_kills import kill
from benchmarks.faults_races import race
from benchmarks.faults_signals import send_signals
from benchmarks.faults_specs import mutate_specs
from benchmarks.measure import Result, Target

SHOWN = 5  # failures of a kind that are kept in words


def parts(quick: bool) -> Iterator[Result]:
    """One kind after another; each result holds those before it."""
    found: dict[str, Counts] = {}
    with tempfile.TemporaryDirectory(prefix="idiolect-faults-") as place:
        home = Path(place)
        os.environ.setdefault("IDIOLECT_CACHE", str(home / "compiled"))
        for name, counts in _kinds(home, quick):
            found[name] = counts
            yield _result(found, quick)


def _kinds(home: Path, quick: bool) -> Iterator[tuple[str, Counts]]:
    few = ("run",)
    yield "kills", kill(home / "kills", 2 if quick else 60, few if quick else ())
    if quick:
        yield "corruptions", damage(home / "damage", 2, 2, few)
    else:
        yield "corruptions", damage(home / "damage", 440, 60)
    yield from send_signals(home / "signals", 1 if quick else 20).items()
    yield "mutated specs", mutate_specs(home / "specs", 3 if quick else 500)
    yield "full and read-only disks", refuse_disk(home / "disk", 1 if quick else 40, few if quick else ("run", "dial"))
    yield "races", race(home / "races", 1 if quick else 20)


WANTED = {
    "kills": 300,
    "corruptions": 500,
    "SIGINT": 20,
    "SIGTERM": 20,
    "SIGHUP": 20,
    "mutated specs": 500,
    "full and read-only disks": 40,
    "races": 20,
}


def _result(found: dict[str, Counts], quick: bool) -> Result:
    numbers: dict[str, Any] = {
        name: {"trials": counts.trials, **counts.kinds, "failures": len(counts.failures)}
        for name, counts in found.items()
    }
    words = {name: counts.failures[:SHOWN] for name, counts in found.items() if counts.failures}
    targets = []
    for name, counts in found.items():
        targets.append(Target(f"{name}: trials", counts.trials, WANTED[name], "", at_least=True))
        targets.append(Target(f"{name}: failures", len(counts.failures), 0, ""))
    return Result(numbers | ({"in words": words} if words else {}), tuple(targets), text=table(found, words))


def table(found: dict[str, Counts], words: dict[str, list[str]]) -> str:
    """The table of docs/reliability.md, and below it what went wrong."""
    lines = ["| what | trials | ended in | failures |", "|---|---|---|---|"]
    for name, counts in found.items():
        ended = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.kinds.items()))
        lines.append(f"| {name} | {counts.trials} | {ended} | {len(counts.failures)} |")
    lines += [f"{name}: {text}" for name, texts in words.items() for text in texts]
    return "\n".join(lines)
