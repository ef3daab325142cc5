# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C that is not lost.

Python drops an exception that is raised inside a callback of its garbage collector, and JAX has such a callback, which
runs often while programs are compiled. An interrupt that falls into it is forgotten, and the command goes on.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

AGAIN = 2.0  # seconds until an interrupt that did not end the command is sent once more: cleaning up may take as long
SOON = 0.02  # seconds until one is sent that would be lost now
Leave = Callable[[int], NoReturn]
_NOTED = threading.Event()


@contextlib.contextmanager
def heard() -> Iterator[Leave | None]:
    """Inside, an interrupt is repeated until it is heard; gives the way to end the process after one.

    None, and nothing is done, where Ctrl-C means something else already, or is another thread's affair.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield None
        return
    reminders: list[threading.Timer] = []
    _NOTED.clear()

    def interrupt(number: int, frame: Any) -> None:
        _NOTED.set()
        lost = any(getattr(callback, "__code__", None) is frame.f_code for callback in gc.callbacks)
        reminder = threading.Timer(SOON if lost else AGAIN, _thread.interrupt_main)
        reminder.daemon = True
        reminder.start()
        reminders.append(reminder)
        if not lost:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield _leave
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _NOTED.clear()
        for reminder in reminders:
            reminder.cancel()


def noted() -> bool:
    """Whether an interrupt has come, whatever became of it."""
    return _NOTED.is_set()


def _leave(code: int) -> NoReturn:
    """End the process now: to take an interpreter apart whose threads are still compiling can end in a crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # who reads it may have heard the same Ctrl-C, and be gone
            stream.flush()
    os._exit(code)
