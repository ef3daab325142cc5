# SPDX-License-Identifier: Apache-2.0
"""A process that is killed before a file operation: what it left can be resumed or begun again, to the same end."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.faults_frame import (
    Counts,
    commands,
    drawn_once,
    end_state,
    file_operations,
    go_on,
    idiolect,
    make_table,
    run_killed,
)


def kill(home: Path, per_command: int, names: tuple[str, ...] = ()) -> Counts:
    """Kill every command before operations from its first to its last; all of them where `per_command` allows it."""
    make_table(home)
    counts = Counts()
    with drawn_once():
        for command, arguments in commands(home).items():
            if not names or command in names:
                _kill_command(home, command, arguments, per_command, counts)
    return counts


def _kill_command(home: Path, command: str, arguments: list[str], most: int, counts: Counts) -> None:
    folder = home / "killed"
    idiolect(*arguments, "--out", str(home / "first"))  # compiles, and draws
    shutil.rmtree(home / "first")
    with file_operations().below(folder) as seen:
        whole = idiolect(*arguments, "--out", str(folder))
    assert whole.code == 0, whole.err
    operations, expected = list(seen), end_state(folder)
    for place in spread(len(operations), most):
        shutil.rmtree(folder, ignore_errors=True)
        run_killed(arguments, folder, place)
        said = go_on(command, arguments, folder)
        words = f"{command} before operation {place}, {operations[place]}: {said[-1].err.strip()[-300:]}"
        if any(answer.unexpected for answer in said):
            counts.add("unexpected", words)
        elif said[-1].code:
            counts.add("blocked", words)
        elif end_state(folder) != expected:
            found = end_state(folder)
            differ = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
            counts.add("another end", f"{words} {sorted(differ)}")
        else:
            counts.add("same end")
    shutil.rmtree(folder, ignore_errors=True)


def spread(count: int, most: int) -> list[int]:
    """All places where they are few; else the first and last third of `most`, and some between."""
    if count <= most:
        return list(range(count))
    third = most // 3
    between = most - 2 * third
    middle = [third + (count - 2 * third) * one // between for one in range(between)]
    return sorted({*range(third), *middle, *range(count - third, count)})
