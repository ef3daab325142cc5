# SPDX-License-Identifier: Apache-2.0
"""The command line never imports from the working directory, where files of anybody may lie.

Nothing is imported here that Python has not loaded by itself: `__future__` and `typing` could be planted files too.
"""

import os
import sys


def leave_out_working_directory() -> None:
    """Take off the search path what Python put there for the working directory; child processes never put it there.

    A folder that PYTHONPATH names outright is the user's own choice. So are installed packages, whose folders stand
    behind Python's own library.
    """
    own_library = os.path.dirname(os.__file__)
    end = sys.path.index(own_library) if own_library in sys.path else len(sys.path)
    sys.path[:] = [entry for place, entry in enumerate(sys.path) if entry and (place > end or not _unasked(entry))]
    os.environ["PYTHONSAFEPATH"] = "1"


def _unasked(entry: str) -> bool:
    """Whether the entry is the working directory, and PYTHONPATH does not name it."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was deleted: nothing can be imported from it
        return False
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.path.realpath(entry) == here and all(os.path.realpath(name) != here for name in named if name)
