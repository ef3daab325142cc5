# SPDX-License-Identifier: Apache-2.0
"""FLARE's server and site as processes: the stock command of a kit, started once, stopped by process number."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import psutil

from idiolect.core.checks import RequestError
from idiolect.experiments.flare.kits import follow

PATIENCE = 3.0  # seconds between asking processes to end and ending them; FLARE is in no hurry


def start(
    kit: Path, log: IO[bytes] | int | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Run the kit's own `sub_start.sh --once`, which becomes the server or the site, with this Python."""
    if not (kit / "startup" / "sub_start.sh").exists():
        raise RequestError(f"{kit} is no start-up kit of a server or a site; `idiolect deploy init` makes them.")
    follow(kit)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = ["bash", str(kit.resolve() / "startup" / "sub_start.sh"), "--once"]
    settings = {**os.environ, "PATH": path, **(environment or {})}
    return subprocess.Popen(command, cwd=kit, env=settings, stdout=log, stderr=log, start_new_session=True)


def run(kit: Path) -> int:
    """Be the server or the site until it ends or is interrupted; its exit code."""
    process = start(kit)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        stop([process])


def stop(started: Iterable[subprocess.Popen[bytes]]) -> None:
    """End what was started and the processes of its jobs, which FLARE puts into sessions of their own."""
    processes = list(started)
    family = [member for process in processes for member in _family(process.pid)]
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    _, stubborn = psutil.wait_procs(family, timeout=PATIENCE)
    for member in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    for process in processes:
        process.wait(PATIENCE)


def _family(number: int) -> list[psutil.Process]:
    """A process and all that descend from it; none where it is gone."""
    try:
        process = psutil.Process(number)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []
