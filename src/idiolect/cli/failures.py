# SPDX-License-Identifier: Apache-2.0
"""Every failure becomes one sentence on standard error and an exit code; a traceback only on request."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from idiolect.cli import interruption
from idiolect.cli.output import guarded, remark
from idiolect.record import standing
from idiolect.record.errors import DivergedError, FetchError, LostHostError, RequestError
from idiolect.record.memory import free_bytes

OUT_OF_MEMORY = "Out of memory. Use a smaller training.cohort, executor 'chunked' with a small chunk, or fewer seeds."
# how libraries say it that do not raise MemoryError
MEMORY_WORDS = (
    *("RESOURCE_EXHAUSTED", "Out of memory", "bad_alloc", "Cannot allocate memory", "Unable to allocate"),
    *("can't start new thread", "failed to map segment"),
)
LITTLE_MEMORY = 100_000_000  # bytes: libraries that are imported need more
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_BACKEND = "Unable to initialize backend"  # JAX's words
SHORT = " written"  # NumPy's "96 requested and 51 written", where the disk took a part
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
        if KeyboardInterrupt in map(type, _chain(exit_)):  # typer turns Ctrl-C into an exit of its own
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
    if isinstance(error, RequestError):
        return str(error), 2
    if isinstance(error, DivergedError | FetchError | LostHostError):
        return str(error), 1
    if _is_starved(error):
        return OUT_OF_MEMORY, 1
    if isinstance(error, OSError):
        return _refused(error)
    if isinstance(error, RuntimeError) and NO_BACKEND in str(error):
        asked = os.environ.get("JAX_PLATFORMS", "")
        return f"JAX cannot compute on JAX_PLATFORMS={asked!r} here; leave that variable out, or set it to cpu.", 2
    text = " ".join(str(error).split()) or "no message"  # not the first line alone: JAX names the culprit further down
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    place = _own_place(error)
    what = f"Your own code failed in {place}:" if place else "Unexpected"
    return f"{what} {type(error).__name__}: {text} (set {VARIABLE}=1 and run again to see where).", 1


def _own_place(error: Exception) -> str:
    from idiolect.core.importing import place_of  # not at the top: it brings JAX, which --help can do without

    return place_of(error)


def _refused(error: OSError) -> tuple[str, int]:
    """What the system did not do; a full disk is not the request's fault."""
    where = f" {error.filename}" if error.filename else " to write"
    if error.errno in FULL or (error.errno is None and SHORT in str(error)):
        full = error.strerror or os.strerror(errno.ENOSPC)
        return f"The system refused{where}: {full}. Free some space first. {standing.way_on()}", 1
    return f"The system refused{where}: {error.strerror or error}.", 2


def _is_starved(error: BaseException) -> bool:
    """Whether memory ran out: an error says so, or an import or a thread fails while next to nothing is free."""
    # where memory is short, libraries fail to load or to start a thread, with an error that speaks of something else
    if isinstance(error, ImportError | RuntimeError | SystemError):
        free = free_bytes()
        if free is not None and free < LITTLE_MEMORY:
            return True
    said = [isinstance(one, MemoryError) or any(words in str(one) for words in MEMORY_WORDS) for one in _chain(error)]
    return any(said)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _interrupted(leave: Callable[[int], NoReturn] | None) -> int:
    with contextlib.suppress(OSError):  # a reader that heard the same Ctrl-C
        _say(f"{interruption.word()}. {standing.way_on()}", 1)
    return 1 if leave is None else leave(1)


def _say(sentence: str, code: int) -> int:
    """One line, whatever a file name or a broken table has put into the sentence."""
    remark(f"Error: {' '.join(sentence.split())}")
    return code
