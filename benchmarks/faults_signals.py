# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP at any moment: the command says what is kept and how to go on, and that is true."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np

from benchmarks.faults_frame import Counts, drawn_once, end_state, go_on, idiolect, make_table
from benchmarks.faults_processes import end, start

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHANGES = ("--set", "training.rounds = 400", "--set", "output.checkpoint_every = 100", "--quiet")


def send_signals(home: Path, each: int) -> dict[str, Counts]:
    """`each` of every signal, spread over the life of a run."""
    make_table(home)
    arguments, folder, said = ["run", str(home / "spec.toml"), *CHANGES], home / "signalled", home / "said.txt"
    with drawn_once():
        assert idiolect(*arguments, "--out", str(home / "whole")).code == 0
        expected = end_state(home / "whole")
        began = time.monotonic()
        code, text = end(start([*arguments, "--out", str(folder)], said), said)
        assert code == 0, text
        life = time.monotonic() - began
        draw, found = np.random.default_rng(3), {one.name: Counts() for one in SIGNALS}
        for number in range(each * len(SIGNALS)):
            shutil.rmtree(folder, ignore_errors=True)
            one = SIGNALS[number % len(SIGNALS)]
            process = start([*arguments, "--out", str(folder)], said)
            _wait_until_it_listens(said)
            time.sleep(float(draw.uniform(0, 0.9 * life)))
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, one)
            code, text = end(process, said)
            kind, words = _judged(folder, code, text, arguments, expected)
            found[one.name].add(kind, words)
    return found


def _wait_until_it_listens(said: Path) -> None:
    """A signal before the first line of the program is the system's affair."""
    ends = time.monotonic() + 60
    while not said.is_file() and time.monotonic() < ends:
        time.sleep(0.005)
    time.sleep(0.05)


def _judged(
    folder: Path, code: int, text: str, arguments: list[str], expected: dict[str, str]
) -> tuple[str, str | None]:
    """What the ending is called, and in words what is wrong with it."""
    last = (text.strip().splitlines() or [""])[-1]
    if code == 0:
        return "ended before", None
    if "Unexpected" in text or "Traceback" in text or "Interrupted" not in last:
        return "unexpected", f"exit {code}: {text[-300:]}"
    begun, done = (folder / "spec.toml").is_file(), (folder / "done").is_file()
    told = "Nothing was written" in last, f"idiolect run {folder} --resume" in last, "is complete" in last
    if told not in ((not begun, False, False), (False, not done, False), (False, False, done)) or not any(told):
        return "untrue", f"begun {begun}, done {done}: {last}"
    answers = go_on("run", arguments, folder)
    if answers[-1].code or end_state(folder) != expected:
        return "another end", f"{last} {answers[-1].err}"
    return "told, same end", None
