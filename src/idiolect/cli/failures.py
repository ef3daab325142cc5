# SPDX-License-Identifier: Apache-2.0
"""Every failure becomes one sentence on standard error and an exit code; a traceback only on request."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from idiolect.cli import interruption
from idiolect.cli.output import guarded, remark
from idiolect.record import standing
from idiolect.record.memory import free_bytes

OUT_OF_MEMORY = "Out of memory. Use a smaller training.cohort, executor 'chunked' with a small chunk, or fewer seeds."
# how libraries say it that do not raise MemoryError
MEMORY_WORDS = (
    *("RESOURCE_EXHAUSTED", "Out of memory", "bad_alloc", "Cannot allocate memory", "Unable to allocate"),
    *("can't start new thread", "failed to map segment"),
)
LITTLE_MEMORY = 100_000_000  # bytes: libraries that are imported need more
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LONGEST = 400  # letters of an unexpected message that are shown
VARIABLE = "IDIOLECT_TRACEBACK"  # set it to see where an unexpected error came from


@guarded()
def exit_code_of(app: Any, leave: Callable[[int], NoReturn] | None = None) -> int:
    """Run the app: 0 done, 1 the run failed or missed its numbers, 2 the request was wrong.

    After Ctrl-C the process is ended by `leave`, where there is one.
    """
    standing.forget()
    try:
        app()
    except SystemExit as exit_:
        if _was_interrupted(exit_):  # typer turns Ctrl-C into an exit of its own
            return _interrupted(leave)
        return exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    except KeyboardInterrupt:
        return _interrupted(leave)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away: nothing is left to say to it
        return 1
    except Exception as error:
        if interruption.noted():  # an import that Ctrl-C cut short fails with an error of its own
            return _interrupted(leave)
        if os.environ.get(VARIABLE):
            traceback.print_exc()
        return _say(*_sentence(error))
    return 0


def _sentence(error: Exception) -> tuple[str, int]:
    """The kinds are known by name, so that a failing `--help` need not import jax to find out."""
    # of all ancestors: a DamagedError is a RequestError, too
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"RequestError", "FolderError"}:
        return str(error), 2
    if kinds & {"DivergedError", "FetchError", "LostHostError"}:
        return str(error), 1
    if _is_starved(error):
        return OUT_OF_MEMORY, 1
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else " to write"
        if error.errno in FULL:  # not the request's fault
            return f"The system refused{where}: {error.strerror}. Free some space first. {standing.way_on()}", 1
        return f"The system refused{where}: {error.strerror or error}.", 2
    text = " ".join(str(error).split()) or "no message"  # not the first line alone: JAX names the culprit further down
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return f"Unexpected {type(error).__name__}: {text} (set {VARIABLE}=1 and run again to see where).", 1


def _is_starved(error: BaseException | None) -> bool:
    """Whether memory ran out: an error says so, or an import or a thread fails while next to nothing is free."""
    # where memory is short, libraries fail to load or to start a thread, with an error that speaks of something else
    if isinstance(error, ImportError | RuntimeError | SystemError):
        free = free_bytes()
        if free is not None and free < LITTLE_MEMORY:
            return True
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error) for words in MEMORY_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _was_interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _interrupted(leave: Callable[[int], NoReturn] | None) -> int:
    with contextlib.suppress(OSError):  # a reader that heard the same Ctrl-C
        _say(f"{interruption.word()}. {standing.way_on()}", 1)
    return 1 if leave is None else leave(1)


def _say(sentence: str, code: int) -> int:
    """One line, whatever a file name or a broken table has put into the sentence."""
    remark(f"Error: {' '.join(sentence.split())}")
    return code
