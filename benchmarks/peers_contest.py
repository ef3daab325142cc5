# SPDX-License-Identifier: Apache-2.0
"""The parent's side: children that keep a library and a problem ready, taking turns."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import queue
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.apart import say
from benchmarks.peers_environments import OURS, Environment
from benchmarks.peers_problem import Problem

ROOT = Path(__file__).parents[1]
START_SECONDS = 180.0  # until the first round is done
TURN_SECONDS = 300.0
TRY_SECONDS = 40.0  # for a few rounds before the turns: two threads on busy cores can take a thousand times as long
SAME_START = 1e-4  # relative difference of the loss before the first round


class NotMeasuredError(Exception):
    """A library that could not do what it was asked for, with the reason."""


@dataclasses.dataclass(frozen=True)
class Way:
    """One library in one of its ways to run, with the problem's file."""

    environment: Environment
    variant: str
    path: Path
    log: Path

    def command(self) -> list[str]:
        """What starts it. Several processes of one library are PyTorch's own business."""
        library, words = self.environment.library, self.variant.split()
        several = ["torch.distributed.run", "--standalone", "--nproc-per-node", words[0], "-m"]
        launcher = several if words[-1] == "processes" else []
        module = f"benchmarks.peers_{library.name}"
        return [self.environment.python or "", "-m", *launcher, module, str(self.path), self.variant]


