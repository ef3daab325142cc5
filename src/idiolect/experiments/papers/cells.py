# SPDX-License-Identifier: Apache-2.0
"""Cells of a large table: each is computed once, kept as a file, and found again by a later or a killed command.

A cell is known by its name and by a digest of all that it was computed from; with another digest it is another cell.
Several processes may fill one folder, as long as no two are given the same cell.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.core.checks import RequestError
from idiolect.experiments.compilation import enable_cache

Cell = dict[str, Any]  # plain values


class Cells(NamedTuple):
    """A folder of cells."""

    folder: Path

    def find(self, name: str, made_of: Mapping[str, Any]) -> Cell | None:
        """The cell, if it was computed from the same."""
        path = self._path(name, made_of)
        try:
            return json.loads(path.read_text(encoding="utf-8"))["cell"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise RequestError(f"The file {path} is no cell of a table; delete it to compute it again.") from None

    def keep(self, name: str, made_of: Mapping[str, Any], cell: Cell) -> Cell:
        """Write the cell, at once or not at all."""
        path = self._path(name, made_of)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_text(json.dumps({"made_of": made_of, "cell": cell}), encoding="utf-8")
        os.replace(unfinished, path)
        return cell

    def _path(self, name: str, made_of: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{name}-{digest[:12]}.json"


Told = Callable[[str, int, int], None]  # what was computed, tasks done, tasks in all


def in_processes(
    work: Callable[[Any], Any], tasks: Mapping[str, Any], *, workers: int, xla_flags: str, told: Told
) -> None:
    """`work` of every task, in `workers` processes or, with one and no flags, in this; `told` hears of what is done.

    In processes, a task that fails does not keep the others from being done; its error comes at the end.
    """
    if workers == 1 and not xla_flags:
        for done, (name, task) in enumerate(tasks.items(), 1):
            work(task)
            told(name, done, len(tasks))
        return
    # children share one GPU: none may take all of its memory at once
    wanted = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {xla_flags}"}
    context = multiprocessing.get_context("spawn")  # a process that has used JAX must not be forked
    with _environment(wanted), concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = {pool.submit(_cached, work, task): name for name, task in tasks.items()}
        for done, one in enumerate(concurrent.futures.as_completed(waiting), 1):
            if one.exception() is None:
                told(waiting[one], done, len(tasks))
    for one in waiting:
        one.result()


def _cached(work: Callable[[Any], Any], task: Any) -> None:
    enable_cache()  # what one process compiled, another need not
    work(task)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Variables for the time of starting processes; afterwards they are as they were."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
