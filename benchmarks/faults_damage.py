# SPDX-License-Identifier: Apache-2.0
"""One damaged file in a folder: commands refuse it or answer as before, and never answer otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.faults_frame import (
    Counts,
    commands,
    drawn_once,
    end_state,
    file_operations,
    idiolect,
    make_table,
    run_killed,
)

HOWS = ("flip", "cut", "empty", "remove", "swap")
FINISHED = ("run", "dial", "advise", "compare --splits")


def damage(home: Path, trials: int, resumes: int, names: tuple[str, ...] = FINISHED) -> Counts:
    """`trials` damages of finished folders, read by verify, report and predict, and `resumes` of unfinished ones."""
    make_table(home)
    counts = Counts()
    draw = np.random.default_rng(11)
    with drawn_once():
        asked = {name: arguments for name, arguments in commands(home).items() if name in names}
        for command, arguments in asked.items():
            folder = home / command.replace(" ", "")
            assert idiolect(*arguments, "--out", str(folder)).code == 0
            _damage_finished(home, command, folder, trials // len(asked), counts, draw)
        if resumes:
            _damage_unfinished(home, resumes, counts, draw)
    return counts


def _readers(home: Path, command: str, folder: Path) -> dict[str, list[str]]:
    readers = {"verify": ["verify", str(folder)], "report": ["report", str(folder), "--format", "json"]}
    if command in ("run", "dial"):
        readers["predict"] = ["predict", str(folder), str(home / "visits.csv")]
        if command == "run":
            readers["predict"] += ["--method", "fedavg"]
    return readers


def _damage_finished(
    home: Path, command: str, folder: Path, trials: int, counts: Counts, draw: np.random.Generator
) -> None:
    pristine = home / "pristine"
    shutil.copytree(folder, pristine)
    readers = _readers(home, command, folder)
    expected = {name: idiolect(*arguments) for name, arguments in readers.items()}
    assert all(answer.code == 0 for answer in expected.values()), expected
    files = [path.relative_to(pristine) for path in sorted(pristine.rglob("*")) if path.is_file()]
    for number, reader in enumerate(_in_turn(list(readers), trials)):
        file = files[int(draw.integers(len(files)))]
        how = HOWS[number % len(HOWS)]
        spoil(folder, file, how, files, draw)
        words = f"{how} {file} of {command}, read by {reader}"
        answer = idiolect(*readers[reader])
        if answer.unexpected:
            counts.add("unexpected", f"{words}: {answer.err.strip()[-300:]}")
        elif answer.code:
            counts.add("refused")
        elif (reader == "verify" and (folder / file).exists() and how != "swap") or answer.out != expected[reader].out:
            counts.add("silent", words)
        else:
            counts.add("same answer")
        shutil.rmtree(folder)
        shutil.copytree(pristine, folder)
    shutil.rmtree(pristine)


def _damage_unfinished(home: Path, trials: int, counts: Counts, draw: np.random.Generator) -> None:
    """A run that was killed before its first result, then resumed with one of its files damaged."""
    arguments, cut, folder = commands(home)["run"], home / "cut", home / "resumed"
    with file_operations().below(folder) as seen:
        assert idiolect(*arguments, "--out", str(folder)).code == 0
    expected = end_state(folder)
    place = next(number for number, name in enumerate(seen) if "history.parquet" in name)
    shutil.rmtree(folder)
    run_killed(arguments, folder, place)
    shutil.copytree(folder, cut)
    files = [path.relative_to(cut) for path in sorted(cut.rglob("*")) if path.is_file() and path.name != ".lock"]
    for number in range(trials):
        shutil.rmtree(folder)
        shutil.copytree(cut, folder)
        file, how = files[number % len(files)], HOWS[(number // len(files)) % len(HOWS)]
        spoil(folder, file, how, files, draw)
        answer = idiolect("run", str(folder), "--resume", "--quiet")
        words = f"{how} {file} of a run to resume"
        if answer.unexpected:
            counts.add("unexpected", f"{words}: {answer.err.strip()[-300:]}")
        elif answer.code:
            counts.add("refused")
        elif end_state(folder) != expected:
            counts.add("silent", words)
        else:
            counts.add("same answer")


def spoil(folder: Path, file: Path, how: str, files: list[Path], draw: np.random.Generator) -> None:
    """Damage one file: a bit, its end, all of it, its being there, or another one in its place."""
    path = folder / file
    content = bytearray(path.read_bytes())
    if how == "remove":
        path.unlink()
    elif how == "swap":
        others = [one for one in files if one != file and (folder / one).read_bytes() != bytes(content)]
        path.write_bytes((folder / others[int(draw.integers(len(others)))]).read_bytes())
    elif how == "empty" or not content:
        path.write_bytes(b"" if content else b"x")
    elif how == "cut":
        path.write_bytes(content[: int(draw.integers(len(content)))])
    else:
        content[int(draw.integers(len(content)))] ^= 1 << int(draw.integers(8))
        path.write_bytes(content)


def _in_turn(names: list[str], count: int) -> Iterator[str]:
    for number in range(count):
        yield names[number % len(names)]
