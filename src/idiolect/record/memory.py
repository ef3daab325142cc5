# SPDX-License-Identifier: Apache-2.0
"""Memory that a request asks for, held against what there is before any of it is taken."""

from __future__ import annotations

from pathlib import Path

from idiolect.record.errors import RequestError

ADDRESS_SPACE = 3 * 10**9  # bytes that compiler and threads map; little of it is ever used
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def check_bytes(needed: float, asked: str, way_out: str, free: int | None = None) -> None:
    """RequestError where `asked`, the setting with its value, needs more memory than this process can have."""
    limit = free_bytes() if free is None else free
    if limit is not None and needed > limit:
        raise RequestError(
            f"{asked} needs about {in_words(needed)} of memory, and {in_words(limit)} are free; {way_out}."
        )


def check_address_space() -> None:
    """RequestError where `ulimit -v` leaves too little to compute with: the compiler would end the process itself."""
    check_bytes(ADDRESS_SPACE, "Computing", "allow more with `ulimit -v`", _of_process() or ADDRESS_SPACE)


def free_bytes() -> int | None:
    """What this process can still take: of the machine, of its container, of its own limit; None: not known."""
    known = [limit for limit in (_of_machine(), _of_container(), _of_process()) if limit is not None]
    return min(known, default=None)


def in_words(count: float) -> str:
    """'3.2 GB'."""
    place = 0
    while count >= 1000 and place < len(_UNITS) - 1:
        count, place = count / 1000, place + 1
    return f"{count:.3g} {_UNITS[place]}"


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith(("MemAvailable:", "SwapFree:"))]
    return 1024 * sum(kilobytes) if kilobytes else None


def _of_container() -> int | None:
    """What a control group leaves, version 2 or 1."""
    root = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            most, taken = (int((root / name).read_text()) for name in (limit, used))
        except (OSError, ValueError):  # "max": no limit
            continue
        return max(0, most - taken)
    return None


def _of_process() -> int | None:
    """What `ulimit -v` leaves."""
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None
    return None if most == resource.RLIM_INFINITY else max(0, most - taken)
