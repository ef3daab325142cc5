# SPDX-License-Identifier: Apache-2.0
"""Cells of a large table: each is computed once, kept as a file, and found again by a later or a killed command.

A cell is known by its name and by a digest of all that it was computed from; with another digest it is another cell.
Several processes may fill one folder, as long as no two are given the same cell.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.core.checks import RequestError

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

    def get(self, name: str, made_of: Mapping[str, Any], compute: Callable[[], Cell]) -> Cell:
        """The cell as it was kept, or else computed and kept."""
        found = self.find(name, made_of)
        return self.keep(name, made_of, compute()) if found is None else found

    def _path(self, name: str, made_of: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{name}-{digest[:12]}.json"


def in_processes(
    work: Callable[[Any], Any], tasks: Iterable[Any], *, workers: int, xla_flags: str, told: Callable[[Any], None]
) -> None:
    """`work` of every task, in `workers` processes or, with one, in this; `told` hears of each that is done.

    In processes, a task that fails does not keep the others from being done; its error comes at the end.
    """
    if workers <= 1:
        for task in tasks:
            work(task)
            told(task)
        return
    # children share one GPU: none may take all of its memory at once
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {xla_flags}".strip()
    context = multiprocessing.get_context("spawn")  # a process that has used JAX must not be forked
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = {pool.submit(work, task): task for task in tasks}
        for done in concurrent.futures.as_completed(waiting):
            if done.exception() is None:
                told(waiting[done])
    for done in waiting:
        done.result()
