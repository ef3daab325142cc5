# SPDX-License-Identifier: Apache-2.0
"""Finds the reproductions of published results, which lie beside this package in its checkout, not in its wheel."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from idiolect.core.checks import RequestError
from idiolect.core.importing import own_code

SOURCES = Path(__file__).resolve().parents[2]  # src/ in a checkout, site-packages/ elsewhere
FOLDER = SOURCES.parent / "papers"


def are_installed() -> bool:
    """Whether this package is that of a checkout, with the reproductions beside it."""
    return SOURCES.name == "src" and (FOLDER / "__init__.py").is_file()


@contextlib.contextmanager
def reproductions(module: str) -> Iterator[ModuleType]:
    """Inside, the named module of `papers`, from this checkout and from nowhere else.

    Processes that a reproduction starts find it too, as they inherit the search path.
    """
    if not are_installed():
        raise RequestError(
            "Reproductions are not part of the installed package, they need its repository; clone it, and install it "
            "from there with `pip install -e '.[dev]'`."
        )
    with own_code(plugins=FOLDER.parent, only=()):
        found = importlib.util.find_spec("papers")  # says where it is, and executes nothing
        if found is None or found.origin is None or Path(found.origin).resolve().parent != FOLDER:
            where = None if found is None else found.origin
            raise RequestError(f"The package 'papers' must be that of {FOLDER}, got {where}; uninstall the other.")
        yield importlib.import_module(f"papers.{module}")
