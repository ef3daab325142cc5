# SPDX-License-Identifier: Apache-2.0
"""Refusals and remarks in the words of a Python caller: `out=` where the command line says --out."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator

from idiolect.record.errors import RequestError

_OPTION = re.compile(r"(?<![\w-])--([a-z](?:[a-z0-9-]*[a-z0-9])?)")
_NAMES = {"set": "spec", "over": "sweep", "data": "data_set"}
WARNING = "Warning: "  # how a remark begins that is one


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """A RequestError names arguments in the place of command-line options."""
    try:
        yield
    except RequestError as error:
        error.args = (with_arguments(str(error)), *error.args[1:])
        raise


def with_arguments(sentence: str) -> str:
    """The sentence with `held_out=` for --held-out."""
    return _OPTION.sub(lambda found: f"{_NAMES.get(found[1], found[1].replace('-', '_'))}=", sentence)


def warn(text: str) -> None:
    """A remark that is a warning becomes one of Python's; the others are in the notes of the result."""
    if text.startswith(WARNING):
        warnings.warn(with_arguments(text.removeprefix(WARNING)), stacklevel=2)
