# SPDX-License-Identifier: Apache-2.0
"""One training of `scale` in a process of its own; prints its memory and times as JSON."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

AT_ONCE = 1000  # clients of a block, in as many rounds as that makes
GROUP = 10  # blocks in a row that read ahead, or do not


def memory(name: str) -> float:
    """VmRSS (now), VmHWM (its peak), RssAnon or RssFile of this process in MB.

    Pages of files that are mapped, such as libraries, are in RssFile: the system takes them back when it likes.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"/proc/self/status has no {name}: this benchmark needs Linux")


class Turns:
    """Reads ahead for some blocks, then not, and so on; how long rounds took, and waited for the disk, either way."""

    def __init__(self, population: Any, block: int, marks: tuple[int, ...]):
        self.population, self.block, self.marks = population, block, marks
        self.blocks: dict[bool, list[tuple[float, float]]] = {True: [], False: []}  # (ms per round, of them waiting)
        self.found: dict[str, float] = {}
        self.waited, self.done, self.began = 0.0, 0, 0.0
        population.gather, population.scatter = map(self._clocked, (population.gather, population.scatter))

    def _clocked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.waited += time.perf_counter() - began

        return clocked

    def after_block(self, reached: int, _: int) -> None:
        """Hears of progress."""
        now = time.perf_counter()
        ahead = self.population.ahead
        # the first block of a group was read as the group before it wished, and the very first one was compiled
        if self.done % GROUP and reached < self.marks[-1]:
            self.blocks[ahead].append(((now - self.began) * 1000 / self.block, self.waited * 1000 / self.block))
        self.done += 1
        if self.done % GROUP == 0:
            self.population.ahead = not ahead
        if reached in self.marks:
            self.found |= {f"anonymous MB after {reached} rounds": memory("RssAnon")}
            self.found |= {f"file-backed MB after {reached} rounds": memory("RssFile")}
        self.began, self.waited = time.perf_counter(), 0.0

    def report(self) -> dict[str, float]:
        """Medians of blocks."""
        for way, ahead in (("reading ahead", True), ("not reading ahead", False)):
            whole, waiting = zip(*self.blocks[ahead])
            self.found |= {f"ms per round, {way}": statistics.median(whole)}
            self.found |= {f"ms per round waiting for the disk, {way}": statistics.median(waiting)}
        return self.found


def forget(folder: Path) -> None:
    """Have the system give back what it keeps of the files: reading begins at the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main(folder: Path, method: str, cohort: int, marks: tuple[int, ...]) -> None:
    """Train with so many clients per round, everything else on disk."""
    start = memory("VmRSS")  # before anything is imported
    from benchmarks.scale import CLASSES, FEATURES, ROWS
    from idiolect.algorithms import find
    from idiolect.data.federation import Federation
    from idiolect.data.store import open_rows
    from idiolect.data.task import Task
    from idiolect.engines.simulate import Options, Training, open_session
    from idiolect.models import Linear
    from idiolect.objectives import OBJECTIVES, ClientLoss

    found = find(method)
    objective = OBJECTIVES[found.objective](ClientLoss(model=Linear(FEATURES, CLASSES)))
    # five passes over a client's 20 rows
    algorithm = found.algorithm(objective, **found.preset, batch_size=5, local_steps=20, step_size=0.05)
    splits = [open_rows(folder / split) for split in ROWS]
    names = tuple(str(client) for client in range(splits[0].clients))
    federation = Federation(*splits, names, Task.classification(tuple(str(label) for label in range(CLASSES))))
    # records: before the first and after the last round
    rounds, block = marks[-1], AT_ONCE // cohort
    training = Training(rounds=rounds, cohort=cohort, record_every=rounds, block=block, executor="batched")
    imports = memory("VmRSS")
    began = time.perf_counter()
    states = folder / "states"
    session = open_session([algorithm], federation, training, [0], ("log_loss",), Options(state_folder=states))
    initial = time.perf_counter() - began
    turns = Turns(session.plan.population, block, marks)
    session.options = Options(state_folder=states, progress=turns.after_block)
    session.train(upto=0)  # records
    forget(folder)
    turns.began = began = time.perf_counter()
    session.train()
    report = {
        "start MB": start,
        "after imports MB": imports,
        "peak MB above start": memory("VmHWM") - start,
        "first states, s": initial,
        "rounds and compilation, s": session.state.seconds,
        "a record of all clients, s": time.perf_counter() - began - session.state.seconds,
        **turns.report(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), tuple(map(int, sys.argv[4:])))
