# SPDX-License-Identifier: Apache-2.0
"""Code of the user's own, by the path that a spec names it with; imported only where the user has allowed it."""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from idiolect.core.checks import RequestError, nearest

# A spec may come from another user, so nothing is imported outside `own_code`. One value for all threads: who may
# import is a decision of the whole command.
_allowed: frozenset[str] | None = frozenset()  # paths that may be imported; None: any
_files: set[str] = set()  # of the modules that were imported so


@contextlib.contextmanager
def own_code(plugins: str | Path | None = None, only: Collection[str] | None = None) -> Iterator[None]:
    """Inside, "package.module:name" of a spec may be imported: any of them, or `only` the given ones.

    Modules are those of installed packages, and those in the folder `plugins`, which shadow nothing.
    """
    global _allowed
    before, folder = _allowed, None if plugins is None else str(Path(plugins).resolve())
    if folder is not None:
        if not Path(folder).is_dir():
            raise RequestError(f"--plugins must name a folder with your modules, got {str(plugins)!r}.")
        sys.path.append(folder)
        importlib.invalidate_caches()  # a file that was written a moment ago is found too
    _allowed = None if only is None else frozenset(only)
    try:
        yield
    finally:
        _allowed = before
        if folder is not None:
            sys.path.reverse()  # ours is the last of its name
            sys.path.remove(folder)
            sys.path.reverse()


def imported(path: str, what: str) -> Any:
    """The object at "package.module:attribute"; `what` is what the path is of, and what it must name."""
    module, _, attribute = path.partition(":")
    _check_allowed(path, module, what)
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if not isinstance(error, ImportError | ValueError | AttributeError):  # it was found, and is at fault
            reason = f"{type(error).__name__}: {error}"
            raise RequestError(f"{what} and importable, got {path!r} ({reason}); fix that file.") from error
        way_out = "install its package, or name its folder with --plugins DIR"
        raise RequestError(f"{what} and importable, got {path!r} ({error}); {way_out}.") from error
    _files.add(getattr(found, "__file__", None) or "")
    if not hasattr(found, attribute):
        known = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == module]
        raise RequestError(f"{what}, got {path!r}: {module} has no {attribute!r}.{nearest(attribute, known)}")
    return getattr(found, attribute)


def place_of(error: BaseException) -> str:
    """'mine.py, line 12, step': where an error left the user's own code last; empty where it never was there."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in _files]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}, {frames[-1].name}" if frames else ""


def _check_allowed(path: str, module: str, what: str) -> None:
    """RequestError where the user has not allowed this path, or where it cannot be code for this package."""
    if _allowed is not None and path not in _allowed:
        raise RequestError(
            f"The code at {path!r} is not imported here: only run, compare, sweep and dial import what a spec names. "
            f"If you trust it: predict with --trust {path} (and --plugins DIR, where it is no installed package), or "
            "in Python inside `with idiolect.own_code():`."
        )
    if module.partition(".")[0] in sys.stdlib_module_names:  # importing some of these has effects
        raise RequestError(f"{what}, got {path!r}, which is in Python's own library; name your own.")
