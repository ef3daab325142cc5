# SPDX-License-Identifier: Apache-2.0
"""One sentence where the runtime ends this process by itself: it does so from a thread of its own, with its own text.

JAX's runtime ends a host at once where the first one is lost, or where one that is lost closed no connection. Python
is not asked then. A small process, made before JAX has begun, reads what the runtime writes to standard error, and
speaks where this one could not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn, TextIO

from idiolect.record import standing

FATAL = b"the JAX distributed service detected fatal errors"  # what the runtime says before it ends the process
_ABOUT_HOSTS = b"coordination_service"
_MARK = b"\x1e"  # around a sentence of ours, in what is otherwise the runtime's text
_END = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os._exit(1))  # kept here: it must outlive the call
_KEPT = 1 << 16  # bytes of that text
_ON: list[bool] = []  # not empty: there is somebody to speak


def have_somebody_speak() -> TextIO:
    """Standard error for this process alone: what libraries write there is held back until it has ended."""
    if not hasattr(os, "fork"):
        return sys.stderr
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        _wait_and_speak(reading)
    os.close(reading)
    own = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    _ON[:] = [True]
    # the runtime aborts from its own thread, where Python's handlers are not run: the system's own way is needed
    ctypes.CDLL(None).signal(int(signal.SIGABRT), _END)
    standing.when_changed(lambda: _tell(standing.lost_host()))
    return os.fdopen(own, "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def spoken() -> None:
    """This process has said itself why it ends."""
    _tell("")


def _tell(sentence: str) -> None:
    if _ON:
        os.write(2, _MARK + sentence.encode() + _MARK)


def _wait_and_speak(reading: int) -> NoReturn:
    """The other process: it ends when all that write into the pipe have ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C reaches both, and the first one may still have something to say
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # whoever reads the answers does not wait for this process
    text = sentence = b""
    while piece := os.read(reading, _KEPT):
        text += piece
        while text.count(_MARK) > 1:
            before, sentence, after = text.split(_MARK, 2)
            text = before + after
        text = text[-_KEPT:]
    if FATAL in text and sentence:
        os.write(2, b"Error: " + sentence + b"\n")
    elif _ABOUT_HOSTS not in text:  # or else this process has spoken of them itself
        os.write(2, text)
    os._exit(0)
