# SPDX-License-Identifier: Apache-2.0
"""Several groups of tasks at once, each group in a process of its own, with news and results as they come."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

Work = Callable[[str, Callable[..., None]], Any]  # a name and where news go to: the result
SPAWN = multiprocessing.get_context("spawn")  # JAX's threads do not survive a fork
GRACE = 10  # seconds that a process has to end the processes that it started


def work_side_by_side(
    groups: Sequence[Sequence[str]], work: Work, jobs: int
) -> Iterator[tuple[str, tuple[Any, ...] | None, Any]]:
    """Yield (name, news, None) while `work(name, news)` goes on, and (name, None, result) when it is done.

    At most `jobs` groups are worked on at once; the names of a group take turns. A process that dies gives its exit
    code as the result of every name that it leaves undone. A caller that stops listening ends all processes.
    """
    waiting = [tuple(group) for group in groups]
    at_work: dict[Connection, tuple[BaseProcess, list[str]]] = {}
    try:
        while waiting or at_work:
            while waiting and len(at_work) < jobs:
                group = waiting.pop(0)
                pipe, process = _start(group, work)
                at_work[pipe] = process, list(group)
            ready = wait(list(at_work))
            # one message of each in turn: one that sends much does not keep the others from being heard
            for pipe in [pipe for pipe in at_work if pipe in ready]:
                yield from _hear(pipe, at_work)
    finally:
        for process, _ in at_work.values():
            _end(process)


def _start(group: Sequence[str], work: Work) -> tuple[Connection, BaseProcess]:
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_work_on, args=(tuple(group), work, theirs))
    process.start()
    theirs.close()  # the child's end: when it dies, ours is at its end
    return ours, process


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(GRACE)
    if process.is_alive():
        process.kill()
        process.join()


def _hear(
    pipe: Connection, at_work: dict[Connection, tuple[BaseProcess, list[str]]]
) -> Iterator[tuple[str, tuple[Any, ...] | None, Any]]:
    process, left = at_work[pipe]
    try:
        name, news, result = pipe.recv()
    except EOFError:  # its end of the pipe is closed: it is done, or has died with names left over
        process.join()
        pipe.close()
        del at_work[pipe]
        yield from ((name, None, process.exitcode) for name in left)
        return
    if news is None:
        left.remove(name)
    yield name, news, result


def _work_on(group: Sequence[str], work: Work, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent ends its processes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that pools of its own are closed on the way out
    for name in group:
        pipe.send((name, None, work(name, lambda *news: pipe.send((name, news, None)))))  # noqa: B023 - used within
    pipe.close()