class Child:
    """A process that answers one order after another."""

    def __init__(self, way: Way):
        self.began, self.way, self.peak = time.perf_counter(), way, 0.0
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path, "IDIOLECT_CACHE": "off"}
        with way.log.open("wb") as log:
            self.process = subprocess.Popen(
                way.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=ROOT,
                text=True,
            )
        self.answers: queue.Queue[str] = queue.Queue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        self.facts = self._answer(START_SECONDS)["facts"]

    def ask(self, seconds: float, **order: Any) -> dict[str, Any]:
        """The answer to an order, with the CPU seconds that it took, of all the processes that still live."""
        before = self._cpu()
        try:
            self.process.stdin.write(json.dumps(order) + "\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]
        except OSError as gone:
            raise NotMeasuredError(self._reason()) from gone
        answer = self._answer(seconds)
        self.peak = max(self.peak, self.memory())
        return answer | {"CPU seconds": self._cpu() - before}

    def advance(self, rounds: int, seconds: float = TURN_SECONDS) -> dict[str, Any]:
        """Train so many rounds further, in so many seconds at most."""
        return self.ask(seconds, do="advance", rounds=rounds)

    def loss(self) -> float:
        """Of the shared model, over all rows."""
        return float(self.ask(TURN_SECONDS, do="loss")["loss"])

    def memory(self) -> float:
        """The peaks of all its processes that live, added up, in MB: an upper bound of what it had at once."""
        return sum(_peak(process.pid) for process in self._tree())

    def close(self) -> None:
        """End it, and what it has started."""
        tree = self._tree()
        try:
            self.process.stdin.write(json.dumps({"do": "stop"}) + "\n")  # type: ignore[union-attr]
            self.process.stdin.close()  # type: ignore[union-attr]
            self.process.wait(10)
        except (OSError, ValueError, subprocess.TimeoutExpired):  # it has ended, or does not listen
            self.process.kill()
        for process in tree:
            try:
                process.kill()
            except psutil.Error:
                continue
        self.process.wait()
        self.listener.join()
        self.process.stdout.close()  # type: ignore[union-attr]

    def _listen(self) -> None:
        for line in self.process.stdout:  # type: ignore[union-attr]
            self.answers.put(line)
        self.answers.put("")

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self.answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise NotMeasuredError(f"stopped after {seconds:g} s") from None
        if not line:
            self.close()  # its last words are in the log by then
            raise NotMeasuredError(self._reason())
        return json.loads(line)

    def _tree(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu(self) -> float:
        total = 0.0
        for process in self._tree():
            try:
                spent = process.cpu_times()
            except psutil.Error:
                continue
            total += spent.user + spent.system
        return total

    def _reason(self) -> str:
        lines = [line.strip() for line in self.way.log.read_text(encoding="utf-8", errors="replace").splitlines()]
        errors = [line for line in lines if "Error" in line] or [line for line in lines if line] or ["it said nothing"]
        return f"ended early: {errors[-1][:200]}"


def _peak(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmHWM:")), 0.0)


def choose(ways: list[Way], problem: Problem, expected: float) -> tuple[Way, dict[str, Any]]:
    """The fastest of a library's ways by a few rounds of each, all from the same start; raises where none works."""
    tried: dict[str, Any] = {}
    for way in ways:
        try:
            tried[way.variant] = _try(way, problem, expected)
        except NotMeasuredError as failure:
            tried[way.variant] = f"not measured: {failure}"
        say(f"  {way.environment.library.name}, {way.variant}: {tried[way.variant]}")
    timed = {variant: spent for variant, spent in tried.items() if not isinstance(spent, str)}
    if not timed:
        raise NotMeasuredError("; ".join(str(reason) for reason in tried.values()))
    best = min(timed, key=lambda variant: timed[variant])
    return next(way for way in ways if way.variant == best), tried


def _try(way: Way, problem: Problem, expected: float) -> float:
    child = Child(way)
    try:
        start = child.loss()
        if abs(start - expected) > SAME_START * expected:
            raise NotMeasuredError(f"its loss before the first round is {start:.6g}, not {expected:.6g}")
        child.advance(1)
        rounds = max(1, problem.turns.each // 10)
        return child.advance(rounds, TRY_SECONDS)["seconds"] / rounds
    finally:
        child.close()


def contest(ways: Mapping[str, Way], problem: Problem) -> dict[str, Any]:
    """All rounds of all libraries, in turns; a reason in the place of a library's numbers where it failed."""
    found: dict[str, Any] = {}
    children: dict[str, Child] = {}
    try:
        for name, way in ways.items():  # one starts when the one before has its first result
            _guarded(found, children, name, functools.partial(_start, children, name, way))
        for turn in range(-1, problem.turns.turns):
            for name in [*children]:
                rounds = problem.turns.warm if turn < 0 else problem.turns.each
                count = turn >= 0
                _guarded(found, children, name, functools.partial(_turn, found[name], children[name], rounds, count))
        for name in [*children]:
            _guarded(found, children, name, functools.partial(_end, children[name]))
    finally:
        for child in children.values():
            child.close()
    return found


def _guarded(found: dict[str, Any], children: dict[str, Child], name: str, work: Any) -> None:
    try:
        found.setdefault(name, {}).update(work())
    except NotMeasuredError as failure:
        found[name] = f"not measured: {failure}"
        if name in children:
            children.pop(name).close()
    numbers = found[name]
    say(f"  {name}: {numbers if isinstance(numbers, str) else numbers['seconds of a round']}")


def _start(children: dict[str, Child], name: str, way: Way) -> dict[str, Any]:
    child = children[name] = Child(way)
    child.advance(1)
    spent = time.perf_counter() - child.began
    return {
        "how": way.variant,
        "facts": child.facts,
        "first result, s": spent,
        "MB after the first round": child.memory(),
        "seconds of a round": [],
        "CPU seconds of a round": [],
    }


def _turn(numbers: dict[str, Any], child: Child, rounds: int, count: bool) -> dict[str, Any]:
    answer = child.advance(rounds)
    if count:
        numbers["seconds of a round"].append(answer["seconds"] / rounds)
        numbers["CPU seconds of a round"].append(answer["CPU seconds"] / rounds)
    return {}


def _end(child: Child) -> dict[str, Any]:
    return {"loss at the end": child.loss(), "peak MB": child.peak}


def judge(found: dict[str, Any], problem: Problem, start: float) -> None:
    """Add to every library's numbers how far its loss is from ours, and ratios of the turns to ours."""
    ours = found[OURS.name]
    if isinstance(ours, str):
        raise SystemExit(f"{problem.name}: idiolect itself was {ours}")
    progress = start - ours["loss at the end"]
    for numbers in found.values():
        if isinstance(numbers, str):
            continue
        apart = abs(numbers["loss at the end"] - ours["loss at the end"]) / progress
        numbers["loss apart, of the progress"] = apart
        numbers["same loss"] = apart <= problem.tolerance
        for what in ("seconds of a round", "CPU seconds of a round"):
            numbers[f"{what}, median"] = statistics.median(numbers[what])
        ratios = [theirs / own for theirs, own in zip(numbers["seconds of a round"], ours["seconds of a round"])]
        numbers["seconds of a round, ratio"] = statistics.median(ratios)
        numbers["seconds of a round, ratios"] = [min(ratios), max(ratios)]
        spent, own = (sum(each["CPU seconds of a round"]) for each in (numbers, ours))
        numbers["CPU seconds of a round, ratio"] = spent / own if own > 0 else None  # its clock ticks every 10 ms
