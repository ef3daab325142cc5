# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP end a command alike: with what is finished saved, and a sentence on how to go on.

None is lost. Python drops an exception that is raised inside a callback of its garbage collector, and JAX has such a
callback, which runs often while programs are compiled. An interrupt that falls into it is forgotten, and the command
goes on.
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

AGAIN = 5.0  # seconds until an interrupt that did not end the command is sent once more: saving may take as long
SOON = 0.02  # seconds until one is sent that would be lost now
Leave = Callable[[int], NoReturn]
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_NOTED: list[str] = []  # the first signal that came


def _free_signals() -> dict[signal.Signals, Any]:
    """The signals that end a command and mean nothing else yet, with their handlers: `nohup`, say, ignores SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    # Python takes signals in its main thread alone, and Windows has no SIGHUP
    named = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    found = {number: signal.getsignal(number) for number in named}
    return {number: by for number, by in found.items() if by in (signal.default_int_handler, signal.SIG_DFL)}


@contextlib.contextmanager
def heard() -> Iterator[Leave | None]:
    """Inside, an interrupt is repeated until it is heard; gives the way to end the process after one.

    None, and nothing is done, where all signals mean something else already, or are another thread's affair.
    """
    before = _free_signals()
    if not before:
        yield None
        return
    reminders: list[threading.Timer] = []
    _NOTED.clear()

    def interrupt(number: int, frame: Any) -> None:
        _NOTED[:] = _NOTED or [signal.Signals(number).name]
        # raised inside a callback of the garbage collector it would be dropped: then it is sent again, a moment later
        lost = any(getattr(callback, "__code__", None) is frame.f_code for callback in gc.callbacks)
        remind(SOON if lost else AGAIN, number)
        if not lost:
            raise KeyboardInterrupt

    def remind(seconds: float, number: int) -> None:
        reminder = threading.Timer(seconds, _thread.interrupt_main, [number])
        reminder.daemon = True
        reminder.start()
        reminders.append(reminder)

    def dropped(lost: Any) -> None:
        """What Python dropped because it was raised where nothing can be: an interrupt is sent again, in silence."""
        if issubclass(lost.exc_type, KeyboardInterrupt):
            remind(SOON, signal.SIGINT)
        else:
            report_dropped(lost)

    report_dropped, sys.unraisablehook = sys.unraisablehook, dropped
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield leave
    finally:
        sys.unraisablehook = report_dropped
        for number, handler in before.items():
            signal.signal(number, handler)
        _NOTED.clear()
        for reminder in reminders:
            reminder.cancel()


def noted() -> bool:
    """Whether an interrupt has come, whatever became of it."""
    return bool(_NOTED)


def word() -> str:
    """What ended the command: 'Interrupted', or with the name of another signal than that of Ctrl-C."""
    return f"Interrupted ({_NOTED[0]})" if _NOTED and _NOTED[0] != "SIGINT" else "Interrupted"


def leave(code: int) -> NoReturn:
    """End the process now: to take an interpreter apart whose threads are still compiling can end in a crash."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # who reads it may have heard the same Ctrl-C, and be gone
            stream.flush()
    os._exit(code)
