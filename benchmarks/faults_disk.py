# SPDX-License-Identifier: Apache-2.0
"""A disk that is full, a file that may not grow, a folder that may not be written: said with the file, then gone on."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults_frame import (
    Answer,
    Counts,
    commands,
    drawn_once,
    end_state,
    file_operations,
    go_on,
    idiolect,
    make_table,
)
from benchmarks.faults_kills import spread

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT)


def refuse_disk(home: Path, trials: int, names: tuple[str, ...] = ("run", "dial")) -> Counts:
    """Three quarters of the trials are refused by the system at an operation, the others by a limit on file sizes."""
    make_table(home)
    counts, folder = Counts(), home / "refused"
    with drawn_once():
        for command in names:
            arguments = commands(home)[command]
            with file_operations().below(folder) as seen:
                assert idiolect(*arguments, "--out", str(folder)).code == 0
            expected, operations = end_state(folder), list(seen)
            writes = [place for place, name in enumerate(operations) if not name.startswith("os.r")]
            share = trials // len(names)
            for number, place in enumerate(spread(len(writes), 3 * share // 4)[: 3 * share // 4]):
                shutil.rmtree(folder, ignore_errors=True)
                code = ERRORS[number % len(ERRORS)]
                with _failing_from(folder, writes[place], code):
                    answer = idiolect(*arguments, "--out", str(folder))
                words = f"{command}, {errno.errorcode[code]} from {operations[writes[place]]}"
                _judge(counts, command, arguments, folder, answer, expected, words)
            for size in [200 * 2**number for number in range(share - 3 * share // 4)]:
                shutil.rmtree(folder, ignore_errors=True)
                with _no_file_above(size):
                    answer = idiolect(*arguments, "--out", str(folder))
                _judge(counts, command, arguments, folder, answer, expected, f"{command}, files up to {size} bytes")
            shutil.rmtree(folder, ignore_errors=True)
    return counts


def _judge(
    counts: Counts,
    command: str,
    arguments: list[str],
    folder: Path,
    answer: Answer,
    expected: dict[str, str],
    words: str,
) -> None:
    if answer.unexpected:
        counts.add("unexpected", f"{words}: {answer.err.strip()[-300:]}")
        return
    if answer.code and str(folder) not in answer.err:
        counts.add("file not named", f"{words}: {answer.err.strip()[-300:]}")
        return
    said = [answer] if answer.code == 0 else go_on(command, arguments, folder)
    if said[-1].code or any(one.unexpected for one in said):
        counts.add("blocked", f"{words}: {said[-1].err.strip()[-300:]}")
    elif end_state(folder) != expected:
        counts.add("another end", words)
    else:
        counts.add("same end")


@contextlib.contextmanager
def _failing_from(folder: Path, place: int, code: int) -> Iterator[None]:
    """Inside, the system refuses what makes or writes a file below the folder, from an operation on."""

    def refuse(number: int, path: str) -> BaseException | None:
        return OSError(code, os.strerror(code), path) if number >= place else None

    with file_operations().below(folder, refuse):
        yield


@contextlib.contextmanager
def _no_file_above(size: int) -> Iterator[None]:
    """Inside, the kernel lets no file grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
