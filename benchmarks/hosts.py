# SPDX-License-Identifier: Apache-2.0
"""A run over two hosts, here processes on loopback, of which one is killed at a random moment, 20 times.

The other must end with one sentence and exit code 1, and the command given again must end with the same bytes as a run
that nothing happened to, but for clocks.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.faults import table
from benchmarks.faults_frame import Counts, end_state, make_table
from benchmarks.faults_processes import end, start
from benchmarks.measure import Result, Target

HOSTS = 2
LIMIT = 400  # seconds until a command must have ended, on a machine that has other work
PATIENCE = 60  # seconds until both must have met; 300 by default
CHANGES = ("--set", "training.rounds = 200", "--set", "output.checkpoint_every = 20", "--quiet")
SHORT = ("--set", "training.rounds = 60", "--set", "output.checkpoint_every = 20", "--quiet")


def run(quick: bool) -> Result:
    """Kill, look at what the other says, and resume."""
    trials, counts, seconds = 1 if quick else 20, Counts(), list[float]()
    with tempfile.TemporaryDirectory(prefix="idiolect-hosts-") as place:
        home = Path(place)
        os.environ.setdefault("IDIOLECT_CACHE", str(home / "compiled"))
        make_table(home)
        command = ["run", str(home / "spec.toml"), *(SHORT if quick else CHANGES), "--out"]
        life = 0.0
        for name in ("compiled", "whole"):  # the first one compiles, and takes longer
            began = time.monotonic()
            answers = _both(home, [*command, str(home / name)])
            assert [code for code, _ in answers] == [0] * HOSTS, answers
            life = time.monotonic() - began
        expected, draw = end_state(home / "whole"), np.random.default_rng(5)
        while counts.trials < trials:
            folder, victim = home / f"trial-{len(seconds)}", counts.trials % HOSTS
            seconds.append(float(draw.uniform(0, 0.9 * life)))
            _trial(home, [*command, str(folder)], victim, seconds[-1], expected, counts)
            shutil.rmtree(folder, ignore_errors=True)
    found = {"a lost host": counts}
    text = table(found, {"a lost host": counts.failures})
    numbers = {"life of a run, s": life, "killed after, s": seconds, "ended in": counts.kinds, "words": counts.failures}
    targets = (
        Target("trials", counts.trials, 20, "", at_least=True),
        Target("failures", len(counts.failures), 0, ""),
    )
    return Result(numbers, targets, text=text)


def _trial(home: Path, command: list[str], victim: int, after: float, expected: dict[str, str], counts: Counts) -> None:
    port, said, folder = _free_port(), [home / f"said-{number}" for number in range(HOSTS)], Path(command[-1])
    hosts = [start([*command, *_where(port, number)], said[number], PATIENCE) for number in range(HOSTS)]
    time.sleep(after)
    if not all(host.is_alive() for host in hosts):
        for host, words in zip(hosts, said):
            end(host, words, LIMIT)
        return  # it was faster than the first one: no trial
    hosts[victim].kill()
    hosts[victim].join()
    code, text = end(hosts[1 - victim], said[1 - victim], LIMIT)
    begun, done = (folder / "spec.toml").is_file(), (folder / "done").is_file()
    if done and code == 0:
        return  # the answer was there already
    lines = text.strip().splitlines()
    if code != 1 or len(lines) != 1 or not lines[0].startswith("Error: "):
        counts.add("no sentence", f"host {victim} killed after {after:.2f} s, exit {code}: {text[-600:]}")
        return
    # what is complete needs no way on, whatever the other one was still waiting for
    answers = [] if done else _both(home, [*command, *(["--resume"] if begun else [])])
    if any(code for code, _ in answers):
        counts.add("no way on", f"host {victim} killed after {after:.2f} s: {answers}")
    elif end_state(folder) != expected:
        other = [name for name, digest in end_state(folder).items() if expected.get(name) != digest]
        counts.add("another end", f"host {victim} killed after {after:.2f} s: {other}")
    else:
        counts.add("complete, same end" if done else "resumed, same end" if begun else "before the folder, same end")


def _both(home: Path, command: list[str]) -> list[tuple[int, str]]:
    """(exit code, standard error) of every host of an undisturbed run."""
    port, said = _free_port(), [home / f"said-{number}" for number in range(HOSTS)]
    hosts = [start([*command, *_where(port, number)], said[number], PATIENCE) for number in range(HOSTS)]
    return [end(host, words, LIMIT) for host, words in zip(hosts, said)]


def _where(port: int, number: int) -> list[str]:
    return ["--hosts", f"127.0.0.1:{port},{HOSTS},{number}"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
