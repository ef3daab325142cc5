# SPDX-License-Identifier: Apache-2.0
"""How many processor cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of a period, or "max"


def physical_cores() -> int:
    """Cores, not threads, that this process is allowed, and of a container no more than its quota."""
    # threads of one core share its arithmetic: a device on each would gain next to nothing
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = {_core_of(number) for number in allowed}
    return max(1, min(len(cores), _quota()))


def _core_of(number: int) -> str:
    """A name that the threads of one core have in common; of each its own where the system does not say."""
    try:
        return Path(_SIBLINGS.format(number)).read_text(encoding="ascii").strip()
    except OSError:
        return f"cpu {number}"


def _quota() -> int:
    try:
        share, period = _QUOTA.read_text(encoding="ascii").split()
        return os.cpu_count() or 1 if share == "max" else max(1, int(share) // int(period))
    except (OSError, ValueError):
        return os.cpu_count() or 1
