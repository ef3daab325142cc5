# SPDX-License-Identifier: Apache-2.0
"""Nothing grows with the number of rounds: the most memory in the second thousand of them against the first.

Ditto with a perceptron 784-16-10 on 200 clients, 20 per round: every client has taken part long before the end. A
process of its own, on the CPU or the GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, Target

ROOT = Path(__file__).parents[1]
HOST_MB, DEVICE_MB = 20.0, 1.0  # an allocator's own moods; one copy of all states would be ten


def run(quick: bool) -> Result:
    """Resident memory of the process, and bytes of arrays on the device."""
    clients, cohort, rounds, every = (12, 6, 20, 10) if quick else (200, 20, 2000, 200)
    command = [sys.executable, "-m", "benchmarks.memory_child", *map(str, (clients, cohort, rounds, every))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout)
    device, host = (_growth(found[key]) for key in ("device MB", "host MB"))
    numbers = found | {"growth of device memory, MB": device, "growth of host memory, MB": host}
    span = f"from the first to the second half of {rounds} rounds"
    return Result(
        numbers,
        (
            Target(f"host memory, growth {span}", host, HOST_MB, "MB"),
            Target(f"device memory, growth {span}", device, DEVICE_MB, "MB"),
            Target("clients that have taken part", found["clients that took part"], float(clients), "", at_least=True),
        ),
    )


def _growth(looks: list[float]) -> float:
    """The best round so far is kept, so a second copy of server and states comes and goes: maxima are compared."""
    half = len(looks) // 2
    return max(looks[half:]) - max(looks[:half])
