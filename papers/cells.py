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
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from idiolect import RequestError
from idiolect.experiments.compilation import enable_cache
from idiolect.record.files import whole
from idiolect.record.sealed import KEY, digest_of_values

Cell = dict[str, Any]  # plain values
AGAIN = "delete it to compute it again"


class Cells(NamedTuple):
    """A folder of cells."""

    folder: Path

    def find(self, name: str, made_of: Mapping[str, Any]) -> Cell | None:
        """The cell, if it was computed from the same."""
        path = self._path(name, made_of)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            found, known = kept["cell"], kept["made_of"]
            seal = kept.pop(KEY, None)  # cells of earlier versions have none
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RequestError(f"The file {path} is no cell of a table; {AGAIN}.") from None
        if known != json.loads(json.dumps(made_of)) or not isinstance(found, dict) or not found:
            raise RequestError(f"The file {path} is not what its name says; {AGAIN}.")
        if seal not in (None, digest_of_values(kept)):
            raise RequestError(f"The file {path} is damaged or was edited; {AGAIN}.")
        return found

    def keep(self, name: str, made_of: Mapping[str, Any], cell: Cell) -> Cell:
        """Write the cell with its checksum, at once or not at all."""
        path = self._path(name, made_of)
        # as it will be read: JSON turns tuples into lists and all keys into texts
        kept = json.loads(json.dumps({"made_of": made_of, "cell": cell}))
        with whole(path) as unfinished:
            unfinished.write_text(json.dumps(kept | {KEY: digest_of_values(kept)}), encoding="utf-8")
        return cell

    def _path(self, name: str, made_of: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{name}-{digest[:12]}.json"


Told = Callable[[str, int, int], None]  # what was computed, tasks done, tasks in all


def in_processes(
    work: Callable[[Any], Any], tasks: Mapping[str, Any], *, workers: int, xla_flags: str, told: Told
) -> None:
    """`work` of every task, in `workers` processes or, with one and no flags, in this; `told` hears of what is done.

    In processes, a task that fails does not keep the others from being done; its error comes at the end. One that ran
    out of memory, which all share, is tried again in half as many new processes, down to one.
    """
    if workers == 1 and not xla_flags:
        for done, (name, task) in enumerate(tasks.items(), 1):
            work(task)
            told(name, done, len(tasks))
        return
    # children share one GPU: none may take all of its memory at once
    flags = f"{os.environ.get('XLA_FLAGS', '')} {xla_flags}".strip()
    wanted = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | ({"XLA_FLAGS": flags} if flags else {})
    left, failed, done = dict(tasks), list[BaseException](), 0
    with _environment(wanted):
        while left:
            starved: dict[str, Any] = {}
            with contextlib.closing(_pooled(work, left, workers)) as news:  # at an interrupt in `told` too
                for name, error in news:
                    if error is None:
                        done += 1
                        told(name, done, len(tasks))
                    elif workers > 1 and _out_of_memory(error):
                        starved[name] = left[name]
                    else:
                        failed.append(error)
            left, workers = starved, max(1, workers // 2)
    for error in failed:
        raise error


def _pooled(
    work: Callable[[Any], Any], tasks: Mapping[str, Any], workers: int
) -> Generator[tuple[str, Any], None, None]:
    """Each task's name and error, or None, as they are done."""
    context = multiprocessing.get_context("spawn")  # a process that has used JAX must not be forked
    others = multiprocessing.active_children()
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context)
    try:
        waiting = {pool.submit(_cached, work, task): name for name, task in tasks.items()}
        for one in concurrent.futures.as_completed(waiting):
            yield waiting[one], one.exception()
    except BaseException:  # an interrupt: without those at work the pool ends at once, and takes its semaphores along
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    finally:  # not `with`, which would wait for all that was not begun when a user interrupts
        pool.shutdown(cancel_futures=True)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _cached(work: Callable[[Any], Any], task: Any) -> None:
    enable_cache()  # what one process compiled, another need not
    try:
        work(task)
    except KeyboardInterrupt:
        os._exit(1)  # a pool's process would take the next task that was handed to it


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
