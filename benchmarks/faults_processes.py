# SPDX-License-Identifier: Apache-2.0
"""Commands in processes of their own, made quickly: copied from one that has imported everything and used nothing.

A process that has used JAX has threads, and must not be copied; one that has only imported it may be.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

PRELOAD = [
    *("jax", "typer", "idiolect.cli", "idiolect.cli.training", "idiolect.experiments.execute"),
    *("idiolect.experiments.candidates", "idiolect.report", "idiolect.report.page", "benchmarks.faults_processes"),
]
LIMIT = 120  # seconds that any one may take, unless it is said


def start(arguments: list[str], said: Path, patience: float | None = None) -> BaseProcess:
    """Begin `idiolect ARGUMENTS`; standard error goes into the file `said`. Hosts wait for others so many seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=_main, args=(arguments, str(said), patience))
    process.start()
    return process


def end(process: BaseProcess, said: Path, limit: float = LIMIT) -> tuple[int, str]:
    """(exit code, standard error) of a process that is to end by itself."""
    process.join(limit)
    if process.is_alive():
        process.kill()
        process.join()
        return -1, "it did not end"
    text = said.read_text(encoding="utf-8", errors="replace") if said.is_file() else ""
    return process.exitcode or 0, text


def _main(arguments: list[str], said: str, patience: float | None) -> None:
    from idiolect.cli import main
    from idiolect.experiments import hosts

    hosts.PATIENCE = hosts.PATIENCE if patience is None else patience

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    error = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(error, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stderr, sys.stdout = os.fdopen(2, "w", closefd=False), os.fdopen(1, "w", closefd=False)
    sys.argv = ["idiolect", *arguments]
    code: object = 1
    try:
        main()
    except SystemExit as exit_:
        code = exit_.code
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)
