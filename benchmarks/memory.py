# SPDX-License-Identifier: Apache-2.0
"""Nothing grows with the number of rounds: memory of a method with client states, after 200 and after 2000 rounds.

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
HOST_MB = 20.0  # an allocator's own moods


def run(quick: bool) -> Result:
    """Resident memory of the process, and bytes of arrays on the device."""
    clients, cohort, rounds, first = (12, 6, 20, 10) if quick else (200, 20, 2000, 200)
    command = [sys.executable, "-m", "benchmarks.memory_child", *map(str, (clients, cohort, rounds, first))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout)
    device = max(found["device MB"]) - found["device MB"][0]
    host = found["host MB"][-1] - found["host MB"][0]
    numbers = found | {"growth of device memory, MB": device, "growth of host memory, MB": host}
    span = f"from {first} to {rounds} rounds"
    return Result(
        numbers,
        (
            Target(f"host memory, growth {span}", host, HOST_MB, "MB"),
            # the best round so far is kept: a second copy of server and states comes and goes
            Target(f"device memory, growth {span}", device, found["one snapshot, MB"], "MB"),
            Target("clients that have taken part", found["clients that took part"], float(clients), "", at_least=True),
        ),
    )
