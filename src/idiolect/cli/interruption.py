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
from collections.abc import Iterator
from typing import Any

AGAIN = 2.0  # seconds until an interrupt that did not end the command is sent once more: cleaning up may take as long
SOON = 0.02  # seconds until one is sent that would be lost now


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Inside, an interrupt is repeated until it is heard; not where Ctrl-C means something else already."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    reminders: list[threading.Timer] = []

    def interrupt(number: int, frame: Any) -> None:
        lost = any(getattr(callback, "__code__", None) is frame.f_code for callback in gc.callbacks)
        reminder = threading.Timer(SOON if lost else AGAIN, _thread.interrupt_main)
        reminder.daemon = True
        reminder.start()
        reminders.append(reminder)
        if not lost:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for reminder in reminders:
            reminder.cancel()


def leave(code: int) -> int:
    """End the process now: to take an interpreter apart whose threads are still compiling can end in a crash."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
