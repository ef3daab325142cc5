# SPDX-License-Identifier: Apache-2.0
"""One training of `scale` in a process of its own; prints its memory and times as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def memory(name: str) -> float:
    """VmRSS (now) or VmHWM (peak) of this process in MB, file pages that are mapped included."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"/proc/self/status has no {name}: this benchmark needs Linux")


def main(folder: Path, method: str, rounds: int) -> None:
    """Train with 10 clients per round, everything else on disk."""
    start = memory("VmRSS")  # before anything is imported
    from benchmarks.scale import CLASSES, COHORT, FEATURES, ROWS
    from idiolect.algorithms import find
    from idiolect.data.federation import Federation
    from idiolect.data.store import open_rows
    from idiolect.data.task import Task
    from idiolect.engines.simulate import Options, Training, open_session
    from idiolect.models import Linear
    from idiolect.objectives import OBJECTIVES, ClientLoss

    found = find(method)
    objective = OBJECTIVES[found.objective](ClientLoss(model=Linear(FEATURES, CLASSES)))
    algorithm = found.algorithm(objective, **found.preset, batch_size=5, local_steps=4, step_size=0.05)
    splits = [open_rows(folder / split) for split in ROWS]
    names = tuple(str(client) for client in range(splits[0].clients))
    federation = Federation(*splits, names, Task.classification(tuple(str(label) for label in range(CLASSES))))
    # a block of 100 rounds holds at most 1000 clients; records: before the first and after the last round
    training = Training(rounds=rounds, cohort=COHORT, record_every=rounds, block=min(100, rounds), executor="batched")
    times = {"imports": memory("VmRSS")}
    began = time.perf_counter()
    options = Options(state_folder=folder / f"{method}-{rounds}")
    session = open_session([algorithm], federation, training, [0], ("log_loss",), options)
    times["init"] = time.perf_counter() - began
    began = time.perf_counter()
    session.train()
    times["train"] = time.perf_counter() - began
    trained = memory("VmHWM")
    began = time.perf_counter()
    session.run()  # no round is left: scores on validation and test rows of all clients
    times["finish"] = time.perf_counter() - began
    report = {
        "start MB": start,
        "after imports MB": times["imports"],
        "peak MB above start": memory("VmHWM") - start,
        "peak MB while training": trained - start,
        "first states, s": times["init"],
        "rounds and compilation, s": session.state.seconds,
        "two records of all clients, s": times["train"] - session.state.seconds,
        "final scores of all clients, s": times["finish"],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
